"""The answer of a search, in 24 lines, in full or as a file; and a single configuration."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row, Value
from planner.base.formatting import format_count, format_counted, format_parameter
from planner.base.units import GIB
from planner.decide.fitting import options_that_raise_fit_probability
from planner.decide.suggestions.changes import faster_options
from planner.optimize.collector import full_rows, value_or_none
from planner.optimize.recommendation import RECOMMENDATION_RULE
from planner.optimize.result import Comparison, SearchResult
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import Candidates, first_row
from planner.question.request import ALL, Request
from planner.question.terms import Term, terms_about, terms_of
from planner.show.output_blocks import (
    GAP,
    TIE,
    TOTAL,
    Block,
    Code,
    KeyValues,
    Title,
    make_lines,
)  # fmt: skip
from planner.show.presenters.alternatives import (
    Alternatives,
    alternatives,
    alternatives_table,
    axis_blocks,
    front_line,
    legend_lines,
    other_axis_lines,
    without_plan_lines,
)
from planner.show.presenters.format_results import (
    format_host_memory,
    format_paged_states,
    format_result,
    label,
    number_of,
    row_settings_text,
    share,
    short_plan,
    without_origin,
)
from planner.show.presenters.infeasible import (
    assumed_number_blocks,
    counts_blocks,
    describe,
)
from planner.show.presenters.json_files import (
    plan_evidence,
    plan_facts,
    plan_limits,
    plan_manifest,
)
from planner.show.presenters.load_check import load_line, replay_result
from planner.show.presenters.pareto_front import (
    front_blocks,
    front_size,
    marked_rows,
    plan_objective_column,
)
from planner.show.presenters.prices import charged_in_full_line, plan_prices_lines
from planner.show.presenters.recommendation import (
    MOST_LINES,
    assumed_count_line,
    better_lines,
    change_lines,
    count_lines,
    further_lines,
    launch_target,
    next_line,
    other_plan_lines,
    question_texts,
    recommended_blocks,
    regret_line,
)
from planner.show.presenters.row_tables import RowFiles, result_blocks
from planner.show.presenters.workload_details import details_of
from planner.show.reports import LeverEffect, SearchReport, written_report
from planner.workloads.make_plan import Plan
from planner.workloads.saved_plan import SavedPlan, all_answers, non_default_parameters

if TYPE_CHECKING:
    from planner.decide.suggestions.changes import CostLever

_LINES, _ALL_LINES = 7, 1000
_MIN_DIFFERENCE = 1e-3
_NO_PLAN = "no plan: "
_MOST_PLAN_CHARACTERS = 38
_MOST_ALTERNATIVES, _LEAST_ALTERNATIVES, _MOST_CLOSING = 8, 3, 5


def interrupted_message(plan: Plan, result: SearchResult) -> str:
    """Return a sentence on how many configurations an interrupted search has evaluated."""
    done, total = result.configurations_evaluated, plan.problem.num_rows
    return (
        f"Interrupted after {format_count(done)} of {format_count(total)} configurations: the "
        "others may include better ones."
    )


def search_blocks(
    report: SearchReport,
    top: int,
    *,
    is_full: bool = False,
    details: Iterable[Block] = (),
    shows_warnings: bool = True,
) -> Iterator[Block]:
    """Yield the answer of a search, or nothing if it has no plan.

    Parameters
    ----------
    report : result of the search
    top : maximum number of rows of the front in the full form
    is_full : yield all results, the front, tables by input, and the assumptions
    details : blocks on the recommended plan in the full form
    shows_warnings : yield what the search did not finish
    """
    if report.recommended_row is None:
        return
    warnings = report.warnings if shows_warnings else ()
    if is_full:
        yield from _full_blocks(report, top, details)
    else:
        yield from _first_blocks(report, len(warnings))
    yield from (Title(text=warning) for warning in warnings)


def _first_blocks(report: SearchReport, extra: int) -> list[Block]:
    """Return the answer in `MOST_LINES` lines, less ``extra``, if possible.

    Left out first: empty lines, then alternatives beyond three, then lines below the table, then
    other plans.
    """
    chosen, better = alternatives(report), better_lines(report)
    number = 0 if chosen is None else len(chosen.rows)
    shown, gaps, most = min(_MOST_ALTERNATIVES, number), 2, _MOST_CLOSING
    others, lines = other_plan_lines(report), _closing_lines(report)
    first = [*_question_blocks(report)]
    notes, has_gap = len(others), True

    @cache
    def table(rows: int) -> tuple[list[Block], int]:
        """Return the alternatives in so many rows, and the lines that they take."""
        of_table = (
            []
            if chosen is None
            else [*_table_blocks(report, chosen.first(rows), _MOST_PLAN_CHARACTERS)]
        )
        return of_table, count_lines(of_table)

    while True:
        blocks: list[Block] = [*first, *[GAP] * has_gap]
        blocks += recommended_blocks(report, others[:notes])
        blocks.append(
            make_lines(*(f"  {line}" for line in further_lines(report)), indent="    ", most=2)
        )
        blocks += [*[GAP] * (gaps > 1), *_better_blocks(better)] if better else []
        blocks += [GAP] * (gaps > 0)
        closing = _closing_blocks(report, number - shown, lines[:most])
        of_table, height = table(shown)
        beyond = count_lines([*blocks, *closing]) + height + extra - MOST_LINES
        blocks += [*of_table, *closing]
        if beyond <= 0:
            return blocks
        if not has_gap:
            return [block for block in blocks if not isinstance(block, Code)]
        if gaps:
            gaps = gaps - 1 if beyond == 1 else 0  # each is one line at most
        elif shown > _LEAST_ALTERNATIVES:
            shown = max(shown - beyond, _LEAST_ALTERNATIVES)
        elif most:
            most = max(most - beyond, 0)
        elif notes:
            notes -= 1
        else:
            has_gap = False


def _table_blocks(
    report: SearchReport, chosen: Alternatives, max_characters: int | None = None
) -> Iterator[Block]:
    yield alternatives_table(report, chosen, max_characters)
    yield make_lines(*legend_lines(report, chosen), most=2, indent="")


def _question_blocks(report: SearchReport) -> Iterator[Block]:
    """Yield the question: model and GPUs, the work, and the price of a GPU-hour."""
    title, *others = question_texts(report)
    further = further_lines(report)
    yield make_lines(title, mark=TOTAL, indent="")
    yield make_lines(*filter(None, others[: len(others) - len(further)]), indent="", most=2)


def _better_blocks(lines: Sequence[str]) -> Iterator[Block]:
    yield make_lines(lines[0], mark=TIE, most=3)
    yield make_lines(*(f"  {line}" for line in lines[1:]), indent="    ", most=2)


def _closing_lines(report: SearchReport) -> list[str]:
    """Return what has no plan, the front, and what would change the answer, by importance."""
    changes = change_lines(report.workload.wording, report.open_facts)
    names = [
        axis
        for axis in report.comparisons
        if axis in report.requested_axes or axis == report.workload.profile_kind
    ]
    no_plan = [line for axis in names for line in without_plan_lines(report, axis)]
    lines = [
        *no_plan[:1],
        *changes[:1],
        front_line(report),
        *suggestion_lines(report.levers)[:1],
        *changes[1:],
        *other_axis_lines(report),
        *no_plan[1:],
    ]
    return [*filter(None, lines)]


def _closing_blocks(report: SearchReport, num_hidden: int, lines: Sequence[str]) -> list[Block]:
    """Return lines below the table, how much was assumed, and the next commands.

    ``num_hidden`` is the number of alternatives that are not shown.
    """
    command = str(report.manifest.get("command") or "")
    number = front_size(report)
    more = [
        format_counted(num_hidden, "more alternative") if num_hidden else "",
        f"{format_counted(number, 'plan')} on the front" if number > 1 else "",
    ]
    hidden = {"space", *report.comparisons}
    assumed = assumed_count_line(
        report.manifest.get("defaults") or {}, hidden, [*filter(None, more)]
    )
    blocks: list[Block] = [
        *(make_lines(line, most=1 if line.startswith(_NO_PLAN) else 2) for line in lines),
        *([make_lines(assumed)] if assumed else []),
    ]
    if len(shlex.split(command)) > 1:
        software = report.best_row.get(report.workload.profile_kind)
        target = launch_target(report.workload.name, software)
        return [*blocks, make_lines(next_line(command, target), most=2)]
    return [*blocks, Code(text=report.recommended_command)]


def suggestion_lines(levers: Sequence[LeverEffect]) -> list[str]:
    """Return a line with the two changes that lower the cost most, then one for each input."""
    changes = [lever for lever in levers if math.isfinite(lever.value)]
    if not changes:
        return []
    largest = sorted(changes, key=lambda lever: (lever.change > 0, -abs(lever.change)))[:2]
    texts = [f"{o.lever} {o.other} ({100 * o.change:+,.0f} %)" for o in largest]
    lines = [f"Changes of {label(changes[0].column)}: {', '.join(texts)}"]
    by_name: dict[str, list[LeverEffect]] = {}
    for lever in changes:
        by_name.setdefault(lever.lever, []).append(lever)
    for name, several in by_name.items():
        first = several[0]
        others = [f"{lever.other} {100 * lever.change:+,.0f} %" for lever in several]
        others[0] += f" ({label(first.column)} {format_result(first.column, first.value)})"
        lines.append(f"{name} ({first.current} here): {', '.join(others)}")
    return lines


def _full_blocks(report: SearchReport, top: int, details: Iterable[Block]) -> Iterator[Block]:
    """Yield the answer, the assumptions, all comparisons, the front, and the plan in full."""
    yield from _question_blocks(report)
    yield make_lines(*further_lines(report), indent="")
    yield GAP
    yield from recommended_blocks(report, other_plan_lines(report))
    if better := better_lines(report):
        yield GAP
        yield from _better_blocks(better)
    if defaults := report.manifest.get("defaults"):
        yield Title(text="Not given, assumed")
        yield KeyValues(pairs=defaults)
    if report.price_lines:
        yield GAP
        yield make_lines(*report.price_lines, most=_LINES)
    if (chosen := alternatives(report)) is not None:
        yield GAP
        yield from _table_blocks(report, chosen.first(_ALL_LINES))
    main = "" if chosen is None else chosen.axis
    for axis in report.comparisons:
        yield from axis_blocks(report, axis, has_table=axis != main)
    if line := regret_line(report):
        yield make_lines(line, indent="")
    yield from front_blocks(report, top)
    yield Title(text=f"The recommended {report.workload.wording.noun}")
    text = row_settings_text(report.workload, report.best_row)
    yield make_lines(text, indent="", most=_ALL_LINES)
    yield from details
    if lines := suggestion_lines(report.levers)[1:]:
        yield GAP
        yield make_lines("What would change the answer:", mark=TOTAL, indent="")
        yield make_lines(*lines, *report.lever_notes, most=_LINES)
    yield from counts_blocks(report)
    yield from assumed_number_blocks(
        report.manifest.get("assumed") or (), report.manifest.get("specs") or ()
    )


def recommended_details(plan: Plan, result: SearchResult) -> Iterator[Block]:
    """Yield memory and speed of the recommended plan, and the command that shows more."""
    if (best := result.recommended) is None:
        return
    details = details_of(plan)
    yield from details.memory_and_speed(plan, best)
    yield Title(text=details.to_see)
    yield Code(text=estimate_command(plan, best.row))


def assumed_line(plan: Plan) -> str:
    """Return the assumed values of a question in one line; "" if there are none."""
    shown_elsewhere = {"space", *plan.problem.axes}
    texts = [
        f"{name.replace('_', ' ')} {without_origin(origin)}"
        for name, origin in plan.defaults.items()
        if name not in shown_elsewhere
    ]
    return f"Assumed: {'; '.join(texts)}" if texts else ""


def starting_plan_line(plan: Plan, row: Row, starting_row: Row, rejected: str) -> str:
    """Return a line that compares the user's plan with the recommended one."""
    name = f"Yours: {short_plan(plan, starting_row)}"
    if rejected:
        return f"{name}: does not run ({rejected})"
    column = plan_objective_column(plan, plan.problem.objectives[0].name, row)
    current, better = number_of(starting_row, column), number_of(row, column)
    if math.isnan(current) or math.isnan(better) or not better:
        return name
    difference = abs(current / better - 1)
    text = f"{label(column)} {format_result(column, starting_row[column])}"
    if difference >= _MIN_DIFFERENCE:
        return f"{name}; {text}, {share(difference)} worse"
    return f"{name}; {text}, the same"


