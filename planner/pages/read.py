"""From a file or directory to a page."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import text
from planner.base.cells import Value
from planner.base.reading import RESULT, read_json
from planner.decide.open_facts import widened
from planner.errors import InfeasibleError, PlannerError, SpecError
from planner.pages.assumptions import (
    assumptions,
    facts_of,
    facts_section,
    manifest_section,
    predicted_anew,
    specs_of_rows,
    used_specs,
)
from planner.pages.document import (
    ESTIMATE,
    SEARCH,
    SIZE,
    Document,
    Row,
    numbers,
    read_row,
    version_notes,
)
from planner.pages.table import MOST_ROWS, PLACES, PLAN, breakdowns, make_table, shown_columns
from planner.question.inputs import limit_column
from planner.question.terms import glossary, terms_about, terms_of
from planner.show.page import (
    BEST,
    TIE,
    Block,
    Cell,
    Column,
    Head,
    Page,
    Pairs,
    Scatter,
    Section,
    Table,
    said,
)  # fmt: skip
from planner.show.views.documents import add_estimate, object_text
from planner.show.views.front import objective_column, percentile_columns
from planner.show.views.infeasible import infeasible_message
from planner.show.views.load import start_pairs
from planner.show.views.search import compared_columns, fastest_line, no_plan_lines
from planner.show.views.sizes import (
    A_DAY,
    BY_COST,
    COSTS,
    HOURLY,
    by_cost,
    choice_columns,
    days_table,
    hour_columns,
)  # fmt: skip
from planner.show.views.sure import fits_words, reached_pairs, sure_lines, ties, told_names
from planner.show.views.told import Ends, ends_in, label, layout_of, number_of, plan_of, told
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import COST, MEASURES, TIME
from planner.sweeps.columns import PLACES as TERMS
from planner.sweeps.plan import SweepPlan
from planner.sweeps.results import Sweep
from planner.sweeps.screen import (
    BRACKETS,
    alike_lines,
    best_words,
    by_group,
    counts_lines,
    found_blocks,
    group_title,
    headlines,
    marks_lines,
    money_lines,
    nowhere_lines,
    plan_in_short,
)
from planner.sweeps.summary import Group, summarize
from planner.workloads.base import Workload
from planner.workloads.pinned import PinnedPlan
from planner.workloads.plan import evaluated, one_configuration, result_of
from planner.workloads.registry import workload_of


def sweep_page(sweep: Sweep, catalogue: Catalogue) -> Page:
    """The page of the directory of a sweep, finished or not.

    Raises
    ------
    SpecError
        It cannot be read, or a column is lacking.
    """
    plan, where = sweep.plan, str(sweep.folder)
    summary = summarize(sweep.rows(), plan)
    groups = summary.groups
    fronts = by_group(sweep.front_rows(), groups)
    first = itertools.islice(sweep.rows(), MOST_ROWS + 1)
    rows = [Row(dict(row.items()), where) for row in first]
    best = [row for group in groups for row in group.best.values()]
    numbers = {row["scenario"] for row in best}
    lines = [line for group in groups for line in _answers(group, is_named=len(groups) > 1)]
    sections = [
        Section(
            title=group_title(group),
            blocks=[
                *found_blocks(
                    group, fronts.get((group.work, group.model), ()), name=f"matrix{number}"
                ),
                *_parts(group, rows, number),
            ],
        )
        for number, group in enumerate(groups)
        if group.best
    ]
    if rows:
        sections.append(Section(title="All scenarios", blocks=_scenarios(rows, plan, numbers)))
    used = specs_of_rows(best[:1])
    how = {"version": sweep.version, "command": f"planner sweep show {where}"}
    asked = [*filter(None, [plan.description]), *counts_lines(sweep, summary)]
    return Page(
        title=plan.name,
        question=[*asked, *version_notes(sweep.version)],
        answer=lines or ["No scenario has a plan."],
        sure=[*alike_lines(plan, groups), BRACKETS, *marks_lines(groups)] if best else [],
        sections=[*sections, assumptions(used, catalogue), manifest_section(how)],
    )


def _answers(group: Group, *, is_named: bool) -> list[str]:
    """The best scenarios of a group, a sentence each."""
    before = f"{group_title(group)}: " if is_named else ""
    if not group.best:
        return [f"{before}no plan at all; {'; '.join(nowhere_lines(group))}"]
    same: dict[Value, list[str]] = {}
    for title, row in headlines(group):
        same.setdefault(row["scenario"], []).append(title)
    rows = {row["scenario"]: row for _, row in headlines(group)}
    words = {n: [*best_words(row).split("\n"), fits_words(row)] for n, row in rows.items()}
    best = [
        f"{before}{' and '.join(titles).capitalize()}: {'; '.join(filter(None, words[number]))}."
        for number, titles in same.items()
    ]
    return [*best, *(f"{before}{line}." for line in money_lines(group))]


def _parts(group: Group, rows: Sequence[Row], number: int) -> list[Block]:
    """Time and memory of the best scenarios."""
    best = {row["scenario"] for row in group.best.values()}
    chosen = [row for row in rows if row["scenario"] in best]
    labels = [f"{row['num_gpus']:,} x {row['gpu']}: {plan_in_short(row)}" for row in chosen]
    return breakdowns(labels, chosen, f"group{number}_") if chosen else []


def _scenarios(rows: Sequence[Row], plan: SweepPlan, best: Collection[object]) -> list[Block]:
    """Every scenario as a table, one for each workload, and cost against time as a chart."""
    blocks: list[Block] = []
    measures = [name for one in (COST, TIME) for name in MEASURES[one]]
    for workload in map(workload_of, dict.fromkeys(work.workload for work in plan.works)):
        those = [row for row in rows if row["workload"] == workload.name]
        if not those:
            continue
        goals = [name for name in measures if any(row.get(name) is not None for row in those)]
        varied = [name if name in those[0] else limit_column(name) for name in plan.varied]
        among = dict.fromkeys(["work", *varied, *TERMS, *PLACES])
        columns = ["scenario", *shown_columns(workload, those, goals, among)]
        if any(not row["feasible"] for row in those):
            columns.append("reason")
        name = f"scenarios_{workload.name}"
        table = make_table(
            name, f"Scenarios of {workload.name}", workload, those, columns,
            [BEST if row["scenario"] in best else "" for row in those],
            ["Marked: the best of each kind, as above."],
        )  # fmt: skip
        blocks += [*front_chart(name, columns, goals), table]
    return blocks


_OF_PLAN = {"workload", "answers", "parameters"}


def page_of(path: Path, specs: Path | None = None) -> Page:
    """The page of a result, a plan, or the directory of a sweep.

    Raises
    ------
    SpecError
        It cannot be read, is no result, or lacks a part or column.
    SearchSpaceError, InfeasibleError
        Of a plan: it is impossible now, or does not fit.
    """
    catalogue = Catalogue(specs)
    if os.path.isdir(path):
        return sweep_page(Sweep(path), catalogue)
    if path.suffix == ".toml":
        return plan_page(PinnedPlan.read(path), str(path), catalogue)
    table = read_json(path, RESULT)
    if isinstance(table, Mapping) and set(table) >= _OF_PLAN:
        return plan_page(PinnedPlan.from_dict(table, str(path)), str(path), catalogue)
    document = Document.of(table, str(path))
    page = document_page(document, catalogue)
    recommended = document.part("recommended", dict)
    if not recommended:
        return page
    return predicted_anew(page, PinnedPlan.from_dict(recommended, f"{path}: recommended"))


def document_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a search, a size or an estimate wrote."""
    return _PAGES[document.kind](document, catalogue)


