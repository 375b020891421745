"""The first screen of a page: the answer as a sentence, three numbers, their evidence, a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import formatting
from planner.question.terms import glossary, terms_about
from planner.show.output_blocks import (
    BEST,
    TIE,
    Evidence,
    Figure,
    Page,
    RankingChart,
    RankingRow,
    Table,
)
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
from planner.show.presenters.uncertainty import EVIDENCE, is_redundant, ties
from planner.show.reports import LeverEffect
from planner.workloads.workload import Workload

AnyRow = Mapping[str, Any]

MOST_RANKS = 10
"""Choices of the chart on the first screen."""

_MEMORY, _FITS, _GPUS = "peak_memory_gib", "fit_probability", "num_gpus"
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
    "step_time_s", "time_to_first_token_s", "prefill_latency_s", "tokens_per_s_per_gpu", _MEMORY,
)  # fmt: skip
_BATCHES = ("global_batch_size", "batch_size", "concurrency")
_FIGURES = 3


def headline(workload: Workload, row: AnyRow, verb: str = "runs") -> str:
    """Return the answer as a sentence: the GPUs on which a model ``verb``, time and cost."""
    software = next((str(row[name]) for name in terms_about("software") if row.get(name)), "")
    contract = str(row.get("contract") or "")
    gpus = f"{_format_gpus(row)}{f' {contract}' if contract not in ('', 'on-demand') else ''}"
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


def _first_with_number(row: AnyRow, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The first column with a number in the row, with its phrase; empty if there is none."""
    pairs = (item for item in names.items() if math.isfinite(number_of(row, item[0])))
    return [*pairs][:1]


def figures(
    row: AnyRow,
    ends: Mapping[str, Ends],
    chances: Iterable[float | None] = (),
    first: Sequence[str] = (),
) -> list[Figure]:
    """Return up to three numbers of a row: ``first``, or time and cost, and a probability.

    ``chances`` are the probabilities to keep each limit; None: unknown.
    """
    columns = [name for name in first if math.isfinite(number_of(row, name))]
    columns += [
        name
        for phrases in (_TIMES, _COSTS)
        for name, _ in _first_with_number(row, phrases)
        if not first
    ]
    chosen = [_figure(row, name, ends) for name in dict.fromkeys(columns)]
    finite = [chance for chance in chances if chance is not None and math.isfinite(chance)]
    if finite:
        chosen.append(_chance("keeps the limits", min(finite), "of the least likely one"))
    elif math.isfinite(number_of(row, _FITS)):
        chosen.append(_chance("fits in memory", number_of(row, _FITS), description_of(_FITS)))
    for name in _FURTHER_COLUMNS:
        if len(chosen) < _FIGURES and math.isfinite(number_of(row, name)) and name not in columns:
            chosen.append(_figure(row, name, ends))
    return chosen[:_FIGURES]


def _figure(row: AnyRow, name: str, ends: Mapping[str, Ends]) -> Figure:
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
        text=formatting.format_probability(share),
        between="of runs like this",
        title=title,
    )


def verb(workload: Workload) -> str:
    """The verb for the workload of a model: train, serve or run."""
    return workload.name if workload.name in ("train", "serve") else "run"


def ends_of_row(row: AnyRow) -> dict[str, Ends]:
    """The 90 % intervals of a row by column."""
    intervals = {column: ends_in(column, row) for column in row}
    return {column: ends for column, ends in intervals.items() if ends is not None}


def evidence(basis: object, runs: object = None) -> Evidence | None:
    """Return the badge for the evidence of a prediction; None if the level is unknown.

    ``basis`` begins with the level of evidence; ``runs`` is the number of measured runs with this
    software on this GPU, None if unknown.
    """
    level, _, details = str(basis or "").partition(", ")
    if level not in EVIDENCE:
        return None
    count = f"{formatting.format_count(runs)} on this GPU" if isinstance(runs, int) and runs else ""
    proven = "not proven" if runs == 0 else count
    level_text, long = EVIDENCE[level]
    return Evidence(
        level=level, text=level_text, title="; ".join(filter(None, (long, details, proven)))
    )


def hints(workload: Workload, row: AnyRow) -> dict[str, str]:
    """Return the main values of a row as text by label, such as GPUs, plan and memory."""
    if not row.get("feasible", True):
        return {"GPUs": _format_gpus(row), "no plan": str(row.get("reason") or "")}
    if _GPUS not in row:  # a day, whose hours have plans
        return {name.replace("_", " "): format_result(name, value) for name, value in row.items()}
    details = {"GPUs": _format_gpus(row), "plan": plan_of(workload, row)}
    details |= {
        label(name): formatting.format_parameter(row[name]) for name in _BATCHES if row.get(name)
    }
    for name in dict.fromkeys([*workload.wording.shown_columns, *_COSTS, _MEMORY]):
        if math.isfinite(number_of(row, name)) and not is_redundant(name, row):
            details[label(name)] = format_result(name, row[name], ends_in(name, row))
    badge = evidence(row.get("basis"), row.get(_RUNS))
    if math.isfinite(number_of(row, _FITS)):
        details["fits"] = formatting.format_probability(number_of(row, _FITS))
    return details | {"price": format_price(row), "evidence": badge.text if badge else ""}


