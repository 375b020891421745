"""``planner max-batch`` and ``planner max-length``: the most that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.options import as_started, given_answers, make_request

if TYPE_CHECKING:
    from planner.decide.explaining.largest import Largest
    from planner.question.request import Request
    from planner.workloads.base import Evaluation
    from planner.workloads.plan import Plan

_HOW = (
    "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision", "json", "specs",
    "quiet",
)  # fmt: skip


@options.taking("question", "limit", without=("space",), how=(*_HOW, "csv"))
def max_batch(given: options.Given) -> None:
    """Find the largest micro-batch, or the most concurrent requests, within memory and limits."""
    from planner.decide.explaining.largest import has_several, largest_batch
    from planner.errors import SearchSpaceError

    request = make_request(given)
    if not _is_open(given) and has_several(request):
        _show_methods(given, _with_limits(given, request))
        return
    if given["csv"]:
        raise SearchSpaceError(
            "--csv has a row for each of several methods: list some, as --set zero_stage=2,3."
        )
    _show(given, request, lambda plan, found: [largest_batch(plan, found)])


@options.taking("question", "limit", without=("space",), how=_HOW)
def max_length(given: options.Given) -> None:
    """Find the longest sequence, prompt or answer that fits and keeps the limits."""
    from planner.decide.explaining.largest import largest_length

    _show(
        given,
        make_request(given),
        lambda plan, found: [
            largest_length(plan, found, name)
            for name in plan.workload.longest or plan.workload.lengths
            if getattr(found.source.setting.workload, name)  # an answer of none stays so
        ],
    )


def _is_open(given: options.Given) -> bool:
    """Whether the layout is that of the recommended plan."""
    return not (given["plan"] or given["from_file"] or given["settings"])


def _show_methods(given: options.Given, request: Request) -> None:
    """A row for each method that the question lists."""
    from planner.base.files import check_outputs
    from planner.decide.explaining.largest import methods_of_layouts
    from planner.errors import SearchSpaceError
    from planner.show.terminal import make_console, write
    from planner.show.views.largest import add_methods, check_some, methods_blocks
    from planner.show.views.rows import row_files

    if given.get("imported") is not None:
        raise SearchSpaceError("A launch file has one method: give one value of each parameter.")
    csv, json = given["csv"], given["json"]
    check_outputs(csv, json)
    found = methods_of_layouts(request)
    with row_files(csv, json) as files:
        add_methods(files, found, given["context"].obj)
    if not given["quiet"]:
        write(make_console(stderr=Path("-") in (csv, json)), methods_blocks(found))
    check_some(found)


def _show(
    given: options.Given, asked: Request, find: Callable[[Plan, Evaluation], Sequence[Largest]]
) -> None:
    request = _with_limits(given, as_started(given, asked))
    from planner.base.files import check_outputs
    from planner.errors import InfeasibleError
    from planner.optimize.source import first_row
    from planner.show.answers import planned
    from planner.show.terminal import make_console, write
    from planner.show.views.documents import plan_manifest, write_document
    from planner.show.views.infeasible import missed_words, no_start
    from planner.show.views.largest import largest_blocks, largest_lines
    from planner.show.views.load import refuse_overload
    from planner.workloads.plan import result_of

    json = given["json"]
    check_outputs(None, json)
    plan, evaluation = planned(request, is_open=_is_open(given))
    found = find(plan, evaluation)
    document: list[dict[str, object]] = [
        {**one.to_dict(), "sentences": largest_lines(plan, one)} for one in found
    ]
    write_document(json, plan_manifest(plan, given["context"].obj), largest=document)
    if all(one.largest is None for one in found):
        result = result_of(plan, evaluation)
        missed = missed_words(plan, result)
        lines = [line for one in found for line in largest_lines(plan, one, missed)]
        misses = result.nearest_misses
        starts = (f"The engine {start}." for miss in misses if (start := no_start(miss)))
        raise InfeasibleError(" ".join((*lines, *starts)))
    if not given["quiet"]:
        row = first_row(evaluation.table())
        write(make_console(stderr=json == Path("-")), largest_blocks(plan, row, found))
    if not evaluation.rejected_by:
        refuse_overload(plan, evaluation.candidates)


def _with_limits(given: options.Given, request: Request) -> Request:
    """The request with the limits of the command line, beside a plan of a file too."""
    from planner.workloads.given import make_request as read_request

    _, limits = given_answers(given)
    if not limits:
        return request
    return read_request({"constraints": limits}, base=request, said=options.option_name)