def plan_page(pinned: PinnedPlan, where: str, catalogue: Catalogue) -> Page:
    """The page of a plan, estimated anew."""
    try:
        table = _estimated(pinned, where)
    except PlannerError as error:
        raise type(error)(f"{where}: {error}") from error
    page = document_page(Document.of(table, where), catalogue)
    notes = [line.replace("this page by", "estimated by") for line in version_notes(pinned.version)]
    if pinned.defaulted:
        notes.append(
            f"It lacks parameters, which have their defaults: {', '.join(pinned.defaulted)}."
        )
    return predicted_anew(replace(page, question=[*page.question, *notes]), pinned)


def _estimated(pinned: PinnedPlan, where: str) -> object:
    """What ``planner estimate --plan`` writes."""
    plan = one_configuration(pinned.request())
    found = evaluated(plan)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    command = ["estimate", "--plan", where]
    return json.loads(object_text(lambda files: add_estimate(files, plan, found, command)))


_MOST_BARS = 6
_AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
_FIRST = 3
_MEMORY = "peak_memory_gib"
_HOUR = "time"
_OF_DAY = ("hours", "base_contract", "hourly_contract", "cost_usd")
_GPU, _CONTRACT, _NUMBER = terms_about("priced")
_AMONG = (_GPU, _CONTRACT, "choice", _NUMBER)


