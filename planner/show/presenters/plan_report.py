"""An answer about one plan as blocks: its verdict, summary and full report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.base.csv_cells import Row, TypedRow
from planner.base.formatting import EVEN_FIT, SURE_FIT, format_counted, format_probability
from planner.base.units import GIB
from planner.confidence.intervals import Confidence
from planner.configurations.configuration_tables import ServingConfigurations
from planner.decide.assumptions import SensitiveAssumption, sensitive_assumptions
from planner.decide.fitting import MEMORIES
from planner.decide.near import older_misfit
from planner.errors import InfeasibleError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.burst import Burst
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.problem import limit_rows, with_rate_limit
from planner.optimize.result_columns import fit_probability, intervals
from planner.optimize.source import Candidates, first_row
from planner.question.request import Request
from planner.question.terms import columns_about
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TOTAL,
    Block,
    KeyValues,
    Title,
    load_blocks,
    make_lines,
    save_blocks,
)
from planner.show.presenters.format_results import (
    format_host_memory,
    format_paged_states,
    format_result,
    host_room,
    label,
    memory_parts,
    number_of,
    settings_text,
    share,
    short_plan,
)
from planner.show.presenters.infeasible import (
    assumed_blocks,
    defaults_blocks,
    infeasible_message,
    join_or,
    misfit_verdict,
    question_blocks,
    question_title,
)
from planner.show.presenters.json_files import add_estimate, plan_manifest
from planner.show.presenters.load_check import (
    load_line,
    replay_blocks,
    replay_result,
    start_pairs,
)
from planner.show.presenters.pareto_front import percentile_limit_columns, plan_objective_column
from planner.show.presenters.prices import commitment_lines, plan_prices_lines
from planner.show.presenters.uncertainty import (
    is_redundant,
    moved_columns,
    report_columns,
    short_assumption_lines,
    uncertainty_lines,
)
from planner.show.presenters.workload_details import details_of, memory_blocks
from planner.show.reports import (
    EstimateReport,
    ExplanationReport,
    LargestReport,
    made_report,
    written_report,
)
from planner.workloads.make_plan import (
    Plan,
    evaluate,
    make_plan,
    make_single_plan,
    with_assumption_notes,
)
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation


def format_verdict(plan: Plan, evaluation: Evaluation) -> str:
    """Return a sentence on whether a configuration fits, starts and runs, with its peak memory.

    What fits with one release of the software alone may not fit.
    """
    if evaluation.rejected_by:
        return misfit_verdict(plan, evaluation)
    row = first_row(evaluation.table())
    for assumption in sensitive_assumptions(plan, evaluation.candidates):
        if assumption.of_release and assumption.does_not_fit:
            other = " or ".join(assumption.does_not_fit)
            condition = f"with the {assumption.name} {assumption.assumed}"
            return f"May not fit: {format_peak(plan, row)} {condition}; does not fit with {other}."
    probability = fit_probability(row)
    verb = "May fit" if probability < SURE_FIT else "Fits"
    if probability <= EVEN_FIT:
        verb = "May not fit"
    return f"{verb}: {format_peak(plan, row)}{_format_unstated_host(plan, row)}."


def _format_unstated_host(plan: Plan, row: Row) -> str:
    """Return the host memory of a node as a condition, if much is needed and none is specified."""
    machine = plan.source_of(row).inputs.machine
    if machine.cluster.host_memory is not None or not format_host_memory(row, machine):
        return ""
    needed = number_of(row, "host_memory_gib")
    if needed < _MUCH_HOST_MEMORY * host_room(row, machine) / GIB:
        return ""
    in_node = min(number_of(row, "num_gpus"), machine.cluster.gpus_per_node)
    return f", if a node has {needed * in_node:,.0f} GiB of host memory"


def format_peak(plan: Plan, row: Row) -> str:
    """Return the peak memory of a row, the usable memory of its GPU, and how likely it fits.

    The text is ``peak 61.2 of 79.1 GiB (97 % likely)``, below 90 % ``(fits, 80 % likely)``.
    """
    usable = plan.source_of(row).usable_memory(row) / GIB
    probability = fit_probability(row)
    chance = ""
    if math.isfinite(probability):
        likely = f"{format_probability(probability)} likely"
        if probability <= EVEN_FIT:
            likely = f"{likely} to fit"
        elif probability < SURE_FIT:
            likely = f"fits, {likely}"
        chance = f" ({likely})"
    return f"peak {number_of(row, 'peak_memory_gib'):,.1f} of {usable:,.1f} GiB{chance}"


_MUCH_HOST_MEMORY = 0.25
"""Share of the host memory that is assumed, which nodes of the same GPUs may lack."""
_MAX_PARTS = 5
_MIN_SHOWN_SHARE = 0.01
_RUN_TIMES = ("time_to_train_days", "calendar_time_days")
_LOST = {
    "time_recompute_s": "recomputation",
    "time_pipeline_bubble_s": "idle pipeline stages",
    "time_tensor_parallel_s": "tensor-parallel communication",
    "time_context_parallel_s": "context-parallel communication",
    "time_expert_parallel_s": "expert-parallel communication",
    "time_data_parallel_s": "reduction of gradients",
    "time_weight_gather_s": "gathering of weights",
    "time_pipeline_transfer_s": "transfers between stages",
    "time_offload_s": "copies to the host",
    "time_launch_wait_s": "waiting for the host",
}


def full_blocks(plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the full report of one configuration; its memory if it needs too much."""
    details = details_of(plan)
    candidates = evaluation.candidates
    yield from question_blocks(plan)
    yield from defaults_blocks(plan)
    if line := load_line(plan, candidates):
        yield GAP
        yield make_lines(line)
    if not is_predicted(evaluation):
        return
    yield Title(text="The configuration")
    yield make_lines(settings_text(plan, candidates.row), indent="", most=100)
    if evaluation.rejected_by:
        yield from memory_blocks(candidates)
        return
    yield from details.memory_and_speed(plan, candidates)
    yield from details.more(plan, evaluation)
    yield from assumed_blocks(plan)


