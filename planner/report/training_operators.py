"""The time of a step by operator and by module, adding up to the step time."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from planner.base.records import record
from planner.estimators.estimate import Estimate
from planner.estimators.step_time import TIME_PARTS, StepTime
from planner.report.console import make_table, print_title
from planner.report.parts import first

_OTHERS = "all modules"
_OF_OPERATORS = ("forward", "backward", "recompute")


@record(kw_only=True)
class OperatorRow:
    """Seconds of a step that one operator, or one part that belongs to none, takes."""

    operator: str
    module: str
    forward: float
    backward: float
    recompute: float
    total: float


def operator_rows(time: StepTime) -> list[OperatorRow]:
    """Rows that add up to the step time of the first configuration."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    in_operators = dict.fromkeys(TIME_PARTS, 0.0)
    for operator, seconds in time.operator_times():
        row = sums.setdefault((operator.module, operator.name), dict.fromkeys(_OF_OPERATORS, 0.0))
        for name, value in seconds.items():
            row[name] += first(value)
            in_operators[name if operator.part == "compute" else operator.part] += first(value)
    rows = [
        OperatorRow(operator=name, module=module, total=sum(row.values()), **row)
        for (module, name), row in sums.items()
    ]
    return rows + [
        OperatorRow(operator=part, module=_OTHERS, total=rest, **dict.fromkeys(_OF_OPERATORS, 0.0))
        for part, rest in _remainders(time, in_operators).items()
    ]


def module_rows(rows: list[OperatorRow]) -> list[OperatorRow]:
    """The rows of operators summed by module; the others stay as they are."""
    sums: dict[str, OperatorRow] = {}
    for row in rows:
        key = row.operator if row.module == _OTHERS else row.module
        before = sums.get(key)
        sums[key] = OperatorRow(
            operator="",
            module=key,
            **{
                name: getattr(row, name) + (getattr(before, name) if before else 0.0)
                for name in (*_OF_OPERATORS, "total")
            },
        )
    return list(sums.values())


def print_operators(console: Console, estimate: Estimate) -> None:
    """Two tables, by module and by operator, in ms."""
    rows = [row for row in operator_rows(estimate.time) if row.total]
    total = first(estimate.step_time)
    print_title(console, "Time of a step by module, ms")
    _print_rows(console, module_rows(rows), total, with_operator=False)
    print_title(console, "Time of a step by operator, ms")
    _print_rows(console, rows, total, with_operator=True)


def _remainders(time: StepTime, in_operators: Mapping[str, float]) -> dict[str, float]:
    parts = {part: first(seconds) for part, seconds in time.parts().items()}
    rest = {part: seconds - in_operators[part] for part, seconds in parts.items()}
    return {part: value for part, value in rest.items() if abs(value) > 1e-9 * parts[part]}


def _print_rows(
    console: Console, rows: list[OperatorRow], total: float, *, with_operator: bool
) -> None:
    wide = console.width >= 72
    names = [*_OF_OPERATORS, "total"] if wide else ["total"]
    table = make_table(console, gap=2 if wide else 1)
    table.add_column("operator" if with_operator else "module", no_wrap=True)
    for name in (*names, "%"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        label = row.operator if with_operator else row.module
        cells = [_milliseconds(getattr(row, name)) for name in names]
        table.add_row(label.replace("_", " "), *cells, f"{100 * row.total / total:.1f}")
    table.add_section()
    sums = [_milliseconds(sum(getattr(row, name) for row in rows)) for name in names]
    table.add_row("step", *sums, "100.0", style="bold")
    console.print(table)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}" if seconds else "-"