def unchanged_settings_line(plan: Plan, starting_row: Row) -> str:
    """Return a line on the user's settings that affect learning; "" if there are none."""
    names = terms_about("learning_setting", plan.workload.name)
    fixed = [name for name in names if plan.request.settings.get(name) == starting_row[name]]
    text = ", ".join(f"{name} {format_parameter(starting_row[name])}" for name in fixed)
    return f"Not changed, since it affects learning: {text}; --set tries others." if text else ""


def estimate_command(plan: Plan, row: Row) -> str:
    """Return the ``planner estimate`` command that predicts the plan of a result row."""
    workload, request = plan.workload, plan.request
    arguments = [] if workload.name == Request.workload else ["--workload", workload.name]
    answers = all_answers(plan, row)
    for name, term in terms_of(workload.name, "question").items():
        if "parameter" in term.kind:
            arguments += [term.option_name, str(row[name])]
        elif name in terms_about("chosen_by_plan") or getattr(request, name, None) is not None:
            arguments += _option_arguments(term, answers.get(name), getattr(Request, name, None))
    arguments += ["--gpus", str(row["num_gpus"])]
    parameters = terms_of(workload.name, "parameter")
    defaults = workload.unset_defaults(plan.source_of(row))
    for name, value in non_default_parameters(workload.name, row, defaults).items():
        abbreviation = parameters[name].short if name in parameters else ""
        arguments += ["--set", f"{abbreviation or name}={str(value).lower()}"]
    if request.specs is not None:
        arguments += ["--specs", str(request.specs)]
    return "planner estimate " + shlex.join(arguments)