def is_predicted(evaluation: Evaluation) -> bool:
    """Whether a configuration has results: it breaks no rule, though memory may not suffice."""
    rejected, rules = evaluation.rejected_by, evaluation.source.rejections
    return not rejected or rejected in MEMORIES or rejected not in rules


def summarize_plan(
    plan: Plan, evaluation: Evaluation, suggestions: Sequence[str] = (), **more: object
) -> dict[str, object]:
    """Return the fields of the `planner.show.reports.PlanSummary` of one configuration.

    Parameters
    ----------
    plan : plan of the question
    evaluation : its configuration
    suggestions : options that make it feasible
    more : further fields, such as the change of a launch file
    """
    summary: dict[str, object] = {
        "verdict": format_verdict(plan, evaluation),
        "plan": question_title(plan),
        "assumed": [name.replace("_", " ") for name in plan.defaults],
        "then": "Next, with these options: planner explain | search | launch.",
    }
    if suggestions:
        summary["change"] = [f"Try {join_or(suggestions)}."]
    if is_predicted(evaluation):
        row = first_row(evaluation.table())
        summary["plan"] = f"{question_title(plan)}: {short_plan(plan, row)}"
        summary["log"] = log_line(plan, row)
        if not evaluation.rejected_by:
            summary |= _reached(plan, evaluation.candidates, row)
            summary["load"] = [*_load_lines(plan, evaluation)]
            if plan.request.replay:
                summary["tables"] = save_blocks(
                    replay_blocks(replay_result(plan, evaluation.candidates))
                )
    return {**summary, **more}


def _reached(plan: Plan, candidates: Candidates, row: Row) -> dict[str, object]:
    """Return the fields on the results of a plan that runs, and on their evidence."""
    confidence = plan.source_of(row).confidence_of(row)
    assumptions = sensitive_assumptions(plan, candidates)
    constraints = with_rate_limit(plan.problem.constraints, plan.request.lasting_rate)
    sure = uncertainty_lines(
        "" if confidence is None else confidence.basis,
        limit_rows(candidates, constraints) if confidence is not None else (),
        assumptions,
        None if confidence is None else confidence.runs,
        str(row["gpu"]),
        () if confidence is None else confidence.missing,
    )
    terms = commitment_lines({**candidates.source.question_columns, **row})
    return {
        "results": result_texts(plan, row, confidence),
        "sure": [
            *sure,
            *_older_start_lines(plan, candidates, row),
            *terms,
            *plan_prices_lines(plan),
        ],
        "lost": lost_line(row),
        "depends_on": _largest_assumption(plan, assumptions),
    }


