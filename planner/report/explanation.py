"""An explanation as people read it: what bounds a plan, what would change it, what it assumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.explaining.assumptions import Assumption
from planner.explaining.explanation import MEMORY, Explanation
from planner.explaining.formulas import FORMULAS
from planner.explaining.numbers import seconds
from planner.explaining.sources import Sources
from planner.explaining.steps import ExplainedPart, ExplainedStep, keys_of
from planner.report.against import difference_blocks
from planner.report.load import load_line
from planner.report.overview import question_title
from planner.report.short import short_plan
from planner.report.told import label, told, told_alike
from planner.report.what_if import LEAST, sensitivities_blocks
from planner.show.page import (
    GAP,
    TOTAL,
    Block,
    Table,
    Title,
    grid,
    said,
)
from planner.terms import term_of_column
from planner.units import GIB

_LONGEST = 10
_ASSUMED = 3
_LARGE = 5e-3


def explanation_blocks(explained: Explanation, *, is_full: bool = False) -> Iterator[Block]:
    """The answer, what bounds it, the largest parts, what changes it; ``--full`` all of each."""
    yield from _answer_blocks(explained)
    if explained.difference is not None:
        yield from difference_blocks(explained.difference, is_full=is_full)
    if explained.difference is None or is_full:
        for step in explained.steps:
            yield from _step_blocks(step, _LONGEST // len(explained.steps), is_full=is_full)
        yield from _memory_blocks(explained, is_full=is_full)
        yield from sensitivities_blocks(explained, is_full=is_full)
        yield from _assumptions_blocks(explained, is_full=is_full)
    if is_full:
        yield from _sources_blocks(explained)
    else:
        yield GAP
        yield said("Formulas, sources and all that is left out: --full, --json FILE.")


def _answer_blocks(explained: Explanation) -> Iterator[Block]:
    plan, row = explained.plan, explained.row
    yield said(question_title(plan), mark=TOTAL, indent="")
    yield said(short_plan(plan, row))
    if line := load_line(plan, explained.found.candidates):
        yield said(line)
    ends = explained.seen.ends
    bound = explained.bound or {}
    for name in explained.columns[:2]:
        words = f"{label(name)} {told(name, row[name], ends.get(name))}"
        if name in bound and _is_better(name, bound[name], row[name]):
            words += f"; {told(name, bound[name])} if all reached its peak"
        yield said(words)
    if not explained.steps:
        yield said("No operators explain its time: it is a flat share of the peak.")


def _is_better(column: str, bound: float, own: float) -> bool:
    """Whether the peaks help: a queue may be longer where what comes after it is faster."""
    term = term_of_column(column)
    is_low = term is not None and (term.better == "low" or term.type == "second")
    return bound < own if is_low else bound > own


def _step_blocks(step: ExplainedStep, most: int, *, is_full: bool) -> Iterator[Block]:
    name = "a step" if step.name == "step" else f"a {step.name} step"
    yield Title(text=f"Time of {name}: {seconds(step.seconds)}")
    shares = [
        f"{kind} {_percent(time / step.seconds)}"
        for kind, time in step.bounds.items()
        if is_full or time >= _LARGE * step.seconds
    ]
    yield said(f"Bound by {', '.join(shares)}")
    shown = step.parts if is_full else step.parts[:most]
    yield _parts_table(step, shown)
    rest = [part.part.seconds for part in step.parts[len(shown) :]]
    if rest:
        yield said(f"and {len(rest)} more: {seconds(sum(rest))}")
    if is_full:
        yield from _formulas_blocks(step)


def _parts_table(step: ExplainedStep, shown: Sequence[ExplainedPart]) -> Table:
    """Parts with what bounds them; a narrow one leaves out shares."""
    rows = [
        (
            part.title,
            seconds(part.part.seconds),
            f"{100 * part.part.seconds / step.seconds:.1f}",
            part.bound,
            f"{100 * part.of_roofline:.0f} %" if part.part.done else "-",
        )
        for part in shown
    ]
    heads = ("longest parts", "time", "%", "bound by", "of roofline")
    return grid(heads, rows, words=(0, 3), late=(2, 4))


def _formulas_blocks(step: ExplainedStep) -> Iterator[Block]:
    """Each part with its work and the formula of it, in numbers."""
    yield Title(text="How these times come about")
    for part in step.parts:
        yield said(f"{part.title}: {seconds(part.part.seconds)}{_terms(part)}")
        for line in _work_lines(part):
            yield said(f"  {line}", indent="    ")


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


def _memory_blocks(explained: Explanation, *, is_full: bool) -> Iterator[Block]:
    capacity = explained.plan.problem.setting.machine.gpu.allocatable_memory / GIB
    peak = float(explained.row[MEMORY[0]])
    yield Title(text=f"Memory of the fullest GPU: {peak:,.1f} of {capacity:,.1f} GiB")
    parts = [
        f"{name.replace('_', ' ')} {amount:,.1f} ({_percent(amount / peak)})"
        for name, amount in [*explained.memory.items()][:_LONGEST]
        if amount / peak > (LEAST if is_full else _LARGE)
    ]
    yield said(", ".join(parts))


def _assumptions_blocks(explained: Explanation, *, is_full: bool) -> Iterator[Block]:
    found = explained.assumptions
    if not found:
        return
    yield Title(text="Assumed, what moves the answer most first")
    for one in found if is_full else found[:_ASSUMED]:
        yield said(_assumed_line(one))
    if not is_full and len(found) > _ASSUMED:
        yield said(f"and {len(found) - _ASSUMED} more")


def _assumed_line(one: Assumption) -> str:
    cells, unit = told_alike(one.column, [one.low, one.high])
    what = f"assumed {one.assumed}; tried {one.tried}" if one.assumed else f"tried {one.tried}"
    moves = " ".join(filter(None, (label(one.column), f"{cells[0]} to {cells[1]}", unit)))
    return f"{one.name} ({what}): {moves}"


def _sources_blocks(explained: Explanation) -> Iterator[Block]:
    """The numbers of specs that times rest on, each with its source; what formulas cite."""
    yield Title(text="Sources")
    by_source: dict[str, list[str]] = {}
    for key, source in keys_of(explained.steps, Sources(explained.plan)).items():
        by_source.setdefault(source or "not said", []).append(key)
    for source, keys in by_source.items():
        yield said(f"{', '.join(keys)}: {source}")
    yield Title(text="Formulas")
    for title, place, references in dict.fromkeys(_formulas(explained.steps)):
        cited = f"; {' '.join(references)}" if references else ""
        yield said(f"{title}: {place}{cited}")


def _formulas(steps: Iterable[ExplainedStep]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for done in (done for step in steps for part in step.parts for done in part.part.done):
        formula = FORMULAS[done.work.formula]
        yield formula.title, formula.place, tuple(formula.references)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
