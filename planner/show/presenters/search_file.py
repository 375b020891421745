"""The result of a search as a value that presenters show, and as a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from planner.decide.fitting import options_that_raise_fit_probability
from planner.decide.suggestions.cost_levers import faster_options
from planner.optimize.collector import full_rows, value_or_none
from planner.optimize.recommendation import RECOMMENDATION_RULE
from planner.optimize.result import Comparison, SearchResult
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Candidates
from planner.question.request import ALL
from planner.show.presenters.format_results import format_host_memory, format_paged_states
from planner.show.presenters.json_files import (
    plan_evidence,
    plan_facts,
    plan_limits,
    plan_manifest,
)
from planner.show.presenters.load_check import load_line, replay_result
from planner.show.presenters.pareto_front import marked_rows, plan_objective_column
from planner.show.presenters.prices import charged_in_full_line, plan_prices_lines
from planner.show.presenters.question_summary import describe
from planner.show.presenters.row_files import RowFiles, result_blocks
from planner.show.presenters.search import (
    estimate_command,
    interrupted_message,
)
from planner.show.reports import SearchReport, written_report
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import SavedPlan

if TYPE_CHECKING:
    from planner.decide.suggestions.cost_levers import CostLever


def search_report(plan: Plan, result: SearchResult) -> SearchReport:
    """Return the result of a search as a value, without a command line."""
    return written_report(lambda files: write_search(files, plan, result, (), {}), SearchReport)


def write_search(
    files: RowFiles,
    plan: Plan,
    result: SearchResult,
    command: Sequence[str],
    how: Mapping[str, object],
    *,
    has_rows: bool = True,
    levers: Sequence[CostLever] | None = None,
    **more: object,
) -> None:
    """Write the rows of a search, if ``has_rows``, and its manifest, plans and comparisons.

    The manifest has the search settings ``how`` and counts. The recommended and the fastest plan
    are written as a plan file and as a row. Comparisons have the best plan of every value of each
    outer axis, and the reason if there is none.
    """
    if has_rows:
        files.add(result_blocks(plan, marked_rows(plan, result)))
    parts: dict[str, object] = {}
    if files.has_object and result.recommended is not None:
        parts = {**_chosen_plans(plan, result, result.recommended), **_question_parts(plan, result)}
    if levers is not None:
        more["levers"] = [lever.to_dict() for lever in levers]
        contracts = {lever.other: lever.row for lever in levers if lever.name == "contract"}
        more["lever_notes"] = [*filter(None, [charged_in_full_line(contracts)])]
    counts = {
        "configurations_evaluated": result.configurations_evaluated,
        "configurations_predicted": result.configurations_predicted,
        "configurations_feasible": result.configurations_feasible,
        "rejected_by": dict(result.rejected_by),
        "search_time_s": result.search_time,
        "interrupted": result.interrupted,
    }
    files.finish({**plan_manifest(plan, command), **how, **counts}, **parts, **more)


def _chosen_plans(plan: Plan, result: SearchResult, best: Candidates) -> dict[str, object]:
    """Return the recommended plan with its evidence, and the plans it is compared with."""
    fastest, machine = result.fastest or best, best.source.inputs.machine
    host = {
        "host memory": format_host_memory(best.row, machine),
        "paged": format_paged_states(best.row),
    }
    replay = replay_result(plan, best).to_json() if plan.request.replay else None
    return {
        "recommended": SavedPlan.of(plan, best.row).to_dict(),
        "recommended_row": _row(plan, best),
        "recommended_limits": plan_limits(plan, best),
        "recommended_load": load_line(plan, best),
        "recommended_sure": {**plan_evidence(plan, best), "regret": value_or_none(result.regret)},
        "recommended_rule": RECOMMENDATION_RULE,
        "recommended_command": estimate_command(plan, best.row),
        "recommended_surer": options_that_raise_fit_probability(plan, best.row),
        "faster_options": _faster_options(plan, best),
        "recommended_host": {name: text for name, text in host.items() if text},
        "recommended_replay": replay,
        "open_facts": plan_facts(plan, best),
        "proven_row": _row(plan, result.proven),
        "tied_row": _row(plan, result.better_tied),
        "fastest": SavedPlan.of(plan, fastest.row).to_dict(),
        "fastest_row": _row(plan, fastest),
        "comparisons": {
            axis: _compared(plan, result, comparison)
            for axis, comparison in result.comparisons.items()
        },
    }


def _faster_options(plan: Plan, best: Candidates) -> list[dict[str, object]]:
    """Return a number format and an engine with which the first objective is much better."""
    column = plan_objective_column(plan, plan.problem.objectives[0].name, best.row)
    return [
        {**lever.to_dict(), "fit_probability": value_or_none(fit_probability(lever.row))}
        for lever in faster_options(plan, best, column)
    ]


def _question_parts(plan: Plan, result: SearchResult) -> dict[str, object]:
    """Return what a report has of the question, its prices and the rejected configurations."""
    answers = {name: getattr(plan.request, name, None) for name in result.comparisons}
    reasons = dict.fromkeys(result.rejected_by)
    for compared in result.comparisons.values():
        reasons |= dict.fromkeys(compared.without_plan.values())
    return {
        "requested_axes": [
            name
            for name, answer in answers.items()
            if answer == ALL or isinstance(answer, tuple | list)
        ],
        "price_lines": plan_prices_lines(plan),
        "rejection_texts": {name: describe(plan.problem, name) for name in reasons},
        "warnings": [interrupted_message(plan, result)] if result.interrupted else [],
    }


def _row(plan: Plan, candidates: Candidates | None) -> dict[str, object] | None:
    """The row of a plan; None without a plan."""
    if candidates is None:
        return None
    return dict(full_rows(candidates.columns(), plan.problem.sources)[0])


def _compared(plan: Plan, result: SearchResult, compared: Comparison) -> dict[str, object]:
    """Return the JSON object of one axis: the best plan of each value with its loss.

    ``without_plan`` has the reason for each value that has no plan.
    """
    rows = full_rows(result.scaled(compared.table), plan.problem.sources)
    loss_rows = zip(compared.losses, rows, strict=True)
    return {
        "rows": [{"loss": value_or_none(loss), **row} for loss, row in loss_rows],
        "without_plan": {str(value): reason for value, reason in compared.without_plan.items()},
        "tied": [bool(tied) for tied in compared.tied],
        "risks": [float(risk) for risk in compared.risks],
    }
