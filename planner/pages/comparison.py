"""The pages of what `planner compare` and `planner explain` wrote."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import text
from planner.errors import SpecError
from planner.pages.document import version_notes
from planner.pages.first import evidence, figures, with_meanings
from planner.pages.table import manifest_section
from planner.question.terms import term_of_column
from planner.show.page import (
    BEST,
    TIE,
    Bars,
    Block,
    Cell,
    Head,
    Page,
    Rank,
    Ranks,
    Section,
    Table,
    grid,
    said,
)  # fmt: skip
from planner.show.views.told import label, scale_alike, told, told_in

Written = Mapping[str, Any]

_DIFFERS = "In what do they differ?"
_MOST_PARTS = 12


def comparison_page(table: Any, where: str) -> Page:
    """The page of plans or specs side by side.

    Raises
    ------
    SpecError
        It lacks a part or is damaged.
    """
    try:
        page = _specs_page(table) if "specs" in table else _plans_page(table)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SpecError(f"{where}: is a damaged comparison ({error}).") from error
    manifest = table["manifest"]
    sections = [*page.sections, manifest_section(manifest)]
    question = [*page.question, *version_notes(str(manifest.get("version")))]
    page = replace(page, question=question, sections=sections)
    return with_meanings(page, str(table.get("plans", [{}])[0].get("workload", "")))


def _specs_page(table: Written) -> Page:
    """Of GPUs, models, software or folders of specs: the numbers that differ."""
    blocks: list[Block] = []
    for name, numbers in table["specs"].items():
        letters = _letters(max(map(len, numbers.values()), default=0))
        rows = [(n, *("-" if one is None else str(one) for one in v)) for n, v in numbers.items()]
        made = grid(("differs", *letters), rows, words=range(len(letters) + 1), name=f"of {name}")
        blocks.append(replace(made, caption=name))
    count = sum(map(len, table["specs"].values()))
    return Page(
        title="In what do these specs differ?",
        question=[],
        answer=[],
        headline=f"They differ in {text.count(count)} numbers." if count else "They do not differ.",
        sections=[Section(title=_DIFFERS, blocks=blocks)],
    )


def _plans_page(table: Written) -> Page:
    """Of plans: who wins, by how much, where they differ."""
    names = [f"{a}: {one['name']}" for a, one in zip(_letters(table), table["plans"], strict=True)]
    results = [one for one in table["results"] if _known(one["values"])]
    won = Counter(one["best"] for one in results)
    best = won.most_common(1)[0][0] if won else 0
    possible = [at for at, one in enumerate(table["plans"]) if not one["impossible"]]
    if results:
        of = [label(one["name"]) for one in results if one["best"] == best]
        answer = f"{names[best]} is best in {text.listed(of)}."
    else:
        answer = (
            "They do not differ." if len(possible) > 1 else "Fewer than two of them are possible."
        )
    row = {one["name"]: one["values"][best] for one in results}
    ends = {one["name"]: tuple(e) for one in results if (e := one["intervals"][best])}
    impossible = [(names[at], one["impossible"]) for at, one in enumerate(table["plans"])]
    missing = [*((n, why) for n, why in impossible if why), *table["without_plan"].items()]
    sections = [
        Section(title="What does each reach?", blocks=[_results(results, names)]),
        Section(title=_DIFFERS, blocks=[_settings(table["settings"], names)]),
        Section(title="Where do time and memory go?", blocks=[*_parts(table, names)]),
    ]
    if missing:
        no_plan = grid(("plan", "why not"), missing, words=(0, 1), name="no_plan")
        caption = f"{text.count(len(missing))} without a plan, and why"
        folded = replace(no_plan, caption=caption, is_folded=True)
        sections.append(Section(title="What is not possible, and why?", blocks=[folded]))
    asked = table["plans"][best]["asked"]
    return Page(
        title=f"Which of these {text.count(len(names))} plans is better?",
        question=[
            f"{name}: {_asked(one['asked'])}"
            for name, one in zip(names, table["plans"], strict=True)
        ],
        answer=[*map(str, table["sentences"])],
        subject=str(asked.get("model", "")),
        headline=answer,
        figures=figures(row, ends) if results else [],
        evidence=evidence(table["plans"][best].get("basis")),
        chart=_ranking(results, names, best) if results else None,
        sections=sections,
    )


def _letters(things: Any) -> str:
    count = things if isinstance(things, int) else len(things["plans"])
    return "".join(chr(ord("A") + at) for at in range(count))


def _known(values: Sequence[Any]) -> bool:
    return any(isinstance(one, float | int) and math.isfinite(one) for one in values)


def _asked(asked: Mapping[str, Any]) -> str:
    count = asked.get("num_gpus")
    software = asked.get("framework") or asked.get("engine") or ""
    where = f"{text.count(count)} x {asked.get('gpu')}" if count else str(asked.get("gpu"))
    return ", ".join(filter(None, [str(asked.get("model") or ""), where, str(software)]))


def _ranking(results: Sequence[Written], names: Sequence[str], best: int) -> Ranks:
    """The first of what the better plan is better in, of all plans."""
    one = next(one for one in results if one["best"] == best)
    column, values = one["name"], [math.nan if v is None else v for v in one["values"]]
    term, order = term_of_column(column), [at for at, v in enumerate(values) if math.isfinite(v)]
    is_high = term is not None and term.better == "high"
    order.sort(key=lambda at: (at != best, -values[at] if is_high else values[at]))
    scale, unit = scale_alike(column, values)
    rows = []
    for at in order:
        ends = one["intervals"][at]
        hints = {label(other["name"]): _told(other, at) for other in results}
        rows.append(
            Rank(
                label=names[at],
                value=values[at] / scale,
                text=f"{told_in(column, scale, values[at])} {unit}".strip(),
                ends=(ends[0] / scale, ends[1] / scale) if ends else None,
                mark=BEST if at == best else TIE if at in one["ties"] else "",
                hints=hints,
            )
        )
    caption = f"The {label(column)} of each, and 90 % intervals"
    unit = f"{label(column)}, {unit}" if unit else label(column)
    return Ranks(name="answers", caption=caption, unit=unit, rows=rows)


def _told(one: Written, at: int) -> str:
    value, ends = one["values"][at], one["intervals"][at]
    return "-" if value is None else told(one["name"], value, tuple(ends) if ends else None)


def _results(results: Sequence[Written], names: Sequence[str]) -> Table:
    """A row for each result, the better plan's cell marked."""
    rows = []
    for one in results:
        marks = [
            BEST if at == one["best"] else TIE * (at in one["ties"]) for at in range(len(names))
        ]
        cells = [Cell(text=_told(one, at), mark=mark) for at, mark in enumerate(marks)]
        rows.append([Cell(text=label(one["name"])), *cells])
    made = grid(("result", *names), rows, words=range(len(names) + 1), name="results")
    titles = ["", *([""] * len(names))]
    heads = [
        Head(name=h.name, text=h.text, title=t) for h, t in zip(made.heads, titles, strict=True)
    ]
    return replace(made, heads=heads, caption="In bold the best of each row, with 90 % intervals")


