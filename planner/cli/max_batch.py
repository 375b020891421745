"""``planner max-batch`` and ``planner max-length``: the largest batch or length that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.options import apply_engine_start, make_request, split_answers

if TYPE_CHECKING:
    from planner.decide.explain.largest_fit import LargestFit
    from planner.question.request import Request
    from planner.workloads.make_plan import Plan
    from planner.workloads.workload import Evaluation

_HOW = (
    "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision", "json", "specs",
    "quiet",
)  # fmt: skip


@options.with_term_options("question", "limit", without=("space",), how=(*_HOW, "csv"))
def max_batch(values: options.OptionValues) -> None:
    """Find the largest micro-batch, or the most concurrent requests, within memory and limits."""
    from planner.decide.explain.largest_fit import has_several, largest_batch
    from planner.errors import SearchSpaceError

    request = make_request(values)
    if not _has_open_layout(values) and has_several(request):
        _print_methods(values, _with_limits(values, request))
        return
    if values["csv"]:
        raise SearchSpaceError(
            "--csv has a row for each of several methods: list some, as --set zero_stage=2,3."
        )
    _print_largest(values, request, lambda plan, evaluation: [largest_batch(plan, evaluation)])


@options.with_term_options("question", "limit", without=("space",), how=_HOW)
def max_length(values: options.OptionValues) -> None:
    """Find the longest sequence, prompt or answer that fits and keeps the limits."""
    from planner.decide.explain.largest_fit import largest_length

    _print_largest(
        values,
        make_request(values),
        lambda plan, evaluation: [
            largest_length(plan, evaluation, name)
            for name in plan.workload.longest or plan.workload.lengths
            if getattr(evaluation.source.inputs.workload, name)  # an answer of none stays so
        ],
    )


def _has_open_layout(values: options.OptionValues) -> bool:
    """Whether the user specifies no layout, so that the recommended plan is used."""
    return not (values["plan"] or values["from_file"] or values["settings"])


def _print_methods(values: options.OptionValues, request: Request) -> None:
    """Print and write a row for each method that the question lists."""
    from planner.base.atomic_write import check_outputs
    from planner.decide.explain.largest_fit import methods_of_layouts
    from planner.errors import SearchSpaceError
    from planner.show.presenters.largest_fit import (
        add_methods,
        methods_blocks,
        require_feasible_method,
    )
    from planner.show.presenters.row_files import row_files
    from planner.show.terminal import make_console, print_blocks

    if values.get("imported") is not None:
        raise SearchSpaceError("A launch file has one method: give one value of each parameter.")
    csv, json = values["csv"], values["json"]
    check_outputs(csv, json)
    methods = methods_of_layouts(request)
    with row_files(csv, json) as files:
        add_methods(files, methods, values["context"].obj)
    if not values["quiet"]:
        print_blocks(make_console(stderr=Path("-") in (csv, json)), methods_blocks(methods))
    require_feasible_method(methods)


def _print_largest(
    values: options.OptionValues,
    question: Request,
    find_fits: Callable[[Plan, Evaluation], Sequence[LargestFit]],
) -> None:
    """Print and write the largest batches or lengths that ``find_fits`` finds for one plan.

    Raises InfeasibleError if not even the smallest one fits.
    """
    request = _with_limits(values, apply_engine_start(values, question))
    from planner.base.atomic_write import check_outputs
    from planner.errors import InfeasibleError
    from planner.optimize.source import first_row
    from planner.show.presenters.infeasible import miss_texts, start_problem
    from planner.show.presenters.json_files import plan_manifest, write_document
    from planner.show.presenters.largest_fit import largest_blocks, largest_lines
    from planner.show.presenters.load_check import refuse_overload
    from planner.show.recommended_plan import evaluate_request
    from planner.show.terminal import make_console, print_blocks
    from planner.workloads.make_plan import result_of

    json = values["json"]
    check_outputs(None, json)
    plan, evaluation = evaluate_request(request, is_open=_has_open_layout(values))
    fits = find_fits(plan, evaluation)
    document: list[dict[str, object]] = [
        {**fit.to_dict(), "sentences": largest_lines(plan, fit)} for fit in fits
    ]
    write_document(json, plan_manifest(plan, values["context"].obj), largest=document)
    if all(fit.largest is None for fit in fits):
        result = result_of(plan, evaluation)
        reasons = miss_texts(plan, result)
        lines = [line for fit in fits for line in largest_lines(plan, fit, reasons)]
        misses = result.nearest_misses
        starts = (f"The engine {start}." for miss in misses if (start := start_problem(miss)))
        raise InfeasibleError(" ".join((*lines, *starts)))
    if not values["quiet"]:
        row = first_row(evaluation.table())
        print_blocks(make_console(stderr=json == Path("-")), largest_blocks(plan, row, fits))
    if not evaluation.rejected_by:
        refuse_overload(plan, evaluation.candidates)


def _with_limits(values: options.OptionValues, request: Request) -> Request:
    """Return the request with the limits of the command line, also for a plan from a file."""
    from planner.workloads.build_request import make_request as read_request

    _, limits = split_answers(values)
    if not limits:
        return request
    return read_request({"constraints": limits}, base=request, option_name=options.option_name)
