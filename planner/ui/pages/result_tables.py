"""Tables of rows of results, with one unit per column, and sections about their assumptions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import formatting
from planner.base.csv_cells import Row
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.explain.explanation import Explanation
from planner.errors import PlannerError
from planner.question.terms import columns_about, terms_about
from planner.show.output_blocks import (
    TOTAL,
    Bars,
    Block,
    Cell,
    Code,
    ColumnHead,
    KeyValues,
    Page,
    Scatter,
    Section,
    Table,
    make_lines,
    text_table,
)
from planner.show.presenters.explanation import sensitivities_blocks
from planner.show.presenters.format_results import (
    common_scale,
    format_scaled,
    label,
    number_of,
)
from planner.show.presenters.row_tables import PLACEMENT_COLUMNS, Rows
from planner.show.presenters.uncertainty import FOR_ASSUMED, effect_texts
from planner.show.presenters.workload_details import details_of
from planner.show.theme import MEMORY_ORDER, TIME_ORDER, in_order, part_label
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import ResultWording

MOST_BARS = 6
"""Maximum number of plans in a chart of parts."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_HEADS = {"gpu": "GPU", "prefill_gpu": "prefill GPU"}

# By name of a chart: prefix and suffix of its columns, their order, their sum, its caption.
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
# Columns with the prefix of parts that are no parts.
_OTHERS = ("memory_headroom_gib",)
_PREFIXES = ("time_to_", "time_per_")
_HIDDEN = "hidden_phases"
_MOST_PHASED = 2


