"""An explanation as people read it: what bounds a plan, what would change it, what it assumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from planner.base.units import GIB
from planner.explaining.assumptions import Assumption
from planner.explaining.explanation import MEMORY, Explanation
from planner.explaining.formulas import FORMULAS
from planner.explaining.numbers import seconds
from planner.explaining.sources import Sources
from planner.explaining.steps import ExplainedPart, ExplainedStep, keys_of
from planner.question.terms import term_of_column
from planner.report.against import print_difference
from planner.report.console import make_table, print_folded, print_title
from planner.report.load import load_line
from planner.report.overview import question_title
from planner.report.short import short_plan
from planner.report.told import label, told, told_alike
from planner.report.what_if import LEAST, print_sensitivities

_LONGEST = 10
_ASSUMED = 3
_NARROW = 60
_LARGE = 5e-3


def print_explanation(console: Console, explained: Explanation, *, is_full: bool = False) -> None:
    """The answer, what bounds it, the largest parts, what changes it; ``--full`` all of each."""
    _print_answer(console, explained)
    if explained.difference is not None:
        print_difference(console, explained.difference, is_full=is_full)
    if explained.difference is None or is_full:
        for step in explained.steps:
            _print_step(console, step, _LONGEST // len(explained.steps), is_full=is_full)
        _print_memory(console, explained, is_full=is_full)
        print_sensitivities(console, explained, is_full=is_full)
        _print_assumptions(console, explained, is_full=is_full)
    if is_full:
        _print_sources(console, explained)
    else:
        console.print()
        print_folded(console, "Formulas, sources and all that is left out: --full, --json FILE.")


def _print_answer(console: Console, explained: Explanation) -> None:
    plan, row = explained.plan, explained.row
    console.print(question_title(plan), style="bold")
    print_folded(console, short_plan(plan, row))
    if line := load_line(plan, explained.found.candidates):
        print_folded(console, line)
    ends = explained.seen.ends
    bound = explained.bound or {}
    for name in explained.columns[:2]:
        words = f"{label(name)} {told(name, row[name], ends.get(name))}"
        if name in bound and _is_better(name, bound[name], row[name]):
            words += f"; {told(name, bound[name])} if all reached its peak"
        print_folded(console, words)
    if not explained.steps:
        print_folded(console, "No operators explain its time: it is a flat share of the peak.")


def _is_better(column: str, bound: float, own: float) -> bool:
    """Whether the peaks help: a queue may be longer where what comes after it is faster."""
    term = term_of_column(column)
    is_low = term is not None and (term.better == "low" or term.type == "second")
    return bound < own if is_low else bound > own


def _print_step(console: Console, step: ExplainedStep, most: int, *, is_full: bool) -> None:
    name = "a step" if step.name == "step" else f"a {step.name} step"
    print_title(console, f"Time of {name}: {seconds(step.seconds)}")
    shares = [
        f"{kind} {_percent(time / step.seconds)}"
        for kind, time in step.bounds.items()
        if is_full or time >= _LARGE * step.seconds
    ]
    print_folded(console, f"Bound by {', '.join(shares)}")
    shown = step.parts if is_full else step.parts[:most]
    console.print(_parts_table(console, step, shown))
    rest = [part.part.seconds for part in step.parts[len(shown) :]]
    if rest:
        print_folded(console, f"and {len(rest)} more: {seconds(sum(rest))}")
    if is_full:
        _print_formulas(console, step)


def _parts_table(console: Console, step: ExplainedStep, shown: Sequence[ExplainedPart]) -> Table:
    """Parts with what bounds them; a narrow one leaves out shares."""
    is_narrow = console.width < _NARROW
    table = make_table(console, gap=1 if is_narrow else 2)
    table.add_column("longest parts", overflow="fold")
    for head in ("time",) if is_narrow else ("time", "%"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    if not is_narrow:
        table.add_column("of roofline", justify="right", no_wrap=True)
    for part in shown:
        share = f"{100 * part.part.seconds / step.seconds:.1f}"
        roofline = f"{100 * part.of_roofline:.0f} %" if part.part.done else "-"
        cells = [part.title, seconds(part.part.seconds), share, part.bound, roofline]
        table.add_row(*(cells[:2] + cells[3:4] if is_narrow else cells))
    return table


def _print_formulas(console: Console, step: ExplainedStep) -> None:
    """Each part with its work and the formula of it, in numbers."""
    print_title(console, "How these times come about")
    for part in step.parts:
        print_folded(console, f"{part.title}: {seconds(part.part.seconds)}{_terms(part)}")
        for line in _work_lines(part):
            print_folded(console, f"  {line}", indent="    ")


def _terms(part: ExplainedPart) -> str:
    if len(part.part.terms) < 2:
        return ""
    words = (f"{name.replace('_', ' ')} {seconds(time)}" for name, time in part.part.terms.items())
    return f" ({', '.join(words)})"


def _work_lines(part: ExplainedPart) -> Iterator[str]:
    if part.waits:
        yield part.waits
    for done in part.part.done:
        formula = FORMULAS[done.work.formula]
        times = f"{done.times:,.3g}" if done.times < 1000 else f"{done.times:,.0f}"
        yield f"{times} x {seconds(done.once)} {formula.title}: {formula.words(done)}"


def _print_memory(console: Console, explained: Explanation, *, is_full: bool) -> None:
    capacity = explained.plan.problem.setting.machine.gpu.allocatable_memory / GIB
    peak = float(explained.row[MEMORY[0]])
    print_title(console, f"Memory of the fullest GPU: {peak:,.1f} of {capacity:,.1f} GiB")
    parts = [
        f"{name.replace('_', ' ')} {amount:,.1f} ({_percent(amount / peak)})"
        for name, amount in [*explained.memory.items()][:_LONGEST]
        if amount / peak > (LEAST if is_full else _LARGE)
    ]
    print_folded(console, ", ".join(parts))


def _print_assumptions(console: Console, explained: Explanation, *, is_full: bool) -> None:
    found = explained.assumptions
    if not found:
        return
    print_title(console, "Assumed, what moves the answer most first")
    for one in found if is_full else found[:_ASSUMED]:
        print_folded(console, _assumed_line(one))
    if not is_full and len(found) > _ASSUMED:
        print_folded(console, f"and {len(found) - _ASSUMED} more")


def _assumed_line(one: Assumption) -> str:
    cells, unit = told_alike(one.column, [one.low, one.high])
    what = f"assumed {one.assumed}; tried {one.tried}" if one.assumed else f"tried {one.tried}"
    moves = " ".join(filter(None, (label(one.column), f"{cells[0]} to {cells[1]}", unit)))
    return f"{one.name} ({what}): {moves}"


def _print_sources(console: Console, explained: Explanation) -> None:
    """The numbers of specs that times rest on, each with its source; what formulas cite."""
    print_title(console, "Sources")
    by_source: dict[str, list[str]] = {}
    for key, source in keys_of(explained.steps, Sources(explained.plan)).items():
        by_source.setdefault(source or "not said", []).append(key)
    for source, keys in by_source.items():
        print_folded(console, f"{', '.join(keys)}: {source}")
    print_title(console, "Formulas")
    for title, place, references in dict.fromkeys(_formulas(explained.steps)):
        cited = f"; {' '.join(references)}" if references else ""
        print_folded(console, f"{title}: {place}{cited}")


def _formulas(steps: Iterable[ExplainedStep]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for done in (done for step in steps for part in step.parts for done in part.part.done):
        formula = FORMULAS[done.work.formula]
        yield formula.title, formula.place, tuple(formula.references)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
