"""``compare``: plans, GPUs, models, software or specs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from planner.base.records import record
from planner.commands.command import Call, Command
from planner.decide.explain.plan_comparison import ComparedPlans
from planner.errors import SearchSpaceError
from planner.question.request import Answers, Request
from planner.show.output_blocks import Block
from planner.show.presenters.comparison import (
    ComparedThing,
    compared_plans,
    compared_specs,
    comparison_blocks,
    comparison_dict,
    has_question,
    specs_blocks,
    things_of,
)
from planner.show.presenters.json_files import command_manifest
from planner.show.presenters.row_tables import RowFiles
from planner.sweeps.find_plan import read_request_of_file


@record(kw_only=True)
class CompareInputs:
    """The compared things, and the answers that they have in common."""

    call: Call
    things: Sequence[ComparedThing]
    answers: Answers


@record(kw_only=True)
class Compared:
    """Compared plans; without a question the ``numbers`` of compared specs."""

    things: Sequence[ComparedThing]
    plans: ComparedPlans | None
    numbers: Mapping[str, Mapping[str, Sequence[object]]]


def _read(call: Call) -> CompareInputs:
    """Return the things of a call.

    Raises SpecError or SearchSpaceError if a thing is unknown, or they are of several kinds.
    """
    texts: Sequence[str] = call.extra["things"]  # type: ignore[assignment]
    answers = {name: value for name, value in call.request.items() if value is not None}
    return CompareInputs(call=call, things=things_of(texts, call.specs), answers=answers)


def _run(inputs: CompareInputs) -> Compared:
    """Return the comparison; raises InfeasibleError if fewer than two things have a plan."""
    call, things = inputs.call, inputs.things
    if not has_question(things, inputs.answers):
        return Compared(things=things, plans=None, numbers=compared_specs(things, call.specs))
    read = partial(read_request_of_file, specs=call.specs, option_name=call.setting_name)
    reader = read if call.has_files else _refuse_file
    plans = compared_plans(things, inputs.answers, reader, call.option_name)
    return Compared(things=things, plans=plans, numbers={})


def _refuse_file(path: Path, row: int | None, answers: Answers) -> Request:
    raise SearchSpaceError("Things are compared by name here.")


def _present(compared: Compared, is_full: bool) -> Iterable[Block]:
    if compared.plans is None:
        return specs_blocks(compared.things, compared.numbers, is_full=is_full)
    return comparison_blocks(compared.plans, is_full=is_full)


def _write(files: RowFiles, compared: Compared, arguments: Sequence[str]) -> None:
    plans = compared.plans
    parts = {"specs": compared.numbers} if plans is None else comparison_dict(plans)
    files.finish(command_manifest(arguments), **parts)


COMPARE = Command(read=_read, run=_run, present=_present, write=_write)