def search_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a search wrote.

    Raises
    ------
    SpecError
        It lacks a part or a column.
    InfeasibleError
        The search recommends nothing.
    """
    row = document.row("recommended_row")
    if row is None:
        raise InfeasibleError(f"{document.where}: the search recommends no plan.")
    compared = _comparisons(document)
    goals = _goals(document, compared, row)
    factor = float(document.part("recommended_sure", dict).get("tie_factor") or 1.0)
    sections = [
        *([_alternatives(document, compared, goals)] if compared else []),
        _front(document, row, goals, factor),
        _times(document, row, compared),
    ]
    best, better = document.row("fastest_row"), ""
    if best is not None and goals:
        better = fastest_line(goals[0], row, best, plan_of(document.workload, best))
    page = _page(document, catalogue, row, goals, sections, "recommended_")
    return replace(page, answer=[*page.answer, *([f"{better}."] if better else [])])


def _page(
    document: Document,
    catalogue: Catalogue,
    row: Row,
    goals: Sequence[str],
    sections: Sequence[Section],
    of: str = "",
) -> Page:
    """The page of the plan of a row: what it reaches and how surely, and what that rests on.

    ``of`` is what names of parts begin with that are about it.
    """
    facts, manifest = facts_of(document), document.manifest
    sure, limits = document.part(f"{of}sure", dict), document.part(f"{of}limits", list)
    wording, ends = document.workload.wording, widened(_ends(row), facts)
    limited = percentile_columns(manifest.get("constraints") or (), row)
    names = told_names(wording, goals, limited, row, row)
    specs = used_specs(manifest.get("specs") or {}, [row])
    said = ", ".join(f"{name} {words}" for name, words in start_pairs(row).items())
    started = f"At its start the engine says: {said}." if said else ""
    return Page(
        title=str(manifest.get("model") or "Plan"),
        question=[*map(str, manifest.get("question") or ()), *document.notes],
        answer=[
            _sentence(document, row, goals, ends, "Recommended: " if of else ""),
            *filter(None, (document.part(f"{of}load", str), started)),
        ],
        reached=reached_pairs(names, row, ends, row[_MEMORY] + row["memory_headroom_gib"]),
        sure=sure_lines(str(sure.get("basis") or ""), limits, facts),
        sections=[
            *sections,
            facts_section(wording, facts),
            assumptions(specs, catalogue, manifest),
            manifest_section(manifest),
        ],
    )


Compared = Mapping[str, tuple[Sequence[Row], Mapping[str, str]]]


def _comparisons(document: Document) -> Compared:
    """For each outer axis the best plan of every value, and why others have none."""
    found = {}
    for axis, one in document.part("comparisons", dict).items():
        table = one if isinstance(one, Mapping) else {}
        rows, without = table.get("rows"), table.get("without_plan", {})
        if not isinstance(rows, list) or not isinstance(without, Mapping):
            raise SpecError(f"{document.where}: its comparison of {axis} is damaged.")
        read = [Row(read_row(document.where, row), document.row_name) for row in rows]
        found[str(axis)] = (read, without)
    return found


def _alternatives(document: Document, compared: Compared, goals: Sequence[str]) -> Section:
    """A table for each axis, the recommended plan first."""
    blocks: list[Block] = []
    objectives = document.manifest.get("objectives") or [""]
    term, workload = glossary().get(str(objectives[0])), document.workload
    for axis, (rows, without) in compared.items():
        words = _AXES.get(axis) or axis.replace("_", " ")
        if rows and term is not None:
            first = compared_columns(
                workload, compared, axis, rows, [number_of(row, "loss") for row in rows],
                column=goals[0], goal=term.term, sign=term.sign,
            )  # fmt: skip
            shown = {PLAN, *(column.name for column in first)}
            others = shown_columns(workload, rows, goals, dict.fromkeys([axis, *PLACES]))
            names = [name for name in others if name not in shown]
            caption, marks = f"The best plan of each {words}", [BEST]
            blocks.append(make_table(f"by_{axis}", caption, workload, rows, names, marks,
                                     is_small=True, first=first))  # fmt: skip
        why = [(value, str(reason).replace("_", " ")) for value, reason in without.items()]
        blocks.append(said(*no_plan_lines(why)))
    return Section(title="Alternatives", blocks=blocks)


def _front(document: Document, row: Row, goals: Sequence[str], factor: float) -> Section:
    """The front as a chart and a table, the recommended plan marked, or put before it."""
    workload, rows = document.workload, [*document.rows]
    tied = ties([number_of(one, goals[0] if goals else "") for one in rows], factor)
    best = [_is_same(workload, one, row) for one in rows]
    marks = [BEST if b else TIE if tie else "" for b, tie in zip(best, tied, strict=True)]
    if BEST not in marks:
        rows, marks = [row, *rows], [BEST, *marks]
    columns = shown_columns(workload, rows, goals)
    notes = ["Marked: the recommended plan."]
    if TIE in marks:
        notes.append(f"~ tied with the best within x{factor:.2f}.")
    names = " and ".join(label(name) for name in goals)
    table = make_table("front", f"No plan beats these in {names}", workload, rows, columns, marks,
                       notes)  # fmt: skip
    return Section(title="The front", blocks=[*front_chart(table.name, columns, goals), table])


def front_chart(table: str, columns: Sequence[str], goals: Sequence[str]) -> list[Scatter]:
    """Two columns of a table against each other: at first the goals, else cost or memory."""
    others = ("cost_usd", "cost_per_million_tokens_usd", "peak_memory_gib")
    axes = [name for name in dict.fromkeys([*goals, *others]) if name in columns]
    if len(axes) < 2:
        return []
    by = next((name for name in PLACES if name in columns and name != "num_gpus"), "")
    return [
        Scatter(
            name=f"{table}_chart",
            caption="Each point is a row of the table below, bars are 90 % intervals",
            table=table,
            x=axes[1],
            y=axes[0],
            by=by,
            label=PLAN,
        )
    ]


def _is_same(workload: Workload, one: Row, other: Row) -> bool:
    names = [*PLACES, *terms_of(workload.name, "parameter", "pool")]
    return all(one.get(name) == other.get(name) for name in names)


def _times(document: Document, row: Row, compared: Compared) -> Section:
    """Time and memory of the recommended plan, the best one, and the best of each alternative."""
    workload, fastest = document.workload, document.row("fastest_row")
    named: list[tuple[str, Row]] = [("recommended", row)]
    if fastest is not None and not _is_same(workload, fastest, row):
        named.append(("best", fastest))
    for axis, (rows, _) in compared.items():
        named += [(str(one[axis]), one) for one in rows[1:]]
    labels = [f"{name}: {layout_of(workload, one)}" for name, one in named[:_MOST_BARS]]
    return Section(
        title="Time and memory", blocks=breakdowns(labels, [one for _, one in named[:_MOST_BARS]])
    )


def _goals(document: Document, axes: Collection[str], row: Row) -> list[str]:
    """The columns of the objectives."""
    names = document.manifest.get("objectives") or []
    wording = document.workload.wording
    return [objective_column(wording, axes, str(name), row) for name in names]


def _ends(row: Row) -> dict[str, Ends]:
    """The ends of all intervals of a row by column."""
    found = {column: ends_in(column, row) for column in row}
    return {column: ends for column, ends in found.items() if ends is not None}


def _sentence(
    document: Document, row: Row, goals: Sequence[str], ends: Mapping[str, Ends], before: str
) -> str:
    """The plan and the first of what it reaches, each with its interval, and how surely it fits."""
    names = told_names(document.workload.wording, goals, (), row, row)
    costs = [name for name in names if name.endswith("_usd")]
    known = [name for name in dict.fromkeys([*names[:_FIRST], *costs]) if numbers([row[name]])]
    words = [f"{label(name)} {told(name, row[name], ends.get(name))}" for name in known]
    where = f"{text.count(row['num_gpus'])} x {row['gpu']}"
    told_of = [f"{before}{where}, {plan_of(document.workload, row)}", *words, fits_words(row)]
    return f"{'; '.join(filter(None, told_of))}."


def estimate_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what an estimate wrote.

    Raises
    ------
    SpecError
        It lacks a part or a column.
    InfeasibleError
        The configuration is rejected.
    """
    row, workload = document.rows[0], document.workload
    if rejected := row.get("rejected_by"):
        raise InfeasibleError(f"{document.where}: the configuration is rejected by {rejected}.")
    operators = document.part("operators", list)
    settings = {  # every parameter that is not at its plain value
        label(name): text.value(row[name])
        for name, term in terms_of(workload.name, "parameter", "derived", "pool").items()
        if row.get(name) is not None and row[name] != term.plain
    }
    sections = [
        Section(title="The configuration", blocks=[Pairs(pairs=settings)]),
        Section(title="Time and memory", blocks=breakdowns([layout_of(workload, row)], [row])),
        *([_operators(document.where, operators)] if operators else []),
    ]
    return _page(document, catalogue, row, _goals(document, (), row), sections)


