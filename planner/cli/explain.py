"""``planner explain``: why a plan takes what it takes, and what would change that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.options import Given, option_name
from planner.cli.request import as_started, make_request
from planner.workloads.given import parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.question.request import Request


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
    """Explain a plan, or the recommended one: what bounds it, what would change it."""
    request = make_request(given)
    from planner.base.files import check_outputs
    from planner.show.answers import recommended_of
    from planner.show.terminal import make_console, write
    from planner.show.views.documents import plan_manifest, write_document
    from planner.show.views.explanation import explained_plan, explanation_blocks, explanation_dict
    from planner.show.views.load import refuse_overload

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


def against_request(given: Given, base: Request) -> Request | None:
    """The request of the other plan; None where none is asked for.

    Raises
    ------
    SpecError, SearchSpaceError, LaunchError
        A name or a value is unknown, or a file holds no plan.
    """
    from planner.cli.request import option_of
    from planner.decide.explaining.against import changed_request
    from planner.errors import SearchSpaceError
    from planner.show.views.comparison import file_and_row
    from planner.sweeps.any_plan import request_in

    texts: list[str] = given["against"] or []
    files = [text for text in texts if _is_file(text)]
    if len(files) > 1:
        raise SearchSpaceError(f"--against takes one plan, not {len(files)}: {', '.join(files)}.")
    changes: Mapping[str, object] = parse_settings([text for text in texts if text not in files])
    for text in files:
        path, row = file_and_row(text)
        return request_in(path, row, changes, given["specs"], option_of, base)
    if not texts:
        return None
    return changed_request(base, changes, option_name) if changes else base


def _is_file(text: str) -> bool:
    """Whether a text names a plan: it sets nothing, or there is such a file."""
    from planner.show.views.comparison import file_and_row

    return "=" not in text or os.path.exists(file_and_row(text)[0])