def _older_start_lines(plan: Plan, candidates: Candidates, row: Row) -> Iterator[str]:
    """Yield with which older releases of its engine a server would not start."""
    inputs, c = plan.source_of(row).inputs, candidates.configurations
    if not isinstance(inputs, ServingInputs) or not isinstance(c, ServingConfigurations):
        return
    if older := older_misfit(inputs, c, plan.request):
        room = f"a request of {older.longest:,} tokens" if older.longest else "no request"
        yield (
            f"{inputs.engine.name} from {older.since} to before {older.until} would not start: its "
            f"cache has room for {room}. If yours is one of these, give --engine-version."
        )


def _load_lines(plan: Plan, evaluation: Evaluation) -> Iterator[str]:
    """Yield whether a plan serves its load, and when a burst of requests is answered."""
    if line := load_line(plan, evaluation.candidates):
        yield line
    if isinstance(evaluation.detail, Burst):
        from planner.show.presenters.serving_details import burst_line

        yield burst_line(evaluation.detail)


def result_texts(plan: Plan, row: Row, confidence: Confidence | None) -> dict[str, str]:
    """Return the results of a plan by label, with 90 % intervals; its memory is in the verdict."""
    goals = [
        plan_objective_column(plan, objective.name, row) for objective in plan.problem.objectives
    ]
    source = plan.source_of(row)
    limited = percentile_limit_columns(plan, row)
    columns = report_columns(plan.workload.wording, goals, limited, row, source.question_columns)
    ends = intervals(row, confidence)
    texts = {
        name: format_result(name, row[name], ends.get(name))
        for name in columns
        if not is_redundant(name, row)
    }
    train, calendar = (texts.get(name, "") for name in _RUN_TIMES)
    if calendar and train.partition(" (")[0] == calendar.partition(" (")[0]:
        del texts[_RUN_TIMES[0]]
    host = {
        "host memory": format_host_memory(row, source.inputs.machine),
        "paged": format_paged_states(row),
    }
    return {
        **{label(name): text for name, text in texts.items()},
        **{name: text for name, text in host.items() if text},
    }


def log_line(plan: Plan, row: Row) -> str:
    """Return what the user's log shows: weights and KV cache of an engine, or parts of the peak."""
    inputs = plan.source_of(row).inputs
    if isinstance(inputs, ServingInputs):
        pairs = start_pairs(row, inputs.engine.memory)
        if pairs:
            texts = (f"{name} {value}" for name, value in pairs.items())
            return f"At start the engine logs: {', '.join(texts)}."
    parts = sorted(memory_parts(row).items(), key=lambda part: -part[1])[:_MAX_PARTS]
    if not parts:
        phases = {name: number_of(row, name) for name in columns_about("memory_phase")}
        parts = [(n.removesuffix("_memory_gib"), size) for n, size in phases.items() if size > 0]
    texts = (f"{name.replace('_', ' ')} {size:,.1f}" for name, size in parts if size >= 0.05)
    text = ", ".join(texts)
    return f"Memory, GiB: {text}." if text else ""


def lost_line(row: TypedRow) -> str:
    """Return the shares of the step time lost to overheads, the largest first; "" without one."""
    step = row.get("step_time_s")
    if not step:
        return ""
    parts = {name: row.get(name) or 0.0 for name in _LOST}
    lost = sorted(((time / step, name) for name, time in parts.items()), reverse=True)
    texts = [f"{_LOST[name]} {share(part)}" for part, name in lost if part >= _MIN_SHOWN_SHARE]
    return f"Lost in each step: {', '.join(texts)}." if texts else ""


def _largest_assumption(plan: Plan, assumptions: Sequence[SensitiveAssumption]) -> str:
    """Return the assumption with the largest effect on a result; "" if none has any."""

    def spread(assumption: SensitiveAssumption) -> float:
        columns = moved_columns(plan.workload.wording, assumption)
        ends = (assumption.moved[name] for name in columns)
        least = 1.0 if assumption.does_not_fit else 0.0
        return max((high / low if low > 0 else math.inf for low, high in ends), default=least)

    largest = max(assumptions, key=spread, default=None)
    if largest is None or not spread(largest):
        return ""
    return short_assumption_lines(plan, [largest])[0].removeprefix("Unknown: ")