def _operators(where: str, operators: Sequence[object]) -> Section:
    """The time of every operator, the longest first."""
    rows = [one for one in operators if isinstance(one, Mapping)]
    if len(rows) < len(operators):
        raise SpecError(f"{where}: its part operators is damaged.")
    names = [*dict.fromkeys(name for one in rows for name in one)]
    heads = [
        Head(name=name, text=words + " ms" * is_time, numeric=is_time)
        for name in names
        for words, is_time in [(name.removesuffix("_s").replace("_", " "), name.endswith("_s"))]
    ]
    cells = [[_cell(name, one.get(name)) for name in names] for one in rows]
    table = Table(name="operators", caption="Time by operator, of a step", heads=heads, rows=cells)
    return Section(title="Operators", blocks=[table])


def _cell(name: str, value: object) -> Cell:
    if isinstance(value, float) and name.endswith("_s"):
        return Cell(text=f"{1e3 * value:,.2f}", number=1e3 * value)
    number = float(value) if isinstance(value, int | float) else None
    return Cell(text="-" if value is None else str(value), number=number)


def sizes_page(document: Document, catalogue: Catalogue) -> Page:
    """The page of what a size wrote.

    Raises
    ------
    SpecError
        It lacks a column.
    """
    found = [row for row in document.rows if row.get("feasible", True)]
    others = [row for row in document.rows if not row.get("feasible", True)]
    rows, days = by_cost(found), document.part("days", list)
    answer, notes = document.part("answer", list), document.part("notes", list)
    sections = []
    if rows and _HOUR in rows[0]:
        blocks = _day(document, found, days)
        sections.append(Section(title="The day", blocks=blocks))
    elif rows:
        sections.append(Section(title="The choices", blocks=_choices(document.workload, rows)))
    if others:
        lines = (f"{_named(row)}: {row.get('reason') or 'no plan'}" for row in others)
        sections.append(Section(title="Not possible", blocks=[said(*lines)]))
    if notes:
        sections.append(Section(title="Notes", blocks=[said(*map(str, notes))]))
    asked = document.part("question", list)
    return Page(
        title=str(document.manifest.get("model") or "Size"),
        question=[*map(str, asked), *document.notes],
        answer=[*map(str, answer)] or ["No GPU does."],
        sections=[
            *sections,
            assumptions(specs_of_rows(rows[:1]), catalogue),
            manifest_section(document.manifest),
        ],
    )


