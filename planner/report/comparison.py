"""Plans side by side on screen: only what differs, who wins where, what is a tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from planner.base import text
from planner.explaining.compared import ComparedPlans, Result
from planner.report.console import GOOD, TIE, make_table, print_folded, print_title
from planner.report.overview import question_title
from planner.report.short import short_plan
from planner.report.told import label, told

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""What things that are compared are called."""

_TERMS = 8


def print_comparison(console: Console, found: ComparedPlans, *, is_full: bool = False) -> None:
    """Which plans, in what they differ, what they reach, where their time goes, who wins."""
    for letter, seen in zip(LETTERS, found.seens, strict=False):
        words = f"{letter}  {seen.name}: {question_title(seen.plan)}, {_plan(seen)}"
        print_folded(console, words, indent="   ")
        if seen.reason:
            print_folded(console, f"   impossible: {seen.reason}", indent="   ")
    for name, reason in found.missing.items():
        print_folded(console, f"-  {name}: no plan: {reason}", indent="   ")
    _print_settings(console, found)
    _print_results(console, found)
    _print_parts(console, found, is_full=is_full)
    for line in verdicts(found):
        print_folded(console, line)


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


def _plan(seen: Any) -> str:
    return f"{seen.row[seen.plan.workload.profile_kind]}, {short_plan(seen.plan, seen.row)}"


def _print_settings(console: Console, found: ComparedPlans) -> None:
    if not found.settings:
        return
    console.print()
    table = _table(console, found, "differs")
    for name, values in found.settings.items():
        table.add_row(name.replace("_", " "), *(_word(value) for value in values))
    console.print(table)


def _print_results(console: Console, found: ComparedPlans) -> None:
    if not found.results:
        return
    console.print()
    table = _table(console, found, "predicted")
    for one in found.results:
        cells = [_cell(one, at) for at in range(len(one.values))]
        table.add_row(label(one.name), *cells)
    console.print(table)
    marks = ["* best"]
    if any(one.ties for one in found.results):
        marks.append("= ties with it")
    print_folded(console, f"{'; '.join(marks)}; in brackets: 9 of 10 runs like these")


def _cell(one: Result, at: int) -> Any:
    from rich.text import Text

    mark = "*" if at == one.best else "=" if at in one.ties else ""
    style = GOOD if mark == "*" else TIE if mark else ""
    return Text(f"{mark}{told(one.name, one.values[at], one.ends[at])}", style)


def _print_parts(console: Console, found: ComparedPlans, *, is_full: bool) -> None:
    """Where times and memories differ, in ms and GiB."""
    titles = {f"Time of the {kind}, ms": (terms, 1e3) for kind, terms in found.times.items()}
    for title, (parts, scale) in {**titles, "Memory, GiB": (found.memory, 1.0)}.items():
        shown = [*parts.items()] if is_full else [*parts.items()][:_TERMS]
        if not shown:
            continue
        print_title(console, title)
        table = _table(console, found, "part", justify="right")
        for name, values in shown:
            cells = [f"{scale * value:,.2f}" if value else "-" for value in values]
            if len(set(cells)) > 1:
                table.add_row(name.replace("_", " "), *cells)
        console.print(table)


def _table(console: Console, found: ComparedPlans, title: str, justify: Any = "left") -> Any:
    table = make_table(console, gap=1 if console.width < 72 else 2)
    table.add_column(title, overflow="fold")
    for letter in LETTERS[: len(found.seens)]:
        table.add_column(letter, overflow="fold", justify=justify)
    return table


def _word(value: Any) -> str:
    return "-" if value is None else text.value(value)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def comparison_dict(found: ComparedPlans) -> Mapping[str, Any]:
    """The comparison as JSON takes it, its sentences among it."""
    return {**found.to_dict(), "sentences": verdicts(found)}
