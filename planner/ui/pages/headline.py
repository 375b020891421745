"""The first screen of a page: the answer as a sentence, three numbers, their evidence, a chart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.base import formatting
from planner.question.terms import glossary, term_of_column, terms_about
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
    ends_in,
    format_result,
    format_scaled,
    label,
    layout_of,
    number_of,
    plan_of,
)  # fmt: skip
from planner.show.presenters.uncertainty import EVIDENCE, says_nothing, ties
from planner.ui.pages.result_json import numbers
from planner.workloads.workload import Workload

AnyRow = Mapping[str, Any]

MOST_RANKS = 10
"""Choices of the chart on the first screen."""

_MEMORY, _FITS, _GPUS = "peak_memory_gib", "fit_probability", "num_gpus"
_PRICE, _RUNS = "price_per_gpu_hour_usd", "evidence_runs"
# What a sentence says of a time and of a cost: of the first that a row knows.
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
    "cost_per_million_tokens_usd": "costs {} USD per million tokens",
    "cost_per_hour_usd": "costs {} an hour",
}
_OTHERS = (
    "step_time_s", "time_to_first_token_s", "prefill_latency_s", "tokens_per_s_per_gpu", _MEMORY,
)  # fmt: skip
_BATCHES = ("global_batch_size", "batch_size", "concurrency")
_FIGURES = 3


def headline(workload: Workload, row: AnyRow, verb: str = "runs") -> str:
    """The answer as a sentence: on what a model ``verb``, how long it takes, what it costs."""
    software = next((str(row[name]) for name in terms_about("software") if row.get(name)), "")
    contract = str(row.get("contract") or "")
    gpus = f"{_where(row)}{f' {contract}' if contract not in ('', 'on-demand') else ''}"
    where = f"{row.get('model') or 'It'} {verb} on {gpus}"
    said = [
        words.format(format_result(name, row[name]))
        for phrases in (_TIMES, _COSTS)
        for name, words in _first(row, phrases)
    ]
    plan = f"{f' with {software}' if software else ''} ({layout_of(workload, row)})"
    return f"{where}{plan}: it {' and '.join(said)}." if said else f"{where}{plan}."


def _first(row: AnyRow, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The first of these columns that the row has a number in, with its words."""
    known = (item for item in names.items() if math.isfinite(number_of(row, item[0])))
    return [*known][:1]


def figures(
    row: AnyRow,
    ends: Mapping[str, Ends],
    limits: Iterable[Mapping[str, Any]] = (),
    first: Sequence[str] = (),
) -> list[Figure]:
    """Three numbers of an answer: ``first``, else its time and its cost, and how likely it holds.

    ``limits`` are those whose probabilities are known, in `limit_rows`.
    """
    known = [name for name in first if math.isfinite(number_of(row, name))]
    known += [name for one in (_TIMES, _COSTS) for name, _ in _first(row, one) if not first]
    made = [_figure(row, name, ends) for name in dict.fromkeys(known)]
    chances = numbers(limit.get("probability") for limit in limits)
    if chances:
        made.append(_chance("keeps the limits", min(chances), "of the least likely one"))
    elif math.isfinite(number_of(row, _FITS)):
        made.append(_chance("fits in memory", number_of(row, _FITS), _meaning(_FITS)))
    for name in _OTHERS:
        if len(made) < _FIGURES and math.isfinite(number_of(row, name)) and name not in known:
            made.append(_figure(row, name, ends))
    return made[:_FIGURES]


def _figure(row: AnyRow, name: str, ends: Mapping[str, Ends]) -> Figure:
    words = format_result(name, row[name], ends.get(name))
    value, _, between = words.partition(" (")
    between = f"90 %: {between.removesuffix(')')}" if between else ""
    called = label(name)
    if called.startswith("USD"):
        called, value = "cost", f"{value} {called}"
    return Figure(name=called, text=value, between=between, title=_meaning(name))


