"""Tables out of rows of results, and what the results rest on, with cells in one unit each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import formatting
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.explain.explanation import Explanation
from planner.errors import PlannerError, SpecError
from planner.optimize.result_columns import ends_of
from planner.question.parse_values import limit_column
from planner.question.terms import Term, columns_about, glossary, term_of_column, terms_about
from planner.show.output_blocks import (
    TOTAL,
    Bars,
    Block,
    Cell,
    Code,
    Column,
    ColumnHead,
    KeyValues,
    Page,
    Scatter,
    Section,
    Table,
    cells_of,
    make_lines,
    text_table,
)
from planner.show.presenters.explanation import sensitivities_blocks
from planner.show.presenters.format_results import (
    common_scale,
    format_scaled,
    label,
    layout_of,
    number_of,
)
from planner.show.presenters.pareto_front import settings_of
from planner.show.presenters.uncertainty import FOR_ASSUMED, effect_words
from planner.show.presenters.workload_details import details_of
from planner.show.theme import MEMORY_ORDER, TIME_ORDER, in_order, part_label
from planner.specs.catalogue import Catalogue
from planner.ui.pages.result_json import ResultDocument, numbers
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import ResultWording, Workload

Rows = Sequence[Mapping[str, object]]

MOST_ROWS = 1000
"""A page with more rows nobody reads, and few browsers sort."""

PLAN = "plan"
"""The column that tells a layout in a few words."""

PLACES = tuple(dict.fromkeys(["mode", *terms_about("system"), "num_gpus"]))
"""What says where a row runs."""

AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
"""What people call columns, where it is not their name."""

MOST_BARS = 6
"""Plans whose parts stand beside each other."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_LONGEST = 60
_HEADS = {"gpu": "GPU", "prefill_gpu": "prefill GPU"}

# By the name of a chart: what its columns begin and end with, their order, their sum, its caption.
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...], str, str]] = {
    "time": ("time_", "_s", TIME_ORDER, "step_time_s", "Where the time of a step goes"),
    "memory": (
        "memory_",
        "_gib",
        MEMORY_ORDER,
        "peak_memory_gib",
        "Where the memory of the fullest GPU goes",
    ),
}
# Columns that begin as parts do and are none.
_OTHERS = ("memory_headroom_gib",)
_PREFIXES = ("time_to_", "time_per_")
_HIDDEN = "hidden_phases"
_MOST_PHASED = 2


def shown_columns(
    workload: Workload, rows: Rows, goals: Iterable[str] = (), among: Iterable[str] = PLACES
) -> list[str]:
    """What differs between rows, what they reach, and how much memory they take."""
    wording, places = workload.wording, [*among]
    table = {
        name: [row.get(name) for row in rows]
        for name in dict.fromkeys(n for row in rows for n in row)
    }
    hidden = {*wording.degrees, "layout"} - {*places}
    differing = [
        name
        for name in settings_of(workload, places, table)
        if name not in hidden and len({*table[name]}) > 1
    ]
    settings = [name for name in differing if name not in places]
    reached = [*goals, *wording.results(()), *wording.shown_columns, _MEMORY, _FITS]
    known = [name for name in dict.fromkeys(reached) if any(map(_is_known, table.get(name, ())))]
    return [*(name for name in differing if name in places), PLAN, *settings, *known]


def make_table(
    name: str,
    caption: str,
    workload: Workload,
    rows: Rows,
    columns: Iterable[str],
    marked: Sequence[str] = (),
    notes: Sequence[str] = (),
    is_small: bool = False,
    first: Sequence[Column] = (),
) -> Table:
    """Rows under these columns, no more than `MOST_ROWS`; a note tells how many there are else.

    ``first`` are columns that a view has made.
    """
    told = [*notes]
    if len(rows) > MOST_ROWS:
        told.append(
            f"The first {formatting.format_count(MOST_ROWS)} of "
            f"{formatting.format_count(len(rows))} "
            "rows; the file of the "
            "result has all."
        )
        rows, marked = rows[:MOST_ROWS], marked[:MOST_ROWS]
    made = [
        *((_head(c.name, c.header or c.name, c.numeric), cells_of(c.cells)) for c in first),
        *(_column(workload, column, rows) for column in columns),
    ]
    return Table(
        name=name,
        caption=caption,
        heads=[head for head, _ in made],
        rows=[*zip(*(cells[: len(rows)] for _, cells in made), strict=True)],
        marked=marked,
        notes=told,
        is_small=is_small,
    )


