"""``planner explain``: why a plan takes what it takes, and what would change that."""

from __future__ import annotations

from pathlib import Path

from planner.cli import options
from planner.cli.request import as_started, make_request


@options.taking(
    "question",
    without=("space",),
    how=(
        *options.OF_ONE_PLAN,
        "against",
        "json",
        "full",
        "specs",
        "quiet",
    ),
)
def explain(given: options.Given) -> None:
    """Explain a plan, or the one that is recommended: what bounds it, what would change it."""
    request = make_request(given)
    from planner.base.files import check_outputs
    from planner.cli.against import against_request
    from planner.report.explanation import explained_plan, explanation_blocks, write_explanation
    from planner.report.load import refuse_overload
    from planner.report.recommended import recommended_of
    from planner.show.terminal import make_console, write

    json = given["json"]
    check_outputs(None, json)
    if not (given["plan"] or given["from_file"] or given["settings"]):
        request = recommended_of(request).request()
    request = as_started(given, request)
    explained = explained_plan(request, given["burst"], against_request(given, request))
    write_explanation(json, explained, given["context"].obj)
    if not given["quiet"]:
        console = make_console(stderr=json == Path("-"))
        write(console, explanation_blocks(explained, is_full=given["full"]))
    refuse_overload(explained.plan, explained.found.candidates)