def _chance(name: str, share: float, title: str) -> Figure:
    return Figure(
        name=name,
        text=formatting.format_probability(share),
        between="of runs like this",
        title=title,
    )


def _meaning(column: str) -> str:
    term = term_of_column(column)
    return "" if term is None else term.description


def verb(workload: Workload) -> str:
    """What is done with a model."""
    return workload.name if workload.name in ("train", "serve") else "run"


def ends_of_row(row: AnyRow) -> dict[str, Ends]:
    """The ends of all intervals of a row by column."""
    found = {column: ends_in(column, row) for column in row}
    return {column: ends for column, ends in found.items() if ends is not None}


def evidence(basis: object, runs: object = None) -> Evidence | None:
    """The badge of a basis in words, of which the first one tells how near measured runs are.

    ``runs`` is how many of them are of this software on this GPU; None where that is unknown.
    """
    level, _, more = str(basis or "").partition(", ")
    if level not in EVIDENCE:
        return None
    count = (
        f"{formatting.format_count(runs)} on this very GPU"
        if isinstance(runs, int) and runs
        else ""
    )
    proven = "not proven" if runs == 0 else count
    short, long = EVIDENCE[level]
    return Evidence(level=level, text=short, title="; ".join(filter(None, (long, more, proven))))


def hints(workload: Workload, row: AnyRow) -> dict[str, str]:
    """All that matters of a row: GPUs, plan, batch, results, memory, price, evidence."""
    if not row.get("feasible", True):
        return {"GPUs": _where(row), "no plan": str(row.get("reason") or "")}
    if _GPUS not in row:  # a day, whose hours have plans
        return {name.replace("_", " "): format_result(name, value) for name, value in row.items()}
    found = {"GPUs": _where(row), "plan": plan_of(workload, row)}
    found |= {
        label(name): formatting.format_parameter(row[name]) for name in _BATCHES if row.get(name)
    }
    for name in dict.fromkeys([*workload.wording.shown_columns, *_COSTS, _MEMORY]):
        if math.isfinite(number_of(row, name)) and not says_nothing(name, row):
            found[label(name)] = format_result(name, row[name], ends_in(name, row))
    badge = evidence(row.get("basis"), row.get(_RUNS))
    if math.isfinite(number_of(row, _FITS)):
        found["fits"] = formatting.format_probability(number_of(row, _FITS))
    return found | {"price": price_words(row), "evidence": badge.text if badge else ""}


def _where(row: AnyRow) -> str:
    count = number_of(row, _GPUS)
    return (
        f"{formatting.format_count(count)} x {row['gpu']}"
        if math.isfinite(count)
        else str(row["gpu"])
    )


def price_words(row: AnyRow) -> str:
    """What a GPU costs an hour, on what terms, whose price it is and of when."""
    price, ends = number_of(row, _PRICE), ends_in(_PRICE, row)
    if not math.isfinite(price):
        return ""
    words = [f"{formatting.format_significant(price)} USD per GPU-hour"]
    if ends is not None and all(map(math.isfinite, ends)):
        words[0] += (
            f" ({formatting.format_significant(ends[0])} to "
            f"{formatting.format_significant(ends[1])})"
        )
    offers = number_of(row, "price_offers")
    of_many = f"median of {formatting.format_count(offers)} offers" if offers > 1 else ""
    words += [str(row.get(name) or "") for name in ("contract", "provider")]
    return ", ".join(filter(None, [*words, of_many, str(row.get("price_date") or "")]))