def _column(workload: Workload, name: str, rows: Rows) -> tuple[ColumnHead, list[Cell]]:
    if name == PLAN:
        cells = [
            Cell(text=layout_of(workload, row) if row.get("feasible", True) else "-")
            for row in rows
        ]
        return ColumnHead(name=name, text=name, title="degrees of parallelism above 1"), cells
    values = [row.get(name) for row in rows]
    is_told = all(isinstance(value, float | int) or not _is_known(value) for value in values)
    if is_told and any(isinstance(value, float) and math.isfinite(value) for value in values):
        return _of_numbers(name, rows, values)
    is_numeric = all(
        (isinstance(value, int) and not isinstance(value, bool)) or not _is_known(value)
        for value in values
    )
    cells = [_of_word(value) for value in values]
    return _head(name, _short(name), is_numeric), cells


def _of_numbers(name: str, rows: Rows, values: Sequence[object]) -> tuple[ColumnHead, list[Cell]]:
    """Cells in the unit that suits them, with the ends of their intervals."""
    if name == _FITS:
        return _head(name, "fits", True), [_chance(number_of(row, name)) for row in rows]
    low, high = ends_of(name)
    scale, unit = common_scale(name, numbers(values))
    words = _short(name)
    head = words if not unit or unit in words.split() else f"{words} {unit}"
    cells = []
    for row in rows:
        value = number_of(row, name)
        if not math.isfinite(value):
            cells.append(Cell(text="-"))
            continue
        ends = [row.get(end) for end in (low, high)]
        known = numbers(ends)
        is_whole = len(known) == len(ends)
        between = " to ".join(format_scaled(name, scale, end) for end in known) if is_whole else ""
        cells.append(
            Cell(
                text=format_scaled(name, scale, value),
                more=between,
                number=value / scale,
                ends=(known[0] / scale, known[1] / scale) if is_whole else None,
            )
        )
    return _head(name, head, True), cells


def _chance(value: float) -> Cell:
    if math.isnan(value):
        return Cell(text="-")
    return Cell(text=formatting.format_probability(value), number=value)


def _of_word(value: object) -> Cell:
    if not _is_known(value):
        return Cell(text="-")
    words = formatting.format_parameter(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    number = float(value) if is_whole and isinstance(value, int) else None
    return Cell(text=words if len(words) <= _LONGEST else f"{words[:_LONGEST]}...", number=number)


def _head(name: str, words: str, numeric: bool) -> ColumnHead:
    term = term_of_column(name)
    title = term.description if term is not None else name.replace("_", " ")
    return ColumnHead(name=name, text=words, title=title, numeric=numeric)


def _short(name: str) -> str:
    """The short name of a parameter, the head of another column."""
    term: Term | None = glossary().get(name)
    if term is not None and term.short:
        return term.short
    limited = term_of_column(name)
    if limited is not None and name == limit_column(limited.term):
        return f"{label(limited.term)} limit"
    return _HEADS.get(name) or label(name)


def _is_known(value: object) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not math.isfinite(value))


def breakdowns(labels: Sequence[str], rows: Rows, prefix: str = "") -> list[Block]:
    """Charts of the time and the memory of rows by part, and the same as tables.

    ``prefix`` tells their names from those of other breakdowns of a page.
    """
    seen: Counter[str] = Counter()
    found, bars = list[Block](), list[str]()
    for words in labels:  # no two bars become one
        seen[words] += 1
        bars.append(words if seen[words] == 1 else f"{words} ({seen[words]})")
    for kind, (begin, end, order, total, caption) in _KINDS.items():
        parts = _parts(rows, begin, end, order)
        if not parts:
            continue
        sums = [_number(number_of(row, total)) for row in rows]
        scale, unit = common_scale(total, sums)
        scaled = {n: [value / scale for value in values] for n, values in parts.items()}
        heads = [ColumnHead(name="part", text=f"part, {unit}")]
        heads += [
            ColumnHead(name=f"plan{n}", text=words, numeric=True) for n, words in enumerate(bars)
        ]
        lines = {**{part_label(part): values for part, values in parts.items()}, label(total): sums}
        table = Table(
            name=f"{prefix}{kind}_parts",
            caption=f"{caption}, in numbers",
            heads=heads,
            rows=[
                [
                    Cell(text=n),
                    *(Cell(text=format_scaled(total, scale, v), number=v / scale) for v in vs),
                ]
                for n, vs in lines.items()
            ],
            marked=[*[""] * len(parts), TOTAL],
            is_small=True,
            is_folded=True,
        )
        name = f"{prefix}{kind}_bars"
        found += [Bars(name=name, caption=caption, unit=unit, labels=bars, parts=scaled), table]
    return [*found, *_memory_by_phase(bars, rows, prefix)]