def _day(document: Document, rows: Sequence[Row], days: Sequence[object]) -> list[Block]:
    """What a day takes on each GPU, and every hour; files of older versions have hours alone."""
    gpus = [str(row["gpu"]) for row in rows]
    columns = hour_columns(rows)
    if len(set(gpus)) > 1:
        columns.insert(0, Column("gpu", gpus, "GPU", numeric=False))
    others = [name for name in rows[0] if name in _OF_DAY]
    hours = make_table("hours", HOURLY, document.workload, rows, others, first=columns)
    if not days:
        return [hours]
    read = [Row(read_row(document.where, day), document.row_name) for day in days]
    table = replace(days_table(read), name="days", caption=A_DAY, is_small=True)
    return [table, said(*map(str, document.part("day", list))), hours]


def _choices(workload: Workload, rows: Sequence[Row]) -> list[Block]:
    """Every choice as a table, and cost against what else matters as a chart."""
    first = [*choice_columns(rows)]
    margins = [name for name in rows[0] if name.startswith("spare_")]
    costs = [name for name in COSTS if name in rows[0]]
    shown = {PLAN, *(column.name for column in first)}
    others = shown_columns(workload, rows, costs, dict.fromkeys([*_AMONG, *PLACES]))
    names = [name for name in dict.fromkeys([*others, *margins]) if name not in shown]
    marks = [BEST if number == 0 else "" for number in range(len(rows))]
    table = make_table("choices", BY_COST, workload, rows, names, marks, first=first)
    labels = [f"{row['num_gpus']:,} x {_named(row)}: {layout_of(workload, row)}" for row in rows]
    bars = breakdowns(labels[:_MOST_BARS], rows[:_MOST_BARS])
    axes = [head.name for head in table.heads]
    return [*front_chart("choices", axes, [*costs[:1], "num_gpus"]), table, *bars]


def _named(row: Row) -> str:
    """The GPU of a row and on what terms it is had."""
    return f"{row.get('gpu', '')} {row.get('contract') or ''}".strip()


_PAGES = {SEARCH: search_page, ESTIMATE: estimate_page, SIZE: sizes_page}
