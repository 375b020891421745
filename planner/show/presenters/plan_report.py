"""An answer about one plan as blocks: on a terminal, in a notebook and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from planner.base import formatting
from planner.show.output_blocks import (
    BAD,
    BEST,
    GAP,
    TOTAL,
    Block,
    KeyValues,
    make_lines,
)
from planner.show.presenters.json_files import add_estimate, plan_manifest
from planner.show.presenters.plan_summary import full_blocks, is_predicted, summarize_plan
from planner.show.reports import (
    EstimateReport,
    ExplanationReport,
    LargestReport,
    made_report,
    written_report,
)
from planner.show.saved_blocks import load_blocks, save_blocks
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

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
    count = formatting.format_counted(len(summary.assumed), "thing")
    largest = f"; most depends on {summary.depends_on}" if summary.depends_on else ""
    return f"Assumed: {count} (--full){largest}."


def _lines(lines: Sequence[str], most: int) -> Iterator[Block]:
    """Yield each sentence on at most ``most`` lines of a terminal."""
    for line in lines:
        if line:
            yield make_lines(line, most=most)