def _memory_by_phase(labels: Sequence[str], rows: Rows, prefix: str) -> Iterator[Bars]:
    """The fullest GPU in each phase of the first rows, where rows have phases."""
    sizes = {
        f"{words}, {phase.removesuffix('_memory_gib').replace('_', ' ')}": amount
        for words, row in zip(labels[:_MOST_PHASED], rows, strict=False)
        for phase in columns_about("memory_phase")
        if (amount := _number(number_of(row, phase)) if phase in row else 0.0)
    }
    if sizes:
        yield Bars(
            name=f"{prefix}phase_bars",
            caption="Memory of the fullest GPU in each phase",
            unit="GiB",
            labels=[*sizes],
            parts={"memory": [*sizes.values()]},
        )


def _parts(rows: Rows, begin: str, end: str, order: tuple[str, ...]) -> dict[str, list[float]]:
    """The values of every part that some row has, by its name; what others hide takes nothing."""
    ends = (f"_low{end}", f"_high{end}", *_OTHERS)
    columns = {
        column.removeprefix(begin).removesuffix(end): column
        for row in rows
        for column in row
        if column.startswith(begin)
        and column.endswith(end)
        and not column.endswith(ends)
        and not column.startswith(_PREFIXES)
    }
    found = {
        part: [
            0.0 if part in str(row.get(_HIDDEN)).split() else _number(number_of(row, columns[part]))
            for row in rows
        ]
        for part in in_order(columns, order)
    }
    return {part: values for part, values in found.items() if any(values)}


def _number(value: float) -> float:
    """What is unknown takes nothing."""
    return value if math.isfinite(value) else 0.0


def front_chart(table: str, columns: Sequence[str], goals: Sequence[str]) -> list[Scatter]:
    """Two columns of a table against each other: at first the goals, else cost or memory."""
    others = ("cost_usd", "cost_per_million_tokens_usd", "peak_memory_gib")
    axes = [name for name in dict.fromkeys([*goals, *others]) if name in columns]
    if len(axes) < 2:
        return []
    by = next((name for name in PLACES if name in columns and name != "num_gpus"), "")
    shape = next(
        (name for name in terms_about("run_conditions") if name in columns and name != by), ""
    )
    return [
        Scatter(
            name=f"{table}_chart",
            caption="Each point is a row of the table below, bars are 90 % intervals",
            table=table,
            x=axes[1],
            y=axes[0],
            by=by,
            shape=shape,
        )
    ]


# A figure that nobody measured, or that its class of GPUs has.
_WITHOUT_SOURCE = ("assumed", "default (")
_MOST_FIGURES = 6

_LOADED = {*terms_about("row_specs"), "cluster"} - {"model", "prefill_gpu"}


def assumptions(
    specs: Mapping[str, str], catalogue: Catalogue, manifest: Mapping[str, Any] | None = None
) -> Section:
    """What nobody gave and what has no source, by a manifest, and the sources of ``specs``.

    These are digests by kind and name, empty where a result does not tell them.
    """
    known = manifest or {}
    blocks: list[Block] = []
    if defaults := known.get("defaults"):
        rows = [(name.replace("_", " "), str(value)) for name, value in defaults.items()]
        caption = "Not given, assumed"
        table = text_table(
            ("question", "chosen"), rows, words=(0, 1), name="defaults", caption=caption
        )
        blocks.append(table)
    if line := formatting.summarize_assumed([*map(str, known.get("assumed") or ())]):
        blocks.append(make_lines(f"Without a source, or a default of the GPU's class: {line}."))
    if sources := [*_sources(specs, catalogue)]:
        heads, caption = ("spec", "figures", "source"), "Where the figures come from"
        table = text_table(heads, sources, words=range(3), name="sources", caption=caption)
        blocks.append(replace(table, is_small=False, is_folded=True))
    return Section(title="What does it rest on?", blocks=blocks)