def _option_arguments(term: Term, answer: object, default: object) -> list[str]:
    """Return the option and the value of an input; empty if it has its default."""
    if answer is None or answer == default:
        return []
    if term.type in ("second", "byte") and isinstance(answer, float):
        answer = f"{answer / term.scale:.12g}{term.unit}"
    if term.type == "flag":  # a flag that is on by default is switched off
        return [term.option_name if answer else f"--no-{term.option_name[2:]}"]
    text = str(answer).removesuffix(".0") if isinstance(answer, float) else str(answer)
    return [term.option_name, text]


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
    fastest, machine = first_row(result.table), best.source.inputs.machine
    host = {
        "host memory": format_host_memory(best.row, machine),
        "paged": format_paged_states(best.row),
    }
    replay = replay_result(plan, best).to_json() if plan.request.replay else None
    return {
        "recommended": SavedPlan.of(plan, best.row).to_dict(),
        "recommended_row": _full_row(plan, best.row),
        "recommended_limits": plan_limits(plan, best),
        "recommended_load": load_line(plan, best),
        "recommended_sure": {**plan_evidence(plan, best), "regret": value_or_none(result.regret)},
        "recommended_rule": RECOMMENDATION_RULE,
        "recommended_command": estimate_command(plan, best.row),
        "recommended_surer": options_that_raise_fit_probability(plan, best.row),
        "faster_options": _faster_options(plan, best),
        "recommended_host": {name: text for name, text in host.items() if text},
        "recommended_capacity_gib": best.source.usable_memory(best.row) / GIB,
        "recommended_replay": replay,
        "open_facts": plan_facts(plan, best),
        "proven_row": result.proven and _full_row(plan, result.proven.row),
        "tied_row": result.better_tied and _full_row(plan, result.better_tied.row),
        "fastest": SavedPlan.of(plan, fastest).to_dict(),
        "fastest_row": _full_row(plan, fastest),
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


def _full_row(plan: Plan, row: Row) -> dict[str, Value]:
    """The row of a plan with its intervals; None: an unknown number."""
    columns = {name: [value] for name, value in row.items()}
    return full_rows(columns, plan.problem.sources)[0]


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
