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
    from planner.show.terminal import make_console, write
    from planner.show.views.documents import plan_manifest, write_document
    from planner.show.views.explanation import explained_plan, explanation_blocks, explanation_dict
    from planner.show.views.load import refuse_overload
    from planner.show.views.recommended import recommended_of

    json = given["json"]
    check_outputs(None, json)
    if not (given["plan"] or given["from_file"] or given["settings"]):
        request = recommended_of(request).request()
    request = as_started(given, request)
    explained = explained_plan(request, given["burst"], against_request(given, request))
    if json is not None:
        manifest = plan_manifest(explained.plan, given["context"].obj)
        write_document(json, manifest, **explanation_dict(explained))
    if not given["quiet"]:
        console = make_console(stderr=json == Path("-"))
        write(console, explanation_blocks(explained, is_full=given["full"]))
    refuse_overload(explained.plan, explained.found.candidates)