PlanReport: TypeAlias = EstimateReport | ExplanationReport | LargestReport

_REFUSALS = ("Does not", "Cannot", "May not")


def estimate_report(
    plan: Plan,
    evaluation: Evaluation,
    command: Sequence[str] = (),
    suggestions: Sequence[str] = (),
) -> EstimateReport:
    """Return the report of one configuration.

    Parameters
    ----------
    plan : plan of the question
    evaluation : its configuration
    command : arguments of the command line
    suggestions : options that make it feasible
    """
    summary = summarize_plan(plan, evaluation, suggestions)
    parts = {"summary": summary, "details": save_blocks(full_blocks(plan, evaluation))}
    return written_estimate(plan, evaluation, command, parts)


def written_estimate(
    plan: Plan, evaluation: Evaluation, command: Sequence[str], parts: Mapping[str, object]
) -> EstimateReport:
    """Return a report with these further parts; a plan that breaks a rule has no rows."""
    if not is_predicted(evaluation):
        empty = {"manifest": plan_manifest(plan, command), "rows": [], "operators": []}
        return made_report({**empty, **parts}, EstimateReport)
    return written_report(
        lambda files: add_estimate(files, plan, evaluation, command, **parts), EstimateReport
    )


def plan_blocks(report: PlanReport, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the verdict on a plan, then its first screen, or the full report."""
    summary = report.summary
    is_refused = summary.verdict.startswith(_REFUSALS)
    yield make_lines(summary.verdict, mark=BAD if is_refused else BEST, most=3)
    if is_full:
        yield GAP
        yield from load_blocks(report.details)
        return
    yield make_lines(summary.plan, mark=TOTAL, most=2)
    question = report.manifest.get("question") or ()
    yield from _lines(("; ".join(map(str, question[1:])),), 3)
    yield from summary_blocks(report)


def summary_blocks(report: PlanReport) -> Iterator[Block]:
    """Yield the blocks of the first screen below the verdict and the plan."""
    summary = report.summary
    for line in summary.load:
        yield make_lines(line, most=3)
    if summary.results:
        yield KeyValues(pairs=summary.results, is_inline=True)
    for lines, most in ((summary.sure, 2), ((summary.log,), 3), ((summary.lost,), 1)):
        yield from _lines(lines, most)
    yield from load_blocks(summary.tables)
    yield from _lines(summary.change, 3)
    yield from _lines(summary.read_as, 2)
    yield from _lines((f"{assumed_line(report)} {summary.then}".strip(),), 3)


def assumed_line(report: PlanReport) -> str:
    """Return how many values are assumed, and which one has the largest effect."""
    summary = report.summary
    if not summary.assumed:
        return ""
    count = format_counted(len(summary.assumed), "thing")
    largest = f"; most depends on {summary.depends_on}" if summary.depends_on else ""
    return f"Assumed: {count} (--full){largest}."


def _lines(lines: Sequence[str], most: int) -> Iterator[Block]:
    """Yield each sentence on at most ``most`` lines of a terminal."""
    for line in lines:
        if line:
            yield make_lines(line, most=most)


def recommended_of(request: Request) -> SavedPlan:
    """Return the plan that the search of a request recommends.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible;
    InfeasibleError if nothing fits.
    """
    plan = make_plan(request)
    result = exhaustive_search(plan.problem)
    if result.recommended is None:
        raise InfeasibleError(infeasible_message(with_assumption_notes(plan, result), result))
    return SavedPlan.of(plan, result.recommended.row)


def evaluate_request(request: Request, *, is_open: bool) -> tuple[Plan, Evaluation]:
    """Return the plan of a request and its prediction.

    With ``is_open`` the layout is the recommended one.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    several configurations; InfeasibleError if the layout is open, and nothing fits.
    """
    chosen = request
    if is_open:
        chosen = replace(recommended_of(request).request(), constraints=request.constraints)
    plan = make_single_plan(chosen)
    return plan, evaluate(plan)
