"""What a calibration found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.calibration.profile_file import unit_of
from planner.report.console import make_table, print_pairs, print_title

if TYPE_CHECKING:
    from rich.console import Console

    from planner.calibration.fit import Errors, Fit, Fitted


def print_calibration(console: Console, profile: str, fit: Fit, time: str = "step time") -> None:
    """The parameters before and after, how well the runs tell them, and the errors."""
    console.print(f"{profile}, fitted to {fit.runs} runs")
    console.print()
    table = make_table(console)
    for name in ("parameter", "shipped", "fitted", "told"):
        table.add_column(name, justify="left" if name == "parameter" else "right", no_wrap=True)
    for one in sorted(fit.fitted, key=lambda one: (one.refused, -one.determined)):
        unit, scale = unit_of(one.parameter.name)
        shipped, value = f"{one.parameter.shipped * scale:.4g}", f"{one.value * scale:.4g}"
        label = one.parameter.label if unit == "1" else f"{one.parameter.label} [{unit}]"
        table.add_row(label, shipped, "kept" if one.refused else value, _told(one))
    console.print(table)
    console.print()
    console.print("told: the share of its prior uncertainty that the runs take away.")
    console.print("kept: they do not tell it, and the shipped value stays.")
    for name, errors in ((time, fit.time), ("peak memory", fit.memory)):
        if errors is not None:
            print_title(console, f"Mean error of the {name} (measurements: {errors.measurements})")
            print_pairs(console, _errors(errors, fit.folds))


def _told(one: Fitted) -> str:
    return f"{100 * max(one.determined, 0.0):.0f} %"


def _errors(errors: Errors, folds: int) -> dict[str, str]:
    pairs = {
        "shipped values": f"{100 * errors.before:.1f} %",
        "fitted values": f"{100 * errors.after:.1f} %",
    }
    if folds >= 2:
        pairs["fitted, on runs left out"] = f"{100 * errors.left_out:.1f} % ({folds} folds)"
    return pairs