def breakdowns(labels: Sequence[str], rows: Rows, prefix: str = "") -> list[Block]:
    """Return charts and tables of the time and the memory of rows by part.

    ``prefix`` makes their names unique on a page.
    """
    seen: Counter[str] = Counter()
    blocks, bars = list[Block](), list[str]()
    for bar_label in labels:  # labels of bars must be unique
        seen[bar_label] += 1
        bars.append(bar_label if seen[bar_label] == 1 else f"{bar_label} ({seen[bar_label]})")
    for kind, (begin, end, order, total, caption) in _KINDS.items():
        parts = _parts(rows, begin, end, order)
        if not parts:
            continue
        sums = [_number(number_of(row, total)) for row in rows]
        scale, unit = common_scale(total, sums)
        scaled = {n: [value / scale for value in values] for n, values in parts.items()}
        heads = [ColumnHead(name="part", text=f"part, {unit}")]
        heads += [
            ColumnHead(name=f"plan{n}", text=bar_label, numeric=True)
            for n, bar_label in enumerate(bars)
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
        blocks += [Bars(name=name, caption=caption, unit=unit, labels=bars, parts=scaled), table]
    return [*blocks, *_memory_by_phase(bars, rows, prefix)]


def _memory_by_phase(labels: Sequence[str], rows: Rows, prefix: str) -> Iterator[Bars]:
    """Yield a chart of the fullest GPU's memory in each phase for the first rows."""
    sizes = {
        f"{bar_label}, {phase.removesuffix('_memory_gib').replace('_', ' ')}": amount
        for bar_label, row in zip(labels[:_MOST_PHASED], rows, strict=False)
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
    """Return the values of all rows by part; a phase hidden by other work counts as 0."""
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
    values_by_part = {
        part: [
            0.0 if part in str(row.get(_HIDDEN)).split() else _number(number_of(row, columns[part]))
            for row in rows
        ]
        for part in in_order(columns, order)
    }
    return {part: values for part, values in values_by_part.items() if any(values)}


def _number(value: float) -> float:
    """The value, or 0 if it is not finite."""
    return value if math.isfinite(value) else 0.0


def front_chart(
    table: str, columns: Sequence[str], goals: Sequence[str], measured: str = ""
) -> list[Scatter]:
    """Return a scatter chart of two columns of a table: the goals, or else cost or memory.

    ``measured`` is the name of the table of measured points; "": none.
    """
    fallback_axes = ("cost_usd", "cost_per_million_tokens_usd", "peak_memory_gib")
    axes = [name for name in dict.fromkeys([*goals, *fallback_axes]) if name in columns]
    if len(axes) < 2:
        return []
    color_column = next(
        (name for name in PLACEMENT_COLUMNS if name in columns and name != "num_gpus"), ""
    )
    shape_column = next(
        (
            name
            for name in terms_about("run_conditions")
            if name in columns and name != color_column
        ),
        "",
    )
    return [
        Scatter(
            name=f"{table}_chart",
            caption="Each point is a row of the table below, bars are 90 % intervals"
            + "; hollow diamonds are published runs" * bool(measured),
            measured=measured,
            table=table,
            x=axes[1],
            y=axes[0],
            by=color_column,
            shape=shape_column,
        )
    ]


# Figures that are assumed, or defaults of the class of GPUs.
_WITHOUT_SOURCE = ("assumed", "default (")
_MOST_FIGURES = 6

_LOADED = {*terms_about("row_specs"), "cluster"} - {"model", "prefill_gpu"}


def assumptions(
    specs: Mapping[str, str], catalogue: Catalogue, manifest: Mapping[str, Any] | None = None
) -> Section:
    """Return a section of assumed values and of figures without source, by spec.

    ``specs`` are digests by kind and name; a digest is empty if the result has none.
    """
    facts = manifest or {}
    blocks: list[Block] = []
    if defaults := facts.get("defaults"):
        rows = [(name.replace("_", " "), str(value)) for name, value in defaults.items()]
        caption = "Not given, assumed"
        table = text_table(
            ("question", "chosen"), rows, text_columns=(0, 1), name="defaults", caption=caption
        )
        blocks.append(table)
    if line := formatting.summarize_assumed([*map(str, facts.get("assumed") or ())]):
        blocks.append(make_lines(f"No source, or default of the GPU's class: {line}."))
    if sources := [*_sources(specs, catalogue)]:
        heads, caption = ("spec", "figures", "source"), "Sources of the figures"
        table = text_table(heads, sources, text_columns=range(3), name="sources", caption=caption)
        blocks.append(replace(table, is_small=False, is_folded=True))
    return Section(title="What are the sources?", blocks=blocks)


def _sources(specs: Mapping[str, str], catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """Yield spec, figures and source for the numbers of all specs that did not change."""
    for title, digest in specs.items():
        kind, _, name = title.partition(" ")
        try:
            if kind == "model":
                yield title, "architecture", catalogue.load_model(name).source
            elif kind in _LOADED:
                loaded = getattr(catalogue, f"load_{kind}")(name)
                if digest and loaded.digest != digest:
                    yield title, "-", "changed since, or not from the folder of --specs"
                else:
                    yield from _by_source(title, loaded.provenance)
        except PlannerError:
            yield title, "-", "unknown spec: give its folder with --specs"


def _by_source(title: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield title, figures and source for each source of a spec; without unsourced figures."""
    figures_by_source: dict[str, list[str]] = {}
    for figure, source in origins.items():
        if not source.startswith(_WITHOUT_SOURCE):
            figures_by_source.setdefault(source, []).append(figure)
    for source, figures in figures_by_source.items():
        more = len(figures) - _MOST_FIGURES
        text = ", ".join(figures[:_MOST_FIGURES])
        yield title, f"{text} and {more} more" if more > 0 else text, source


def specs_of_rows(rows: Iterable[Row]) -> dict[str, str]:
    """Return the specs that rows name, with empty digests."""
    names = terms_about("row_specs")
    specs: dict[str, str] = {}
    for row in rows:
        for name in names:
            if row.get(name):
                specs[f"{name.removeprefix('prefill_')} {row[name]}"] = ""
    return specs


def used_specs(specs: Mapping[str, str], rows: Iterable[Row]) -> dict[str, str]:
    """Return the specs of a manifest that the rows use, and all of kinds that do not vary."""
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
    "configurations_predicted": "predicted",
    "configurations_feasible": "feasible",
}


def manifest_section(manifest: Mapping[str, object], **more: str) -> Section:
    """Return a section with the command, versions, counts and specs of a manifest."""
    pairs = {name: _format_entry(manifest[name]) for name in _PROVENANCE_KEYS if manifest.get(name)}
    pairs |= {
        count_label: _format_entry(manifest[name])
        for name, count_label in _COUNTS.items()
        if name in manifest
    }
    blocks: list[Block] = [KeyValues(pairs={**pairs, **more})]
    if command := manifest.get("command"):
        blocks.append(Code(text=str(command)))
    rejected = manifest.get("rejected_by")
    if isinstance(rejected, Mapping) and rejected:
        ordered = sorted(rejected.items(), key=lambda item: -number_of(rejected, item[0]))
        counts = {f"rejected: {name.replace('_', ' ')}": _format_entry(n) for name, n in ordered}
        blocks.append(KeyValues(pairs=counts))
    specs = manifest.get("specs")
    if isinstance(specs, Mapping) and specs:
        blocks.append(
            KeyValues(pairs={f"digest of {name}": str(digest) for name, digest in specs.items()})
        )
    return Section(title="How was this made?", blocks=blocks, is_folded=True)


def _format_entry(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return formatting.format_parameter(value)


CHANGES = "What would change the answer?"
"""Title of the section of assumptions and of changes of hardware or question."""

_NOTHING = "No assumption moves the answer by more than 10 %."
_OTHER_SPECS = "Specs changed since, so this page has no new prediction; run planner explain."


def facts_section(wording: ResultWording, facts: Sequence[SensitiveAssumption]) -> Section:
    """Return a section with a row per assumption: its value, those tried, and their effect."""
    rows = [
        (fact.name, fact.assumed, ", ".join(fact.tried), "; ".join(effect_texts(wording, fact)))
        for fact in facts
    ]
    heads, caption = ("unknown", "assumed", "tried", "effect"), "Not specified, but relevant"
    table = text_table(heads, rows, text_columns=range(len(heads)), name="facts", caption=caption)
    held = [make_lines(FOR_ASSUMED)] if any(fact.moved for fact in facts) else []
    return Section(title=CHANGES, blocks=[table if rows else make_lines(_NOTHING), *held])


def add_new_prediction(page: Page, pinned: SavedPlan) -> Page:
    """Return the page with a new prediction of the plan and the effects of small changes."""
    in_full, changes = list[Section](), list[Block]()
    try:
        plan = make_single_plan(pinned.request())
        if any(pinned.specs.get(name, digest) != digest for name, digest in plan.digests.items()):
            changes = [make_lines(_OTHER_SPECS)]
        else:
            evaluation, details = evaluate(plan), details_of(plan)
            speed = details.memory_and_speed(plan, evaluation.candidates)
            blocks = [*speed, *details.more(plan, evaluation)]
            in_full = [Section(title="What is the plan in full?", blocks=blocks, is_folded=True)]
            explained = Explanation(plan=plan, evaluation=evaluation)
            changes = [*sensitivities_blocks(explained, is_full=False)]
    except PlannerError as error:  # a file or a folder of specs is missing
        changes = [make_lines(f"Not predicted again: {error}")]
    sections: list[Section] = []
    for section in page.sections:
        if section.title == CHANGES:
            sections += [*in_full, replace(section, blocks=[*section.blocks, *changes])]
        else:
            sections.append(section)
    return replace(page, sections=sections)
