"""The uncertainty of a plan: intervals as text, ties, and the effect of assumptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from planner.base.csv_cells import Row
from planner.base.formatting import (
    DAY,
    format_counted,
    format_duration,
    format_fit_probability,
    format_large,
    format_limit,
    format_percent,
    format_probability,
    format_significant,
)
from planner.base.read_files import JsonObject
from planner.confidence.intervals import MAX_TIE_FACTOR, Confidence
from planner.decide.assumptions import SensitiveAssumption
from planner.optimize.problem import joint_probability
from planner.optimize.result_columns import COLUMNS_BY_ERROR, fit_probability, intervals
from planner.question.request import Answers
from planner.question.terms import glossary, is_answer_column
from planner.show.presenters.format_results import (
    Ends,
    electricity_columns,
    format_in_common_unit,
    format_result,
    label,
    limit_label,
)
from planner.specs.spec_paths import SpecKind, is_shipped
from planner.workloads.make_plan import Plan
from planner.workloads.workload import ResultWording

# Columns shown of a plan; other columns follow from these.
_HEADLINE_COLUMNS = (
    "step_time_s",
    "time_to_train_days",
    "calendar_time_days",
    "time_to_first_token_s",
    "prefill_latency_s",
    "time_per_output_token_s",
    "decode_latency_s",
    "output_tokens_per_s",
    "peak_memory_gib",
)
_SAME_AS = {"calendar_time_days": "time_to_train_days"}
_RATE_COLUMNS = ("requests_per_s", "capacity_requests_per_s_per_gpu")
_MEMORY = "peak_memory_gib"
_UNITS = {"_per_s": "tokens/s", "_s": "s", "_gib": "GiB", "_days": "days"}
_MAX_EFFECTS = 3
EVIDENCE = {
    "measured": ("this hardware and software", "measured runs of this software on such GPUs"),
    "transferred": (
        "similar runs",
        "measured runs of this software or of such GPUs",
    ),
    "roofline": (
        "no similar runs",
        "no run of this software or of such GPUs was fitted",
    ),
    "assumed": ("kernel rates assumed", "its kernel efficiencies are assumed"),
}
"""A short and a long text of each basis (`planner.confidence.intervals.basis_of`)."""
FOR_ASSUMED = "The intervals are for the values assumed."
"""The note below assumptions."""


def tie_text(factor: float) -> str:
    """Return the factor between two speeds below which plans are tied, and where it is from."""
    within = f"within x{factor:.2f}"
    if factor < MAX_TIE_FACTOR:
        return f"{within}, the error between layouts"
    return f"{within}, the most that counts as a tie: the error between layouts is no smaller"


def interval_pairs(row: Row, confidence: Confidence, capacity: float) -> dict[str, str]:
    """Return the 90 % intervals of a row as text by name.

    An interval of memory beyond ``capacity`` [GiB] is left out.
    """
    column_intervals = intervals(row, confidence)
    pairs = {
        _label(name): _range(name, *column_intervals[name])
        for name in _HEADLINE_COLUMNS
        if name in column_intervals
        and not is_redundant(name, row)
        and not (is_answer_column(name) and row[name] != row[name])
    }
    if column_intervals.get(_MEMORY, (0.0, 0.0))[1] > capacity:
        del pairs[_label(_MEMORY)]
    if fit_text := format_fit(row):
        pairs["memory"] = fit_text
    support = evidence(confidence.basis, confidence.runs, confidence.missing)
    pairs["meaning"] = f"90 % interval; evidence: {support}"
    return pairs


def format_regret(regret: float, quantity: str) -> str:
    """Return the expected loss against the best option as text; "" if unknown."""
    if not math.isfinite(regret):
        return ""
    percent = format_percent(regret)
    return f"On average the best choice turns out {percent} better in {quantity} (expected regret)"


def is_redundant(column: str, row: Row) -> bool:
    """Whether a column repeats another one: equal times, or rates if the capacity is shown."""
    if column in _RATE_COLUMNS and "capacity_requests_per_s" in row:
        return True
    return column in _SAME_AS and row[column] == row.get(_SAME_AS[column])


def format_fit(row: Row) -> str:
    """``fits, 97 % likely``; empty if the probability is unknown."""
    probability = fit_probability(row)
    return format_fit_probability(probability) if math.isfinite(probability) else ""


def uncertainty_lines(
    basis: str,
    limits: Iterable[JsonObject],
    assumptions: Sequence[SensitiveAssumption],
    runs: int | None = None,
    gpu: str = "",
    missing: Sequence[str] = (),
) -> list[str]:
    """Return lines on the intervals, and the probability to keep each of `limit_rows` and all.

    Both are for the assumed values if there are ``assumptions``.
    """
    is_open = any(assumption.moved for assumption in assumptions)
    lines = []
    if basis:
        meaning = "90 % interval for the values assumed" if is_open else "90 % interval"
        lines.append(f"In brackets: {meaning}; evidence: {evidence(basis, runs, missing)}.")
        lines += unnamed_lines(gpu)
    terms, texts, chances = glossary(), [], dict[str, float]()
    for limit in limits:
        term, bound, probability = terms.get(limit["name"]), limit["bound"], limit["probability"]
        if term is not None and bound is not None and probability is not None:
            side = "<=" if term.sign > 0 else ">="
            bound_words = f"{limit_label(term.term)} {side} {format_limit(bound, term.type)}"
            texts.append(f"{format_probability(probability)} likely to keep {bound_words}")
            chances[term.term] = probability
    if len(chances) > 1:
        together = format_probability(float(joint_probability(chances)))
        texts.append(f"{together} to keep all")
    return [*lines, f"{', '.join(texts)}."] if texts else lines


def evidence(basis: str, runs: int | None = None, missing: Sequence[str] = ()) -> str:
    """Return the evidence of a prediction as text, from ``basis``, whose first word is a code.

    ``runs`` is the number of runs of this software on this GPU; None if they are not counted.
    ``missing`` is what no published run of the software has.

    >>> evidence("transferred, a first run", 3)
    'similar runs, a first run; 3 runs on this GPU'
    """
    code, comma, rest = basis.partition(",")
    run_text = f"; {format_counted(runs, 'run')} on this GPU" if runs else ""
    run_text = "; not proven, no runs on this GPU" if runs == 0 else run_text
    lacks = f"; no published run with {', '.join(missing)}" if missing else ""
    return f"{EVIDENCE.get(code, (code,))[0]}{comma}{rest}{run_text}{lacks}"


def unnamed_lines(gpu: str) -> list[str]:
    """Return a note if planner ships no GPU of this name; evidence is looked up by name."""
    if not gpu or is_shipped(SpecKind.GPUS, gpu):
        return []
    return [
        f"Runs are counted by the GPU's name, and none names {gpu}: a copy of a shipped GPU under "
        "another name has none of its evidence."
    ]


def ties(values: Sequence[float], factor: float) -> list[bool]:
    """Whether each value is tied with the first: within ``factor`` of it."""
    best = values[0]
    return [index > 0 and best / factor < v < best * factor for index, v in enumerate(values)]


def _unit(column: str) -> str:
    return next(unit for unit in _UNITS if column.endswith(unit))


def _label(column: str) -> str:
    return column.removesuffix(_unit(column)).replace("_", " ")


def _range(column: str, low: float, high: float) -> str:
    """Return two ends of a column as text in its unit: tokens/s, GiB or a duration."""
    unit = _unit(column)
    if unit == "_per_s":
        return f"{format_significant(low)} to {format_significant(high)} tokens/s"
    if unit == "_gib":
        return f"{low:.1f} to {high:.1f} GiB"
    seconds = DAY if unit == "_days" else 1.0
    return f"{format_duration(low * seconds)} to {format_duration(high * seconds)}"


def assumption_lines(plan: Plan, assumptions: Sequence[SensitiveAssumption]) -> list[str]:
    """Return a line for each assumption, and a note that the intervals depend on those."""
    lines = [_assumption_line(plan, assumption) for assumption in assumptions]
    if any(assumption.moved for assumption in assumptions):
        lines.append(FOR_ASSUMED)
    return lines


def short_assumption_lines(plan: Plan, assumptions: Sequence[SensitiveAssumption]) -> list[str]:
    """A short line for each assumption with the quantity that it changes most."""
    return short_assumption_texts(plan.workload.wording, assumptions)


def short_assumption_texts(
    wording: ResultWording, assumptions: Sequence[SensitiveAssumption]
) -> list[str]:
    """A short text for each assumption with the quantity that it changes most."""
    return [_short_line(wording, assumption) for assumption in assumptions]


def _assumption_line(plan: Plan, assumption: SensitiveAssumption) -> str:
    """Return a sentence on an assumed value, the values tried, and their effects."""
    assumed = f"assumed {assumption.assumed}"
    if assumption.tried:
        assumed += f"; tried {', '.join(assumption.tried)}"
    effects = effect_texts(plan.workload.wording, assumption, _MAX_EFFECTS)
    name = assumption.name[0].upper() + assumption.name[1:]
    return f"{name} not specified ({assumed}): {'; '.join(effects)}."


def effect_texts(
    wording: ResultWording, assumption: SensitiveAssumption, max_columns: int | None = None
) -> list[str]:
    """Return the effects of an assumed value on the results, and values that do not fit.

    ``max_columns`` limits the number of results; None shows all.
    """
    columns = moved_columns(wording, assumption)[:max_columns]
    texts = [
        format_column_range(name, *assumption.moved[name]) for name in columns
    ] + other_formats(assumption)
    misfit = f"does not fit with {' or '.join(assumption.does_not_fit)}"
    return [*texts, misfit] if assumption.does_not_fit else texts


def _short_line(wording: ResultWording, assumption: SensitiveAssumption) -> str:
    """Return an assumed value with its largest effect, and values that do not fit."""
    moved = assumption.moved
    spreads = {n: h / low if low > 0 else math.inf for n, (low, h) in moved.items()}
    columns = sorted(moved_columns(wording, assumption), key=spreads.__getitem__)
    texts = other_formats(assumption)
    texts = texts or [format_column_range(name, *moved[name]) for name in columns[-1:]]
    if assumption.does_not_fit:
        texts.append(f"does not fit with {' or '.join(assumption.does_not_fit)}")
    return f"Unknown: {assumption.name} (assumed {assumption.assumed}): {'; '.join(texts)}"


def other_formats(assumption: SensitiveAssumption) -> list[str]:
    """Return the GPU-hours with other precisions: ``in bf16 3.43 million GPU-hours, +24 %``."""
    assumed_effects = assumption.each.get(assumption.assumed, {})
    if assumption.name != "precision" or "gpu_hours" not in assumed_effects:
        return []
    formats = []
    for option in assumption.tried:
        hours = assumption.each[option]["gpu_hours"]
        percent = 100 * (hours / assumed_effects["gpu_hours"] - 1)
        formats.append(
            f"in {option} {format_large(float(f'{hours:.3g}'))} GPU-hours, {percent:+.0f} %"
        )
    return formats


def moved_columns(wording: ResultWording, assumption: SensitiveAssumption) -> list[str]:
    """Return the results that an assumption changes, one of each proportional group."""
    shown = [name for name in (*wording.shown_columns, _MEMORY) if name in assumption.moved]
    columns: list[str] = []
    covered: set[str] = set()
    for name in shown or assumption.moved:
        quantities = {
            key
            for key, column_groups in COLUMNS_BY_ERROR.items()
            if any(name in column_group for column_group in column_groups)
        }
        if not quantities & covered:
            columns.append(name)
        covered |= quantities
    return columns


def format_column_range(column: str, low: float, high: float) -> str:
    """The range of a column with its label and unit."""
    ends, unit = format_in_common_unit(column, [low, high])
    return " ".join(filter(None, (label(column), f"{ends[0]} to {ends[1]}", unit)))


def report_columns(
    wording: ResultWording,
    goals: Sequence[str],
    limited: Iterable[str],
    row: Row,
    answers: Answers,
) -> list[str]:
    """Return the result columns to show of a row: those of the workload, limits and goals.

    ``answers`` has the values that all rows share, such as output tokens.
    """
    goal = [name for name in goals[:1] if name != "num_gpus"]
    shown = [*(wording.shown_columns or goals), *limited, *electricity_columns(row), *goal]
    if answers.get("output_tokens") == 0:  # embedded or scored
        shown = [name for name in shown if not is_answer_column(name)]
    return [*dict.fromkeys(name for name in shown if name in row)]


def result_pairs(
    names: Iterable[str],
    row: Row,
    column_intervals: Mapping[str, Ends],
    capacity: float,
) -> dict[str, str]:
    """Return the results of a row as text with their intervals, by name, and its memory."""
    pairs = {
        label(name): format_result(name, row[name], column_intervals.get(name))
        for name in names
        if not is_redundant(name, row)
    }
    if _MEMORY in row:
        within = format_result(_MEMORY, row[_MEMORY]).removesuffix(" GiB")
        text = f"{within} of {capacity:.1f} GiB"
        pairs[label(_MEMORY)] = ", ".join(filter(None, (text, format_fit(row))))
    return pairs
