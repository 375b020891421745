"""``explain`` and ``operators``: the time of a plan by part, and its bounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, error_of, read_question
from planner.decide.explain.explanation import Explanation
from planner.decide.explain.operators import OperatorQuestion, time_operators
from planner.decide.explain.operators import read_question as read_operators
from planner.decide.explain.plan_comparison import replace_answers
from planner.errors import InfeasibleError, SearchSpaceError
from planner.question.parse_values import split_items
from planner.question.request import Answers, Request
from planner.show.output_blocks import Block
from planner.show.presenters.comparison import file_and_row
from planner.show.presenters.explanation import (
    add_operators,
    explain_plan,
    explanation_dict,
    explanation_report,
    operators_blocks,
)
from planner.show.presenters.json_files import plan_manifest
from planner.show.presenters.load_check import refuse_overload
from planner.show.presenters.plan_report import plan_blocks, recommended_of
from planner.show.presenters.row_tables import RowFiles
from planner.specs.catalogue import Catalogue
from planner.sweeps.find_plan import read_request_of_file
from planner.workloads.build_request import parse_settings
from planner.workloads.make_plan import make_plan


@record(kw_only=True)
class ExplainInputs:
    """A plan to explain, and the plan to compare it with.

    ``defaults`` are the values assumed for unspecified options of a search.
    """

    question: PlanQuestion
    request: Request
    against: Request | None
    defaults: Mapping[str, str]


@record(kw_only=True)
class Explained:
    """An explanation with its inputs."""

    inputs: ExplainInputs
    explanation: Explanation


def _read(call: Call) -> ExplainInputs:
    """Return the plan to explain: the specified one, or the one that a search recommends.

    Raises PlannerError if a value is invalid, or nothing fits.
    """
    question = read_question(call)
    request, defaults = question.request, {}
    if question.is_open:
        defaults = dict(make_plan(request).defaults)
        request = recommended_of(request).request()
    else:
        request = question.started
    against = _read_against(call, request)
    return ExplainInputs(question=question, request=request, against=against, defaults=defaults)


def _read_against(call: Call, base: Request) -> Request | None:
    """Return the request of the plan to compare with; None without one.

    It is a request, a file, changes of settings and answers, or their texts.
    Raises SpecError, SearchSpaceError or LaunchError if a name or a value is unknown, or a file
    holds no plan.
    """
    against = call.extra.get("against")
    if against is None or isinstance(against, Request):
        return against
    if isinstance(against, Mapping):
        return replace_answers(base, against, call.option_name)
    if isinstance(against, str | os.PathLike):
        return read_request_of_file(Path(against), None, {}, fallback=base)
    texts = list(map(str, against))  # type: ignore[call-overload]
    files = [text for text in texts if call.has_files and _is_file(text)]
    if len(files) > 1:
        raise SearchSpaceError(f"--against takes one plan, not {len(files)}: {', '.join(files)}.")
    settings = parse_settings([text for text in texts if text not in files])
    changes: Answers = {
        name: values[0] if len(values) == 1 else values for name, values in settings.items()
    }
    for text in files:
        path, row = file_and_row(text)
        return read_request_of_file(path, row, changes, call.specs, call.setting_name, base)
    if not texts:
        return None
    return replace_answers(base, changes, call.option_name) if changes else base


def _is_file(text: str) -> bool:
    """Whether a text names a plan file: it has no ``=``, or such a file exists."""
    return "=" not in text or os.path.exists(file_and_row(text)[0])


def _run(inputs: ExplainInputs) -> Explained:
    explanation = explain_plan(inputs.request, inputs.question.burst, inputs.against)
    return Explained(inputs=inputs, explanation=explanation)


def _present(explained: Explained, is_full: bool) -> Iterable[Block]:
    report = explanation_report(explained.explanation, is_open=explained.inputs.question.is_open)
    return plan_blocks(report, is_full=is_full)


def _write(files: RowFiles, explained: Explained, arguments: Sequence[str]) -> None:
    manifest = plan_manifest(explained.explanation.plan, arguments)
    is_open = explained.inputs.question.is_open
    files.finish(manifest, **explanation_dict(explained.explanation, is_open=is_open))


def _warn(explained: Explained) -> InfeasibleError | None:
    """Return the problem of a load that the GPUs cannot answer."""
    plan, evaluation = explained.explanation.plan, explained.explanation.evaluation
    return error_of(lambda: refuse_overload(plan, evaluation.candidates))


EXPLAIN = Command(read=_read, run=_run, present=_present, write=_write, warn=_warn)


@record(kw_only=True)
class OperatorInputs:
    """Operators to time, with their sizes, and the specs."""

    question: OperatorQuestion
    catalogue: Catalogue


def _read_operators(call: Call) -> OperatorInputs:
    """Return the operators of a call; raises PlannerError if a size is missing or not used."""
    operators = call.extra["operators"]
    texts = operators if isinstance(operators, list | tuple) else [operators]
    names = [name for text in texts for name in split_items(text, "an operator")]
    answers = {name: value for name, value in call.request.items() if name != "specs"}
    question = read_operators(names, answers, call.option_name)
    return OperatorInputs(question=question, catalogue=Catalogue(call.specs))


OPERATORS = Command(
    read=_read_operators,
    run=lambda inputs: time_operators(inputs.question, inputs.catalogue),
    present=lambda times, _: operators_blocks(times),
    write=add_operators,
)
