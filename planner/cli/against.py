"""The other plan of ``--against``: settings changed, or a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planner.cli.options import Given, option_name
from planner.plan.given import parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.question.request import Request


def against_request(given: Given, base: Request) -> Request | None:
    """The request of the other plan; None where none is asked for.

    Raises
    ------
    SpecError, SearchSpaceError, LaunchError
        A name or a value is unknown, or a file holds no plan.
    """
    from planner.cli.source import option_of
    from planner.decide.explaining.against import changed_request
    from planner.errors import SearchSpaceError
    from planner.show.views.compared_things import file_and_row
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
    from planner.show.views.compared_things import file_and_row

    return "=" not in text or os.path.exists(file_and_row(text)[0])
