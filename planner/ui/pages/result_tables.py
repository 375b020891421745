"""Headlines, figures and tables of results, and sections about their assumptions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base.csv_cells import Row, TypedRow
from planner.base.formatting import (
    format_count,
    format_gpus_of_row,
    format_parameter,
    format_probability,
    summarize_assumed,
)
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.explain.explanation import Explanation
from planner.errors import PlannerError
from planner.question.terms import columns_about, glossary, terms_about
from planner.show.output_blocks import (
    BEST,
    TIE,
    TOTAL,
    Bars,
    Block,
    Cell,
    Code,
    ColumnHead,
    Evidence,
    Figure,
    KeyValues,
    Page,
    RankingChart,
    RankingRow,
    Scatter,
    Section,
    Table,
    make_lines,
    text_table,
)
from planner.show.presenters.explanation import sensitivities_blocks
from planner.show.presenters.format_results import (
    Ends,
    common_scale,
    description_of,
    ends_in,
    format_result,
    format_scaled,
    label,
    layout_of,
    number_of,
    plan_of,
)  # fmt: skip
from planner.show.presenters.prices import format_price
from planner.show.presenters.row_tables import PLACEMENT_COLUMNS, Manifest, Rows
from planner.show.presenters.uncertainty import (
    EVIDENCE,
    FOR_ASSUMED,
    effect_texts,
    is_redundant,
    ties,
)
from planner.show.presenters.workload_details import details_of
from planner.show.reports import LeverEffect
from planner.show.theme import MEMORY_ORDER, TIME_ORDER, in_order, part_label
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import ResultWording, Workload

MOST_BARS = 6
"""Maximum number of plans in a chart of parts."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"

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
    if line := summarize_assumed([*map(str, facts.get("assumed") or ())]):
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


def manifest_section(manifest: Manifest, **more: str) -> Section:
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
    return format_parameter(value)


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


MOST_RANKS = 10
"""Choices of the chart on the first screen."""

_PEAK, _FIT_WORDS, _GPUS = "peak_memory_gib", "fit_probability", "num_gpus"
_PRICE, _RUNS = "price_per_gpu_hour_usd", "evidence_runs"
# Phrases for a time and a cost: a sentence has the first of each that the row has.
_TIMES: Mapping[str, str] = {
    "calendar_time_days": "takes {}",
    "time_to_train_days": "takes {}",
    "time_per_output_token_s": "gives a token every {}",
    "decode_latency_s": "gives a token every {}",
    "time_to_first_token_s": "answers in {}",
    "step_time_s": "takes {} a step",
}
_COSTS: Mapping[str, str] = {
    "cost_usd": "costs {}",
    "cost_per_million_tokens_usd": "costs {} USD per million output tokens",
    "cost_per_hour_usd": "costs {} an hour",
}
_FURTHER_COLUMNS = (
    "step_time_s", "time_to_first_token_s", "prefill_latency_s", "tokens_per_s_per_gpu", _PEAK,
)  # fmt: skip
_BATCHES = ("global_batch_size", "batch_size", "concurrency")
_FIGURES = 3


def headline(workload: Workload, row: Row, verb: str = "runs") -> str:
    """Return the answer as a sentence: the GPUs on which a model ``verb``, time and cost."""
    software = next((str(row[name]) for name in terms_about("software") if row.get(name)), "")
    contract = str(row.get("contract") or "")
    gpus = f"{format_gpus(row)}{f' {contract}' if contract not in ('', 'on-demand') else ''}"
    where = f"{row.get('model') or 'It'} {verb} on {gpus}"
    statements = [
        phrase.format(format_result(name, row[name]))
        for phrases in (_TIMES, _COSTS)
        for name, phrase in _first_with_number(row, phrases)
    ]
    if number_of(row, "output_tokens") == 0:  # prompts that are embedded or scored
        statements = [text.replace("output tokens", "input tokens") for text in statements]
    plan = f"{f' with {software}' if software else ''} ({layout_of(workload, row)})"
    return f"{where}{plan}: it {' and '.join(statements)}." if statements else f"{where}{plan}."


