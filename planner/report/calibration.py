"""What a calibration found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.report.console import make_table, print_pairs, print_title

if TYPE_CHECKING:
    from rich.console import Console

    from planner.calibration.fit import Fit, Fitted


def print_calibration(console: Console, profile: str, fit: Fit, what: str = "step time") -> None:
    """The parameters before and after, how well the runs tell them, and the errors."""
    console.print(f"{profile}, fitted to {fit.rows} runs")
    console.print()
    table = make_table(console)
    for name in ("parameter", "shipped", "fitted", "told"):
        table.add_column(name, justify="left" if name == "parameter" else "right", no_wrap=True)
    for one in sorted(fit.fitted, key=lambda one: (one.refused, -one.determined)):
        fitted = "kept" if one.refused else f"{one.value:.4g}"
        table.add_row(one.parameter.label, f"{one.parameter.shipped:.4g}", fitted, _told(one))
    console.print(table)
    console.print()
    console.print("told: the share of its prior uncertainty that the runs take away.")
    console.print("kept: they do not tell it, and the shipped value stays.")
    print_title(console, f"Mean error of the {what}")
    print_pairs(console, _errors(fit))


def _told(one: Fitted) -> str:
    return f"{100 * max(one.determined, 0.0):.0f} %"


def _errors(fit: Fit) -> dict[str, str]:
    errors = {
        "shipped values": f"{100 * fit.error_before:.1f} %",
        "fitted values": f"{100 * fit.error_after:.1f} %",
    }
    if fit.folds >= 2:
        left_out = f"{100 * fit.error_left_out:.1f} % ({fit.folds} folds)"
        errors["fitted, on runs left out"] = left_out
    return errors
