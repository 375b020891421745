"""Plans side by side on screen: only what differs, who wins where, what is a tie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from planner.base import text
from planner.decide.explaining.compared import ComparedPlans, Result
from planner.show.page import BEST, GAP, TIE, Block, Cell, Table, Title, grid, said
from planner.show.views.infeasible import impossible_words
from planner.show.views.overview import question_title
from planner.show.views.short import short_plan
from planner.show.views.told import label, told

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""What things that are compared are called."""

_TERMS = 8


def comparison_blocks(found: ComparedPlans, *, is_full: bool = False) -> Iterator[Block]:
    """Which plans, in what they differ, what they reach, where their time goes, who wins."""
    for letter, seen in zip(LETTERS, found.seens, strict=False):
        plan = f"{seen.row[seen.plan.workload.profile_kind]}, {short_plan(seen.plan, seen.row)}"
        words = f"{letter}  {seen.name}: {question_title(seen.plan)}, {plan}"
        yield said(words, indent="   ")
        if seen.reason:
            yield said(f"   impossible: {impossible_words(seen)}", indent="   ")
    for name, reason in found.missing.items():
        yield said(f"-  {name}: no plan: {reason}", indent="   ")
    yield from _settings_blocks(found)
    yield from _results_blocks(found)
    yield from _parts_blocks(found, is_full=is_full)
    for line in verdicts(found):
        yield said(line)


def verdicts(found: ComparedPlans) -> list[str]:
    """Who wins where, and what published runs do not tell apart, in sentences."""
    lines = []
    for at, names in found.wins.items():
        lines.append(f"{LETTERS[at]} is best in {_listed([label(name) for name in names])}.")
    for group, names in _tied(found).items():
        factor = max(found.tie_factor(group[0], at) for at in group[1:])
        others = _listed([LETTERS[at] for at in sorted(group)])
        lines.append(
            f"{others} tie in {_listed([label(name) for name in names])}: published runs do not "
            f"tell apart what is nearer than a factor of {factor:.2f}."
        )
    return lines or ["They do not differ."]


def _tied(found: ComparedPlans) -> dict[tuple[int, ...], list[str]]:
    """Columns by those that tie in them, the best first."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for one in found.results:
        if one.ties:
            groups.setdefault((one.best, *one.ties), []).append(one.name)
    return groups


def _settings_blocks(found: ComparedPlans) -> Iterator[Block]:
    if not found.settings:
        return
    yield GAP
    rows = [
        (name.replace("_", " "), *("-" if one is None else text.value(one) for one in values))
        for name, values in found.settings.items()
    ]
    yield _table(found, "differs", rows, has_words=True)


def _results_blocks(found: ComparedPlans) -> Iterator[Block]:
    if not found.results:
        return
    yield GAP
    rows = [
        (label(one.name), *(_cell(one, at) for at in range(len(one.values))))
        for one in found.results
    ]
    yield _table(found, "predicted", rows, has_words=True)
    marks = ["* best"]
    if any(one.ties for one in found.results):
        marks.append("= ties with it")
    yield said(f"{'; '.join(marks)}; in brackets: 9 of 10 runs like these")


def _cell(one: Result, at: int) -> Cell:
    sign, mark = ("*", BEST) if at == one.best else ("=", TIE) if at in one.ties else ("", "")
    return Cell(text=f"{sign}{told(one.name, one.values[at], one.ends[at])}", mark=mark)


def _parts_blocks(found: ComparedPlans, *, is_full: bool) -> Iterator[Block]:
    """Where times and memories differ, in ms and GiB."""
    titles = {f"Time of the {kind}, ms": (terms, 1e3) for kind, terms in found.times.items()}
    for title, (parts, scale) in {**titles, "Memory, GiB": (found.memory, 1.0)}.items():
        shown = [*parts.items()] if is_full else [*parts.items()][:_TERMS]
        if not shown:
            continue
        yield Title(text=title)
        rows = [
            (name.replace("_", " "), *cells)
            for name, values in shown
            if len({*(cells := [f"{scale * v:,.2f}" if v else "-" for v in values])}) > 1
        ]
        yield _table(found, "part", rows)


def _table(
    found: ComparedPlans, title: str, rows: Sequence[Sequence[Any]], *, has_words: bool = False
) -> Table:
    heads = (title, *LETTERS[: len(found.seens)])
    return grid(heads, rows, words=range(len(heads) * has_words or 1))


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def comparison_dict(found: ComparedPlans) -> dict[str, Any]:
    """The comparison as JSON takes it, its sentences among it."""
    return {**ComparedPlans.to_dict(found), "sentences": verdicts(found)}
