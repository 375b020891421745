"""What a calibration found, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.show.page import GAP, Block, Pairs, Title, grid, said
from planner.validation.fitted_profile import unit_of

if TYPE_CHECKING:
    from planner.validation.fit import Errors, Fit


def calibration_blocks(profile: str, fit: Fit, time: str = "step time") -> Iterator[Block]:
    """The parameters before and after, how well the runs tell them, and the errors."""
    yield said(f"{profile}, fitted to {fit.runs} runs", indent="")
    yield GAP
    rows = []
    for one in sorted(fit.fitted, key=lambda one: (one.refused, -one.determined)):
        unit, scale = unit_of(one.parameter.name)
        shipped, value = f"{one.parameter.shipped * scale:.4g}", f"{one.value * scale:.4g}"
        label = one.parameter.label if unit == "1" else f"{one.parameter.label} [{unit}]"
        told = f"{100 * max(one.determined, 0.0):.0f} %"
        rows.append((label, shipped, "kept" if one.refused else value, told))
    yield grid(("parameter", "shipped", "fitted", "told"), rows)
    yield GAP
    yield said("told: the share of its prior uncertainty that the runs take away.", indent="")
    yield said("kept: they do not tell it, and the shipped value stays.", indent="")
    for name, errors in ((time, fit.time), ("peak memory", fit.memory)):
        if errors is not None:
            yield Title(text=f"Mean error of the {name} (measurements: {errors.measurements})")
            yield Pairs(pairs=_errors(errors, fit.folds))


def _errors(errors: Errors, folds: int) -> dict[str, str]:
    pairs = {
        "shipped values": f"{100 * errors.before:.1f} %",
        "fitted values": f"{100 * errors.after:.1f} %",
    }
    if folds >= 2:
        pairs["fitted, on runs left out"] = f"{100 * errors.left_out:.1f} % ({folds} folds)"
    return pairs