def _sources(specs: Mapping[str, str], catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """The spec, figures and source of every number of specs that are still as they were."""
    for title, digest in specs.items():
        kind, _, name = title.partition(" ")
        try:
            if kind == "model":
                yield title, "architecture", catalogue.load_model(name).source
            elif kind in _LOADED:
                loaded = getattr(catalogue, f"load_{kind}")(name)
                if digest and loaded.digest != digest:
                    yield title, "-", "has changed since, or is not that of --specs"
                else:
                    yield from _by_source(title, loaded.provenance)
        except PlannerError:
            yield title, "-", "is not among the specs here: give its folder with --specs"


def _by_source(title: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    found: dict[str, list[str]] = {}
    for figure, source in origins.items():
        if not source.startswith(_WITHOUT_SOURCE):
            found.setdefault(source, []).append(figure)
    for source, figures in found.items():
        more = len(figures) - _MOST_FIGURES
        words = ", ".join(figures[:_MOST_FIGURES])
        yield title, f"{words} and {more} more" if more > 0 else words, source


def specs_of_rows(rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The specs that rows name, of which no digest is known."""
    names = terms_about("row_specs")
    found: dict[str, str] = {}
    for row in rows:
        for name in names:
            if row.get(name):
                found[f"{name.removeprefix('prefill_')} {row[name]}"] = ""
    return found


def used_specs(specs: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Of the specs of a manifest those that the rows are of, and those that are no choice."""
    used = specs_of_rows(rows)
    choices = ("model", "gpu", *terms_about("software"))
    return {
        title: digest
        for title, digest in specs.items()
        if title in used or title.partition(" ")[0] not in choices
    }


_PROVENANCE_KEYS = (
    "version",
    "created",
    "driver",
    "trials",
    "seed",
    "sampler",
    "confidence",
    "objectives",
)
_COUNTS = {
    "configurations_evaluated": "configurations",
    "configurations_predicted": "of them predicted",
    "configurations_feasible": "feasible",
}


def manifest_section(manifest: Mapping[str, object], **more: str) -> Section:
    """The command, versions, counts and specs of a manifest, and what there is ``more``."""
    pairs = {name: _words(manifest[name]) for name in _PROVENANCE_KEYS if manifest.get(name)}
    pairs |= {words: _words(manifest[name]) for name, words in _COUNTS.items() if name in manifest}
    blocks: list[Block] = [KeyValues(pairs={**pairs, **more})]
    if command := manifest.get("command"):
        blocks.append(Code(text=str(command)))
    rejected = manifest.get("rejected_by")
    if isinstance(rejected, Mapping) and rejected:
        ordered = sorted(rejected.items(), key=lambda one: -sum(numbers([one[1]])))
        named = {f"rejected: {name.replace('_', ' ')}": _words(n) for name, n in ordered}
        blocks.append(KeyValues(pairs=named))
    specs = manifest.get("specs")
    if isinstance(specs, Mapping) and specs:
        blocks.append(
            KeyValues(pairs={f"digest of {name}": str(one) for name, one in specs.items()})
        )
    return Section(title="How was this made?", blocks=blocks, is_folded=True)


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return formatting.format_parameter(value)


CHANGES = "What would change the answer?"
"""The title of the section of open facts and of what other hardware or questions would give."""

_NOTHING = "No assumption moves the answer by more than 10 %."
_OTHER_SPECS = "Specs have changed since, so nothing is predicted again here: planner explain does."


def facts_of(document: ResultDocument) -> list[SensitiveAssumption]:
    """The facts of a document. Raises SpecError if they are damaged."""
    try:
        return [SensitiveAssumption.from_dict(one) for one in document.part("open_facts", list)]
    except (SpecError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"{document.where}: its part open_facts is damaged ({error}).") from error


def facts_section(wording: ResultWording, facts: Sequence[SensitiveAssumption]) -> Section:
    """What was assumed, what else was tried, and what that moves, a row for each fact."""
    rows = [
        (fact.name, fact.assumed, ", ".join(fact.tried), "; ".join(effect_words(wording, fact)))
        for fact in facts
    ]
    heads, caption = ("unknown", "assumed", "tried", "effect"), "Not given, and relevant"
    table = text_table(heads, rows, words=range(len(heads)), name="facts", caption=caption)
    held = [make_lines(FOR_ASSUMED)] if any(fact.moved for fact in facts) else []
    return Section(title=CHANGES, blocks=[table if rows else make_lines(_NOTHING), *held])


def predicted_anew(page: Page, pinned: SavedPlan) -> Page:
    """The page with all that the plan reaches, and what 10 % of each fact, a node or another length
    would change.
    """
    in_full, changes = list[Section](), list[Block]()
    try:
        plan = make_single_plan(pinned.request())
        if any(pinned.specs.get(name, digest) != digest for name, digest in plan.digests.items()):
            changes = [make_lines(_OTHER_SPECS)]
        else:
            found, details = evaluate(plan), details_of(plan)
            speed = details.memory_and_speed(plan, found.candidates)
            blocks = [*speed, *details.more(plan, found)]
            in_full = [Section(title="What is the plan in full?", blocks=blocks, is_folded=True)]
            explained = Explanation(plan=plan, evaluation=found)
            changes = [*sensitivities_blocks(explained, is_full=False)]
    except PlannerError as error:  # a file or a folder of specs is no longer there
        changes = [make_lines(f"Not predicted again: {error}")]
    sections: list[Section] = []
    for section in page.sections:
        if section.title == CHANGES:
            sections += [*in_full, replace(section, blocks=[*section.blocks, *changes])]
        else:
            sections.append(section)
    return replace(page, sections=sections)