def _first_with_number(row: Row, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The first column with a number in the row, with its phrase; empty if there is none."""
    pairs = (item for item in names.items() if math.isfinite(number_of(row, item[0])))
    return [*pairs][:1]


def figures(
    row: Row,
    ends: Mapping[str, Ends],
    chance: float = math.nan,
    first: Sequence[str] = (),
) -> list[Figure]:
    """Return up to three numbers of a row: ``first``, or time and cost, and a probability.

    ``chance`` is the probability to keep all limits; NaN: unknown.
    """
    columns = [name for name in first if math.isfinite(number_of(row, name))]
    columns += [
        name
        for phrases in (_TIMES, _COSTS)
        for name, _ in _first_with_number(row, phrases)
        if not first
    ]
    chosen = [_figure(row, name, ends) for name in dict.fromkeys(columns)]
    if math.isfinite(chance):
        chosen.append(_chance("keeps the limits", chance, "of all limits together"))
    elif math.isfinite(number_of(row, _FIT_WORDS)):
        chosen.append(
            _chance("fits in memory", number_of(row, _FIT_WORDS), description_of(_FIT_WORDS))
        )
    for name in _FURTHER_COLUMNS:
        if len(chosen) < _FIGURES and math.isfinite(number_of(row, name)) and name not in columns:
            chosen.append(_figure(row, name, ends))
    return chosen[:_FIGURES]


def _figure(row: Row, name: str, ends: Mapping[str, Ends]) -> Figure:
    """Return the figure of a row's column: its value with unit and its 90 % interval."""
    text = format_result(name, row[name], ends.get(name))
    value, _, between = text.partition(" (")
    between = f"90 %: {between.removesuffix(')')}" if between else ""
    name_text = label(name)
    if name_text.startswith("USD"):
        name_text, value = "cost", f"{value} {name_text}"
    return Figure(name=name_text, text=value, between=between, title=description_of(name))


def _chance(name: str, share: float, title: str) -> Figure:
    """Return the figure of a probability (0 to 1) with its name and explanation."""
    return Figure(
        name=name,
        text=format_probability(share),
        between="of runs like this",
        title=title,
    )


def verb(workload: Workload) -> str:
    """The verb for the workload of a model: train, serve or run."""
    return workload.name if workload.name in ("train", "serve") else "run"


def evidence(basis: object, runs: object = None) -> Evidence | None:
    """Return the badge for the evidence of a prediction; None if the level is unknown.

    ``basis`` begins with the level of evidence; ``runs`` is the number of measured runs with this
    software on this GPU, None if unknown.
    """
    level, _, details = str(basis or "").partition(", ")
    if level not in EVIDENCE:
        return None
    count = f"{format_count(runs)} on this GPU" if isinstance(runs, int) and runs else ""
    proven = "not proven" if runs == 0 else count
    level_text, long = EVIDENCE[level]
    return Evidence(
        level=level, text=level_text, title="; ".join(filter(None, (long, details, proven)))
    )


def hints(workload: Workload, row: Row) -> dict[str, str]:
    """Return the main values of a row as text by label, such as GPUs, plan and memory."""
    if not row.get("feasible", True):
        return {"GPUs": format_gpus(row), "no plan": str(row.get("reason") or "")}
    if _GPUS not in row:  # a day, whose hours have plans
        return {name.replace("_", " "): format_result(name, value) for name, value in row.items()}
    details = {"GPUs": format_gpus(row), "plan": plan_of(workload, row)}
    details |= {label(name): format_parameter(row[name]) for name in _BATCHES if row.get(name)}
    for name in dict.fromkeys([*workload.wording.shown_columns, *_COSTS, _PEAK]):
        if math.isfinite(number_of(row, name)) and not is_redundant(name, row):
            details[label(name)] = format_result(name, row[name], ends_in(name, row))
    badge = evidence(row.get("basis"), row.get(_RUNS))
    if math.isfinite(number_of(row, _FIT_WORDS)):
        details["fits"] = format_probability(number_of(row, _FIT_WORDS))
    return details | {"price": _price_text(row), "evidence": badge.text if badge else ""}


def format_gpus(row: Row) -> str:
    """Return a row's GPUs as text, ``8 x h100``; the GPU alone if the number is unknown."""
    count = number_of(row, _GPUS)
    return format_gpus_of_row(row) if math.isfinite(count) else str(row["gpu"])


def price_lines(row: Row) -> list[str]:
    """Return the price of a GPU-hour as a sentence, in a list; empty if it is unknown."""
    return [f"Price: {text}."] if (text := _price_text(row)) else []


def _price_text(row: Row) -> str:
    """Return the price of a GPU-hour with offers, date and contract; "" if it is unknown."""
    price = format_price(row)
    contract = f", {row['contract']}" if row.get("contract") else ""
    return f"{price} per GPU-hour{contract}" if price else ""


def ranking(
    workload: Workload,
    rows: Sequence[Row],
    column: str,
    names: Callable[[TypedRow], str],
    caption: str,
    factor: float = 1.0,
    ends: Callable[[Row], Ends | None] | None = None,
) -> RankingChart | None:
    """Return a chart of the first rows, the answer first; None if no row has a value.

    Rows within ``factor`` of the answer are ties; ``ends`` returns the interval of a row.
    """
    ranked = [row for row in rows if math.isfinite(number_of(row, column))][:MOST_RANKS]
    if not ranked:
        return None
    tied = ties([number_of(row, column) for row in ranked], factor)
    bars = [
        RankingRow(
            label=names(row),
            value=number_of(row, column),
            ends=ends_in(column, row) if ends is None else ends(row),
            mark=BEST if index == 0 else TIE if tied[index] else "",
            hints=hints(workload, row),
        )
        for index, row in enumerate(ranked)
    ]
    return ranking_chart("answers", caption, column, bars)


def ranking_chart(name: str, caption: str, column: str, rows: Sequence[RankingRow]) -> RankingChart:
    """Return a chart of values and intervals in the unit of a column, in a unit that suits them.

    The text of each row begins with its value and its interval.
    """
    scale, unit = common_scale(column, [row.value for row in rows])
    quantity = label(column)
    if quantity.startswith("USD"):
        quantity, unit = "cost", quantity

    def scaled(row: RankingRow) -> RankingRow:
        text, ends = f"{format_scaled(column, scale, row.value)} {unit}".strip(), row.ends
        if ends is not None and all(map(math.isfinite, ends)):
            text += " ({} to {})".format(*(format_scaled(column, scale, end) for end in ends))
        return replace(
            row, value=row.value / scale, text=f"{text} {row.text}".strip(),
            ends=None if ends is None else (ends[0] / scale, ends[1] / scale),
        )  # fmt: skip

    unit_text = f"{quantity}, {unit}" if unit else quantity
    return RankingChart(name=name, caption=caption, unit=unit_text, rows=[*map(scaled, rows)])


def suggestion_ranking(row: Row, levers: Sequence[LeverEffect]) -> RankingChart | None:
    """Return a chart of an answer's cost with one input changed; None without suggestions."""
    changes = [lever for lever in levers if math.isfinite(lever.value)]
    columns = {change.column for change in changes}
    if len(columns) != 1 or not math.isfinite(number_of(row, column := columns.pop())):
        return None
    rows = [RankingRow(label="the answer", value=number_of(row, column), mark=BEST)]
    rows += [
        RankingRow(
            label=f"{change.lever}: {change.other}",
            value=change.value,
            text=f"({100 * change.change:+,.0f} %)",
            hints={change.lever: f"{change.other} instead of {change.current}"},
        )
        for change in changes
    ]
    quantity = "cost" if label(column).startswith("USD") else label(column)
    caption = f"The {quantity} with one change, each after a new search"
    return ranking_chart("levers", caption, column, rows)


def with_glossary(page: Page, workload: str) -> Page:
    """The page with a glossary of the terms on it."""
    return replace(page, glossary=_meanings(page, workload))


def _meanings(page: Page, workload: str) -> dict[str, str]:
    """Return the descriptions of the terms on a page, by their name on the page."""
    meanings: dict[str, str] = {}
    for term in glossary().values():
        if term.description and (not term.of or workload in term.of):
            meanings |= {n: term.description for n in (term.short, label(term.term)) if n}
    tables = [block for block in page.blocks if isinstance(block, Table)]
    heads = {head.text for table in tables for head in table.heads}
    plans = {
        cell.text
        for table in tables
        for index, head in enumerate(table.heads)
        if head.name == "plan"
        for cell in (row[index] for row in table.rows)
    }
    lines = [page.headline, *page.answer, *plans, *(figure.name for figure in page.figures)]
    words_on_page = {word.rstrip("0123456789") for line in lines for word in _split_words(line)}
    titles = {h.text: h.title for table in tables for h in table.heads if h.title and h.text}
    shown = {*heads, *words_on_page, *page.reached}
    return {n: meaning for n, meaning in {**titles, **meanings}.items() if n.strip() and n in shown}


def _split_words(line: str) -> list[str]:
    return line.replace(",", " ").replace(";", " ").replace("(", " ").replace(")", " ").split()