def ranking(
    workload: Workload,
    rows: Sequence[AnyRow],
    column: str,
    names: Callable[[AnyRow], str],
    caption: str,
    factor: float = 1.0,
    ends: Callable[[AnyRow], Ends | None] | None = None,
) -> RankingChart | None:
    """The first rows as a chart, the first one is the answer; None where no value is known.

    Others no more than ``factor`` from it are ties; ``ends`` are those of a row's interval.
    """
    known = [row for row in rows if math.isfinite(number_of(row, column))][:MOST_RANKS]
    if not known:
        return None
    values = [number_of(row, column) for row in known]
    scale, unit = common_scale(column, values)
    tied = ties(values, factor)
    of, unit = ("cost", label(column)) if label(column).startswith("USD") else (label(column), unit)
    made = []
    for at, (row, value) in enumerate(zip(known, values, strict=True)):
        between = ends_in(column, row) if ends is None else ends(row)
        words = f"{format_scaled(column, scale, value)} {unit}".strip()
        if between is not None and all(map(math.isfinite, between)):
            low, high = (format_scaled(column, scale, end) for end in between)
            words += f" ({low} to {high})"
        made.append(
            RankingRow(
                label=names(row),
                value=value / scale,
                text=words,
                ends=None if between is None else (between[0] / scale, between[1] / scale),
                mark=BEST if at == 0 else TIE if tied[at] else "",
                hints=hints(workload, row),
            )
        )
    return RankingChart(
        name="answers", caption=caption, unit=f"{of}, {unit}" if unit else of, rows=made
    )


def lever_ranks(row: AnyRow, levers: Sequence[AnyRow]) -> RankingChart | None:
    """What an answer costs with one thing changed, as `levers` of a search say; None without any.

    Each has the question (``lever``), its ``own`` answer and the ``other``, the ``column`` that it
    moves, the ``value`` of that and its ``change`` as a share.
    """
    known = [one for one in levers if numbers([one["value"]])]
    columns = {str(one["column"]) for one in known}
    if len(columns) != 1 or not math.isfinite(number_of(row, column := columns.pop())):
        return None
    values = [number_of(row, column), *(float(one["value"]) for one in known)]
    scale, unit = common_scale(column, values)
    of, unit = ("cost", label(column)) if label(column).startswith("USD") else (label(column), unit)
    rows = [
        RankingRow(
            label="the answer" if one is None else f"{one['lever']}: {one['other']}",
            value=value / scale,
            text=f"{format_scaled(column, scale, value)} {unit}"
            + ("" if one is None else f" ({100 * one['change']:+.0f} %)"),
            mark="" if one else BEST,
            hints={} if one is None else {one["lever"]: f"{one['other']} instead of {one['own']}"},
        )
        for one, value in zip([None, *known], values, strict=True)
    ]
    caption = f"The {of} with one thing changed, each searched again"
    return RankingChart(
        name="levers", caption=caption, unit=f"{of}, {unit}".rstrip(", "), rows=rows
    )


def with_meanings(page: Page, workload: str) -> Page:
    """The page with what the terms on it mean, which are those of a workload."""
    return replace(page, glossary=_meanings(page, workload))


def _meanings(page: Page, workload: str) -> dict[str, str]:
    """What terms that stand on a page mean, by the name that it has for them."""
    meanings: dict[str, str] = {}
    for term in glossary().values():
        if term.description and (not term.of or workload in term.of):
            meanings |= {n: term.description for n in (term.short, label(term.term)) if n}
    tables = [block for block in page.blocks if isinstance(block, Table)]
    heads = {head.text for table in tables for head in table.heads}
    plans = {
        cell.text
        for table in tables
        for at, head in enumerate(table.heads)
        if head.name == "plan"
        for cell in (row[at] for row in table.rows)
    }
    said = [page.headline, *page.answer, *plans, *(one.name for one in page.figures)]
    words = {word.rstrip("0123456789") for line in said for word in _words(line)}
    titles = {h.text: h.title for table in tables for h in table.heads if h.title and h.text}
    shown = {*heads, *words, *page.reached}
    return {n: one for n, one in {**titles, **meanings}.items() if n.strip() and n in shown}


def _words(line: str) -> list[str]:
    return line.replace(",", " ").replace(";", " ").replace("(", " ").replace(")", " ").split()
