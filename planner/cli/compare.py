"""``planner compare``: plans, GPUs, models, software or specs side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from planner.cli import options
from planner.cli.options import given_answers, option_of
from planner.workloads.given import parse_settings


@options.taking(
    "question",
    "limit",
    how=(
        "things", "num_gpus", "workload", "settings", "precision", "objective", "json", "full",
        "specs", "quiet",
    ),
)  # fmt: skip
def compare(given: options.Given) -> None:
    """Compare plans, specs or sweeps: what differs, which is better, what is tied."""
    from planner.base.files import check_outputs
    from planner.show.terminal import make_console, write
    from planner.show.views.comparison import (
        compared_plans,
        compared_specs,
        comparison_blocks,
        comparison_dict,
        has_question,
        specs_blocks,
        things_of,
    )
    from planner.show.views.documents import command_manifest, write_document
    from planner.sweeps.any_plan import request_in

    json = given["json"]
    check_outputs(None, json)
    things = things_of(given["things"], given["specs"])
    asked = _asked(given)
    console = make_console(stderr=json == Path("-"))
    manifest = command_manifest(given["context"].obj)
    if not has_question(things, asked):
        numbers = compared_specs(things, given["specs"])
        write_document(json, manifest, specs=numbers)
        if not given["quiet"]:
            write(console, specs_blocks(things, numbers, is_full=given["full"]))
        return
    read = partial(request_in, specs=given["specs"], said=option_of)
    found = compared_plans(things, asked, read, options.option_name)
    write_document(json, manifest, **comparison_dict(found))
    if not given["quiet"]:
        write(console, comparison_blocks(found, is_full=given["full"]))


def _asked(given: options.Given) -> dict[str, object]:
    """What was asked of all of them alike."""
    questions, limits = given_answers(given)
    asked: dict[str, object] = {**questions, "specs": given["specs"]}
    if options.is_given(given, "workload"):
        asked["workload"] = given["workload"]
    if settings := parse_settings(given["settings"] or []):
        asked["settings"] = settings
    if limits:
        asked["constraints"] = limits
    if given["objective"]:
        asked["objectives"] = ",".join(given["objective"])
    return {name: value for name, value in asked.items() if value is not None}
