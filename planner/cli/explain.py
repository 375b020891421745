"""``planner explain`` and ``planner operators``: the time of a plan by part, and its bounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.options import OptionValues, apply_engine_start, make_request, option_name
from planner.workloads.build_request import parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.question.request import Request
from planner.cli.help import command_texts
from planner.question.parse_values import split_items


@options.with_term_options(
    "question",
    without=("space",),
    how=(*options.PLAN_OPTIONS, "against", "json", "full", "specs", "quiet"),
)
def explain(values: options.OptionValues) -> None:
    """Explain a plan, or the recommended one: what bounds it, what would change it."""
    request = make_request(values)
    from planner.base.atomic_write import check_outputs
    from planner.show.presenters.explanation import (
        explain_plan,
        explanation_blocks,
        explanation_dict,
    )
    from planner.show.presenters.json_files import plan_manifest, write_document
    from planner.show.presenters.load_check import refuse_overload
    from planner.show.recommended_plan import recommended_of
    from planner.show.terminal import make_console, print_blocks

    json = values["json"]
    check_outputs(None, json)
    if not (values["plan"] or values["from_file"] or values["settings"]):
        request = recommended_of(request).request()
    request = apply_engine_start(values, request)
    explained = explain_plan(request, values["burst"], against_request(values, request))
    if json is not None:
        manifest = plan_manifest(explained.plan, values["context"].obj)
        write_document(json, manifest, **explanation_dict(explained))
    if not values["quiet"]:
        console = make_console(stderr=json == Path("-"))
        print_blocks(console, explanation_blocks(explained, is_full=values["full"]))
    refuse_overload(explained.plan, explained.evaluation.candidates)


def against_request(option_values: OptionValues, base: Request) -> Request | None:
    """Return the request of the plan to compare with; None without --against.

    Raises SpecError, SearchSpaceError or LaunchError if a name or a value is unknown, or a file
    holds no plan.
    """
    from planner.cli.options import option_of
    from planner.decide.explain.plan_comparison import replace_answers
    from planner.errors import SearchSpaceError
    from planner.show.presenters.comparison import file_and_row
    from planner.sweeps.find_plan import read_request_of_file

    texts: list[str] = option_values["against"] or []
    files = [text for text in texts if _is_file(text)]
    if len(files) > 1:
        raise SearchSpaceError(f"--against takes one plan, not {len(files)}: {', '.join(files)}.")
    settings = parse_settings([text for text in texts if text not in files])
    changes: Mapping[str, object] = {
        name: values[0] if len(values) == 1 else values for name, values in settings.items()
    }
    for text in files:
        path, row = file_and_row(text)
        return read_request_of_file(path, row, changes, option_values["specs"], option_of, base)
    if not texts:
        return None
    return replace_answers(base, changes, option_name) if changes else base


def _is_file(text: str) -> bool:
    """Whether a text names a plan file: it has no ``=``, or such a file exists."""
    from planner.show.presenters.comparison import file_and_row

    return "=" not in text or os.path.exists(file_and_row(text)[0])


_HOW = ("operators", "num_gpus", "precision", "csv", "json", "specs", "quiet")


@options.with_term_options("operator", how=_HOW, texts=command_texts("operators"))
def operators(values: options.OptionValues) -> None:
    """Show how long one kernel, collective or copy takes, and what bounds it."""
    from planner.base.atomic_write import check_outputs
    from planner.decide.explain.operators import read_question, time_operators
    from planner.show.presenters.explanation import add_operators, operators_blocks
    from planner.show.presenters.row_files import row_files
    from planner.show.terminal import make_console, print_blocks
    from planner.specs.catalogue import Catalogue

    others = {"context", "operators", "csv", "json", "specs", "quiet"}
    answers = {n: v for n, v in values.items() if n not in others and options.is_set(values, n)}
    operator_names = [
        name for text in values["operators"] for name in split_items(text, "an operator")
    ]
    question = read_question(operator_names, answers, options.option_name)
    csv, json = values["csv"], values["json"]
    check_outputs(csv, json)
    times = time_operators(question, Catalogue(values["specs"]))
    with row_files(csv, json) as files:
        add_operators(files, times, values["context"].obj)
    if not values["quiet"]:
        print_blocks(make_console(stderr=Path("-") in (csv, json)), operators_blocks(times))