def _settings(settings: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Block:
    rows = [
        (name.replace("_", " "), *("-" if one is None else text.value(one) for one in values))
        for name, values in settings.items()
    ]
    if not rows:
        return said("In nothing that was asked of them.")
    return grid(("setting", *names), rows, words=range(len(names) + 1), name="settings")


def _parts(table: Written, names: Sequence[str]) -> Iterator[Block]:
    """Times of each step and the memory of the plans by part, as charts."""
    kinds = {f"Time of the {kind}": (parts, "s") for kind, parts in table["times_s"].items()}
    for caption, (parts, unit) in {
        **kinds,
        "Memory of the fullest GPU": (table["memory_gib"], "GiB"),
    }.items():
        known = {n: [one or 0.0 for one in values] for n, values in parts.items() if _known(values)}
        if known:
            name = caption.lower().replace(" ", "_")
            yield Bars(name=name, caption=f"{caption}: the parts in which they differ", unit=unit,
                       labels=names, parts=known)  # fmt: skip


def bounds_section(table: Written, where: str) -> Section:
    """What bounds each step of an explained plan, and its longest parts.

    Raises
    ------
    SpecError
        It is damaged.
    """
    blocks: list[Block] = []
    try:
        for step in table["steps"]:
            whole = step["time_s"] or 1.0
            bounds = sorted(step["bounds_s"].items(), key=lambda one: -one[1])
            by = [f"{name} {text.percent(time / whole)}" for name, time in bounds if time]
            rows = [
                [
                    one["operator"].replace("_", " "),
                    Cell(text=text.duration(one["time_s"]), number=one["time_s"]),
                    Cell(text=text.percent(one["share"]), number=one["share"]),
                    one["bound"],
                    "-" if one["of_roofline"] is None else text.percent(one["of_roofline"]),
                ]
                for one in step["operators"][:_MOST_PARTS]
            ]
            heads = ("part", "time", "share", "bound by", "of roofline")
            made = grid(heads, rows, words=(0, 3), name=f"bounds of {step['step']}")
            caption = f"The {step['step']} takes {text.duration(whole)}, bound by {text.listed(by)}"
            blocks.append(replace(made, caption=caption))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{where}: is a damaged explanation ({error}).") from error
    return Section(title="What bounds it?", blocks=blocks)
