"""A command, and one call of it: what its caller specified, and how the caller names it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from planner.base.records import record
from planner.errors import InfeasibleError, PlannerError
from planner.question.parse_values import parse_int
from planner.question.request import Answers, Request, Settings
from planner.workloads.build_request import OptionNamer, make_request

if TYPE_CHECKING:
    from planner.launch.read.launch_file import LaunchQuestion
    from planner.optimize.exhaustive import Progress
    from planner.show.output_blocks import Block
    from planner.show.presenters.plots.picture import Picture
    from planner.show.presenters.row_tables import RowFiles

Inputs = TypeVar("Inputs")
Result = TypeVar("Result")
Bar: TypeAlias = "Callable[[int, str], AbstractContextManager[Progress | None]]"
"""Shows the progress of a number of steps with this name; yields a function for the steps done."""


@contextmanager
def no_bar(total: int, unit: str) -> Iterator[None]:
    """Show no progress."""
    yield


def _ignore(*lines: str) -> None:
    """Show no lines."""


@record(kw_only=True)
class Call:
    """One call of a command.

    Parameters
    ----------
    request : the specified fields of `planner.Request`, by name
    extra : the specified values of the command that are no fields of a request, by name
    option_name : returns the name of a value in messages
    setting_name : like ``option_name``, but names the option of a parameter with its value
    bar : shows the progress
    note : shows lines about the question; `warn` also if the caller wants no output
    check : called with the question of the call once it is read
    has_files : whether the texts of the call may name files
    workload : the workload to read a file for; None: that of ``request``
    launch_text : read in place of the text of a launch file
    launch_answers : further answers to the missing terms of a launch file
    """

    request: Answers
    extra: Answers = field(default_factory=dict)
    option_name: OptionNamer = str
    setting_name: OptionNamer = str
    bar: Bar = no_bar
    note: Callable[..., None] = _ignore
    warn: Callable[..., None] = _ignore
    check: Callable[[PlanQuestion], None] = lambda _: None
    has_files: bool = True
    workload: str | None = None
    launch_text: str | None = None
    launch_answers: Answers = field(default_factory=dict)

    @property
    def specs(self) -> Path | None:
        """The folder of the user's specs."""
        specs = self.request.get("specs")
        return None if specs is None else Path(str(specs))

    @property
    def workers(self) -> int:
        """Number of processes; default: 1."""
        return parse_int(self.extra.get("workers") or 1, self.option_name("workers"), 1)

    @property
    def settings(self) -> Settings:
        """The settings of the call."""
        settings = self.request.get("settings")
        return settings if isinstance(settings, Mapping) else {}

    def number(self, name: str) -> int | None:
        """Return one of the command's own values as a number; None if it is not specified."""
        value = self.extra.get(name)
        return None if value is None else parse_int(value, self.option_name(name))


@record(kw_only=True)
class Command(Generic[Inputs, Result]):
    """A command: one way from values to an answer, for every caller.

    Parameters
    ----------
    read : the inputs of a call; raises PlannerError if a value is invalid
    run : the result of inputs
    present : the blocks of a result, in full or in short
    write : writes the result as rows or as a JSON object, with the arguments of its command line
    draw : draws a picture of a result
    problem : why a result has no feasible plan; None if it has one
    brief_problem : the problem in a line, where the blocks of a result say why; None: they do not
    is_written : whether a result is written though it has no feasible plan
    warn : the problem of a result that has a plan; None without one
    """

    read: Callable[[Call], Inputs]
    run: Callable[[Inputs], Result]
    present: Callable[[Result, bool], Iterable[Block]]
    write: Callable[[RowFiles, Result, Sequence[str]], None]
    draw: Callable[[Picture, Result], None] | None = None
    problem: Callable[[Result], PlannerError | None] = lambda _: None
    brief_problem: Callable[[Result], PlannerError | None] = lambda _: None
    is_written: Callable[[Result], bool] = lambda _: False
    warn: Callable[[Result], PlannerError | None] = lambda _: None

    def answer(self, call: Call) -> Result:
        """Return the result of a call; raises PlannerError if a value is invalid."""
        return self.run(self.read(call))

    def text(self, result: Result, arguments: Sequence[str]) -> str:
        """Return the JSON object of a result."""
        from planner.show.presenters.row_tables import RowFiles

        stream = StringIO()
        self.write(RowFiles(None, stream, None), result, arguments)
        return stream.getvalue()


Answering: TypeAlias = Command[Any, Result]
"""A command with results of one class, whatever its inputs."""


def error_of(check: Callable[[], None]) -> InfeasibleError | None:
    """Return the error that a check raises; None if it raises none."""
    try:
        check()
    except InfeasibleError as error:
        return error
    return None