def _format_gpus(row: AnyRow) -> str:
    """Return a row's GPUs as text, ``8 x h100``; the GPU alone if the number is unknown."""
    count = number_of(row, _GPUS)
    return formatting.format_gpus_of_row(row) if math.isfinite(count) else str(row["gpu"])


def format_price(row: AnyRow) -> str:
    """Return the price of a GPU-hour with contract, provider and date; "" if unknown."""
    price, ends = number_of(row, _PRICE), ends_in(_PRICE, row)
    if not math.isfinite(price):
        return ""
    parts = [f"{formatting.format_significant(price)} USD per GPU-hour"]
    if ends is not None and all(map(math.isfinite, ends)):
        parts[0] += (
            f" ({formatting.format_significant(ends[0])} to "
            f"{formatting.format_significant(ends[1])})"
        )
    offers = number_of(row, "price_offers")
    of_many = f"median of {formatting.format_count(offers)} offers" if offers > 1 else ""
    parts += [str(row.get(name) or "") for name in ("contract", "provider")]
    return ", ".join(filter(None, [*parts, of_many, str(row.get("price_date") or "")]))


def ranking(
    workload: Workload,
    rows: Sequence[AnyRow],
    column: str,
    names: Callable[[AnyRow], str],
    caption: str,
    factor: float = 1.0,
    ends: Callable[[AnyRow], Ends | None] | None = None,
) -> RankingChart | None:
    """Return a chart of the first rows, the answer first; None if no row has a value.

    Rows within ``factor`` of the answer are ties; ``ends`` returns the interval of a row.
    """
    ranked = [row for row in rows if math.isfinite(number_of(row, column))][:MOST_RANKS]
    if not ranked:
        return None
    values = [number_of(row, column) for row in ranked]
    scale, unit = common_scale(column, values)
    tied = ties(values, factor)
    quantity, unit = (
        ("cost", label(column)) if label(column).startswith("USD") else (label(column), unit)
    )
    ranking_rows = []
    for index, (row, value) in enumerate(zip(ranked, values, strict=True)):
        between = ends_in(column, row) if ends is None else ends(row)
        text = f"{format_scaled(column, scale, value)} {unit}".strip()
        if between is not None and all(map(math.isfinite, between)):
            low, high = (format_scaled(column, scale, end) for end in between)
            text += f" ({low} to {high})"
        ranking_rows.append(
            RankingRow(
                label=names(row),
                value=value / scale,
                text=text,
                ends=None if between is None else (between[0] / scale, between[1] / scale),
                mark=BEST if index == 0 else TIE if tied[index] else "",
                hints=hints(workload, row),
            )
        )
    return RankingChart(
        name="answers",
        caption=caption,
        unit=f"{quantity}, {unit}" if unit else quantity,
        rows=ranking_rows,
    )


def suggestion_ranking(row: AnyRow, levers: Sequence[LeverEffect]) -> RankingChart | None:
    """Return a chart of an answer's cost with one input changed; None without suggestions."""
    changes = [lever for lever in levers if math.isfinite(lever.value)]
    columns = {change.column for change in changes}
    if len(columns) != 1 or not math.isfinite(number_of(row, column := columns.pop())):
        return None
    values = [number_of(row, column), *(change.value for change in changes)]
    scale, unit = common_scale(column, values)
    quantity, unit = (
        ("cost", label(column)) if label(column).startswith("USD") else (label(column), unit)
    )
    texts = [f"{format_scaled(column, scale, value)} {unit}" for value in values]
    rows = [
        RankingRow(label="the answer", value=values[0] / scale, text=texts[0], mark=BEST),
        *(
            RankingRow(
                label=f"{change.lever}: {change.other}",
                value=change.value / scale,
                text=f"{text} ({100 * change.change:+.0f} %)",
                hints={change.lever: f"{change.other} instead of {change.current}"},
            )
            for change, text in zip(changes, texts[1:], strict=True)
        ),
    ]
    caption = f"The {quantity} with one change, each after a new search"
    return RankingChart(
        name="levers", caption=caption, unit=f"{quantity}, {unit}".rstrip(", "), rows=rows
    )


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
