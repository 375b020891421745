"""``planner compare``: plans, GPUs, models, software or specs side by side."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from planner.cli import options
from planner.cli.options import option_of, split_answers
from planner.workloads.build_request import parse_settings


@options.with_term_options(
    "question",
    "limit",
    how=(
        "things", "num_gpus", "workload", "settings", "precision", "objective", "json", "full",
        "specs", "quiet",
    ),
)  # fmt: skip
def compare(values: options.OptionValues) -> None:
    """Compare plans, specs or sweeps: what differs, which is better, what is tied."""
    from planner.base.atomic_write import check_outputs
    from planner.show.presenters.comparison import (
        compared_plans,
        compared_specs,
        comparison_blocks,
        comparison_dict,
        has_question,
        specs_blocks,
        things_of,
    )
    from planner.show.presenters.json_files import command_manifest, write_document
    from planner.show.terminal import make_console, print_blocks
    from planner.sweeps.find_plan import read_request_of_file

    json = values["json"]
    check_outputs(None, json)
    things = things_of(values["things"], values["specs"])
    answers = _shared_answers(values)
    console = make_console(stderr=json == Path("-"))
    manifest = command_manifest(values["context"].obj)
    if not has_question(things, answers):
        numbers = compared_specs(things, values["specs"])
        write_document(json, manifest, specs=numbers)
        if not values["quiet"]:
            print_blocks(console, specs_blocks(things, numbers, is_full=values["full"]))
        return
    read = partial(read_request_of_file, specs=values["specs"], option_name=option_of)
    comparison = compared_plans(things, answers, read, options.option_name)
    write_document(json, manifest, **comparison_dict(comparison))
    if not values["quiet"]:
        print_blocks(console, comparison_blocks(comparison, is_full=values["full"]))


def _shared_answers(values: options.OptionValues) -> dict[str, object]:
    """Return the inputs, settings and limits that apply to all compared plans."""
    questions, limits = split_answers(values)
    answers: dict[str, object] = {**questions, "specs": values["specs"]}
    if options.is_set(values, "workload"):
        answers["workload"] = values["workload"]
    if settings := parse_settings(values["settings"] or []):
        answers["settings"] = settings
    if limits:
        answers["constraints"] = limits
    if values["objective"]:
        answers["objectives"] = ",".join(values["objective"])
    return {name: value for name, value in answers.items() if value is not None}