@record(kw_only=True)
class PlanQuestion:
    """The request of a call, and the file that it comes from.

    ``file_request`` is the plan of the file, if the request searches around it; ``launch`` is the
    user's launch file; ``is_open``: no layout is specified, so that the recommended plan is used.
    """

    call: Call
    request: Request
    burst: int | None
    file_request: Request | None = None
    launch: LaunchQuestion | None = None
    is_open: bool = False

    @property
    def started(self) -> Request:
        """The request with the values that the engine of a launch file adjusts at its start."""
        if self.launch is None:
            return self.request
        from planner.launch.read.launch_file import apply_engine_start

        request, notes = apply_engine_start(self.request, self.burst)
        self.call.note(*notes)
        return request

    def with_limits(self, request: Request) -> Request:
        """Return a request with the limits of the call, also if it is that of a file."""
        limits = self.call.request.get("constraints")
        if not limits:
            return request
        name = self.call.option_name
        return make_request({"constraints": limits}, base=request, option_name=name)


def read_question(call: Call, *, is_search: bool = False) -> PlanQuestion:
    """Return the question of a call; a search leaves the layout of a file open.

    Limits and objectives change the plan of a file only in a search. Raises PlannerError if a
    value or a file is invalid.
    """
    from planner.workloads.build_request import read_burst, read_request, search_request

    values, base = dict(call.request), call.extra.get("base")
    launch = None
    is_of_file = base is None
    if is_of_file:
        base, launch = _read_file(call)
    else:
        base = read_request(cast(Request, base))
    if base is not None and is_of_file:
        values["workload"] = base.workload
        if not is_search:
            values = {n: v for n, v in values.items() if n not in ("constraints", "objectives")}
    question = search_request(base) if base is not None and is_search else base
    request = make_request(values, base=question, option_name=call.option_name)
    plan_question = PlanQuestion(
        call=call,
        request=request,
        burst=read_burst(request.workload, call.extra.get("burst"), call.option_name),
        file_request=base if is_of_file else None,
        launch=launch,
        is_open=base is None and not call.request.get("settings"),
    )
    call.check(plan_question)
    return plan_question


def _read_file(call: Call) -> tuple[Request | None, LaunchQuestion | None]:
    """Return the request of the file of a call, and its launch file; None without a file."""
    from planner.errors import SearchSpaceError

    name, plan, source = call.option_name, call.extra.get("plan"), call.extra.get("from_file")
    if source is None and plan is None and call.extra.get("row") is not None:
        raise SearchSpaceError(
            f"{name('row')} needs {name('from_file')}: the file or directory whose row it is."
        )
    if plan is not None and source is not None:
        raise SearchSpaceError(
            f"{name('plan')} and {name('from_file')} both give a plan: leave one out."
        )
    if plan is None and source is None:
        return None, None
    path = Path(str(plan if source is None else source))
    launch = _launch_of_file(call, path) if source is not None else None
    request = _saved_request(call, path) if launch is None else launch.request
    workload = call.request.get("workload")
    if call.workload is None and workload is not None and workload != request.workload:
        raise SearchSpaceError(
            f"{path} is a plan of {name('workload')} {request.workload}: leave "
            f"{name('workload')} out."
        )
    return request, launch


def _single(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _named_settings(call: Call) -> dict[str, object]:
    """Return the settings of a call by the full names of terms; one value is no list."""
    from planner.question.parse_values import full_name
    from planner.question.terms import glossary

    return {full_name(name, glossary()): _single(value) for name, value in call.settings.items()}


def _launch_of_file(call: Call, path: Path) -> LaunchQuestion | None:
    """Return the question of a user's launch file; None for a file of planner.

    A program that trains on generated answers is read for its whole step, not for the update only,
    unless the call names a workload.
    """
    from planner.sweeps.find_plan import is_launch_file

    if not is_launch_file(path):
        return None
    from planner.launch.read.launch_file import LaunchFile
    from planner.launch.targets.rl_reader_writer import trains_on_rollouts

    others = ("workload", "specs", "constraints", "settings", "objectives")
    answers = {n: v for n, v in call.request.items() if n not in others and v is not None}
    file = LaunchFile(
        path=path,
        answers={**answers, **_named_settings(call), **call.launch_answers},
        specs=call.specs,
        number=call.number("row"),
        text=call.launch_text,
        option_name=call.setting_name,
        workload=call.workload or call.request.get("workload"),
    )
    question = file.question()
    imported = question.imported
    if file.workload is None and imported.target.step and trains_on_rollouts(imported.answers):
        try:
            return replace(file, workload="rl").question()
        except PlannerError:  # the file may lack what a whole step needs
            return question
    return question


def _saved_request(call: Call, path: Path) -> Request:
    """Return the request of a file of planner; warns of the parameters that it lacks."""
    from planner.sweeps.find_plan import read_saved_plan

    saved_plan = read_saved_plan(path, call.number("row"), call.specs)
    if names := saved_plan.defaulted:
        head = f"{path} lacks {len(names)} parameters, as plans of older versions do; each has"
        call.warn(f"{head} its default: {', '.join(names)}.")
    try:
        return saved_plan.request()
    except PlannerError as error:
        raise type(error)(f"{path}: {error}") from error
