"""The time of a step of inference by operator and by module, adding up to the step."""

from __future__ import annotations

from rich.console import Console

from planner.base.records import record
from planner.estimators.inference.step import InferenceStep
from planner.report.console import make_table, print_title
from planner.report.parts import first

_OTHERS = "all modules"
_PARTS = ("pipeline", "launch_wait", "transfer_wait", "overhead")


@record(kw_only=True)
class StepRow:
    """Seconds and FLOPs of one operator over all layers, or of a part that belongs to none."""

    operator: str
    module: str
    time: float
    flops: float


def step_rows(step: InferenceStep) -> list[StepRow]:
    """Rows that add up to the time of the first configuration's step."""
    sums: dict[tuple[str, str], list[float]] = {}
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            row = sums.setdefault((operator.module, operator.name), [0.0, 0.0])
            row[0] += count * first(operator.time)
            row[1] += count * first(operator.flops)
    rows = [
        StepRow(operator=name, module=module, time=time, flops=flops)
        for (module, name), (time, flops) in sums.items()
        if time
    ]
    others = {part: first(getattr(step, part)) for part in _PARTS}
    return rows + [
        StepRow(operator=part, module=_OTHERS, time=seconds, flops=0.0)
        for part, seconds in others.items()
        if seconds
    ]


def step_parts(step: InferenceStep) -> dict[str, float]:
    """Seconds of the first configuration's step: of each module, each exchange, and waits."""
    sums: dict[str, float] = {}
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            part = operator.module if operator.part == "compute" else operator.part
            sums[part] = sums.get(part, 0.0) + count * first(operator.time)
    return sums | {part: first(getattr(step, part)) for part in _PARTS}


def module_sums(rows: list[StepRow]) -> list[StepRow]:
    """The rows summed by module; those that belong to none stay as they are."""
    names = [row.operator if row.module == _OTHERS else row.module for row in rows]
    return [
        StepRow(
            operator=name,
            module=name,
            time=sum(row.time for row, own in zip(rows, names, strict=True) if own == name),
            flops=sum(row.flops for row, own in zip(rows, names, strict=True) if own == name),
        )
        for name in dict.fromkeys(names)
    ]


def print_steps(console: Console, steps: dict[str, InferenceStep]) -> None:
    """Tables by module and by operator, in ms; one column per kind of step."""
    tables = {name: step_rows(step) for name, step in steps.items()}
    totals = {name: first(step.total) for name, step in steps.items()}
    print_title(console, "Time of a step by module, ms")
    _print_rows(console, {n: module_sums(rows) for n, rows in tables.items()}, totals)
    print_title(console, "Time of a step by operator, ms")
    _print_rows(console, tables, totals)


def _print_rows(
    console: Console, tables: dict[str, list[StepRow]], totals: dict[str, float]
) -> None:
    table = make_table(console)
    table.add_column("part", no_wrap=True)
    for name in tables:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("%", justify="right", no_wrap=True)
    columns = {name: {row.operator: row.time for row in rows} for name, rows in tables.items()}
    names = dict.fromkeys(operator for times in columns.values() for operator in times)
    for operator in sorted(names, key=lambda name: name in _PARTS):
        cells = []
        for name, times in columns.items():
            seconds = times.get(operator, 0.0)
            share = f"{100 * seconds / totals[name]:.1f}" if seconds else "-"
            cells += [f"{1e3 * seconds:,.3f}" if seconds else "-", share]
        table.add_row(operator.replace("_", " "), *cells)
    table.add_section()
    sums = [word for name in tables for word in (f"{1e3 * totals[name]:,.3f}", "100.0")]
    table.add_row("step", *sums, style="bold")
    console.print(table)
