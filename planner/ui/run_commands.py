"""Runs the command of a question: its page, its object, and data for pictures and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from planner.base.csv_cells import Row, number_or_nan
from planner.base.read_files import JsonObject, read_json, restrict_to_folders
from planner.base.records import record
from planner.commands.command import Answering, Call
from planner.commands.compare import COMPARE
from planner.commands.estimate import ESTIMATE, Estimated
from planner.commands.explain import EXPLAIN, Explained
from planner.commands.launch import LAUNCH, Launched
from planner.commands.max_batch import MAX_BATCH, MAX_LENGTH, Largest
from planner.commands.options import FILE, option_name
from planner.commands.search import SEARCH, Searched
from planner.commands.size import SIZE, Sized
from planner.commands.sweep import SWEEP, Swept
from planner.decide.explain.largest_fit import Methods
from planner.decide.sizing.size_all import Sizes
from planner.errors import InfeasibleError, PlannerError, SpecError
from planner.launch.targets import target_of
from planner.optimize.exhaustive import StopSearch
from planner.question.names import LOAD, SERVICES
from planner.question.terms import terms_about
from planner.show.output_blocks import (
    Block,
    Code,
    KeyValues,
    Lines,
    Page,
    Section,
    joined,
)
from planner.show.presenters.json_files import document_text, plan_manifest
from planner.show.presenters.largest_fit import methods_blocks
from planner.show.presenters.launch_file import launch_blocks
from planner.show.presenters.plots.picture import Picture
from planner.show.presenters.prices import api_comparison_blocks
from planner.show.presenters.search import estimate_command, interrupted_message
from planner.show.reports import Report, result_text, written_report
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import data_folders
from planner.sweeps.find_plan import read_saved_plan
from planner.sweeps.summary import summarize
from planner.ui.pages.page_of_file import LARGEST_TITLE, result_page, split_sections
from planner.ui.pages.sweep import sweep_page
from planner.ui.question import (
    AGAINST,
    PRICES,
    PRICES_FILE,
    THINGS,
    WORKLOAD,
    Question,
    parse_things,
    prices_csv,
)
from planner.ui.request_limits import Limits, RequestRefused, late_error
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import SavedPlan

ProgressCallback = Callable[[int, int], None]
"""Gets the steps done and their total; raises `StopSearch` when the time is over."""

_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
_MODEL_KEYS = ("architectures", "model_type")
UPLOADED = "uploaded"
"""The folder of uploaded files; a model of a config.json gets its name."""


@record(kw_only=True)
class CommandInput:
    """A question with a separate folder for its uploaded files."""

    question: Question
    folder: Path
    specs: Path | None
    limits: Limits
    report_progress: ProgressCallback

    @property
    def file(self) -> Path | None:
        """Return the path of the uploaded file, or the folder of several; None without upload."""
        if FILE not in self.question.fields:
            return None
        files = self.question.files
        if not files:
            raise SpecError("The uploaded file has expired: upload it again.")
        return self.folder / files[0][0] if len(files) == 1 else self.folder

    def uploaded_file(self, name: str) -> Path:
        """Return the path of the uploaded file of a field, the first one of several."""
        token, _, first = self.question.fields[name].rpartition(":")
        if not token:
            return Path(first)  # an example of the package
        if first not in (file for file, _ in self.question.files):
            raise SpecError(f"The file of {option_name(name)} has expired: upload it again.")
        return self.folder / first

    def request_arguments(self) -> dict[str, object]:
        """Return arguments for `make_request`; also writes the file of the user's prices."""
        arguments = self.question.request_arguments(self.specs)
        if text := self.question.fields.get(PRICES):
            path = self.folder.with_name(self.folder.name + "-own") / PRICES_FILE
            path.parent.mkdir(exist_ok=True)
            path.write_text(prices_csv(text), encoding="utf-8")
            arguments[PRICES] = str(path)
        return arguments

    def call(self) -> Call:
        """Return the call of the command: the fields of the question, and its uploaded files.

        The file of the plan may be of another workload than the form.
        """
        question, file = self.question, self.file
        request = self.request_arguments()
        extra: dict[str, object] = {**question.extra, "is_translated": True, "uses_cores": False}
        extra |= {name: self.uploaded_file(name) for name in (LOAD, SERVICES) if name in extra}
        extra |= {"is_layout": bool(question.settings), "takes_part": True}
        extra["output"] = self.folder.with_name("sweep")
        if THINGS in extra:
            extra[THINGS] = parse_things(str(extra[THINGS]), self.specs)
        if AGAINST in extra:
            extra[AGAINST] = str(extra[AGAINST]).split()
        if file is not None and _is_model_config(file):
            request = {"model": str(file), **request}
        elif file is not None:
            extra["from_file"] = file
            request.pop(WORKLOAD, None)
        return Call(
            request=request,
            extra=extra,
            option_name=option_name,
            setting_name=option_name,
            bar=self.bar,
            has_files=False,
            workload=question.workload,
        )

    @contextmanager
    def bar(self, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that reports the steps done.

        Raises RequestRefused if there are more configurations or scenarios than the limit.
        """
        limits = self.limits
        if unit == "scenarios" and total > limits.scenarios:
            raise RequestRefused(
                f"That is {total:,} scenarios; here a sweep has at most {limits.scenarios:,}. "
                "List fewer values, or use the command line.",
                413,
            )
        if unit in ("configurations", "trials") and total > limits.rows:
            raise RequestRefused(
                f"That is {total:,} {unit}; here a search has at most {limits.rows:,}. "
                "Narrow it with settings, or use the command line.",
                413,
            )
        self.report_progress(0, total)
        yield lambda done: self.report_progress(done, total)


@contextmanager
def prepare_input(
    question: Question, specs: Path | None, limits: Limits, report_progress: ProgressCallback
) -> Iterator[CommandInput]:
    """Yield the input of a command, with uploaded files written to a temporary folder.

    Within the context only this folder and spec folders can be read. A PlannerError that is raised
    there names uploaded files without the folder.
    """
    with TemporaryDirectory(prefix="planner-") as root:
        folder = Path(root, UPLOADED)
        folder.mkdir()
        for name, text in question.files:
            (folder / Path(name).name).write_text(text, encoding="utf-8")
        try:
            with restrict_to_folders((Path(root), _PACKAGE_FOLDER, *data_folders(specs))):
                yield CommandInput(
                    question=question,
                    folder=folder,
                    specs=specs,
                    limits=limits,
                    report_progress=report_progress,
                )
        except PlannerError as error:
            # Messages name uploaded files as the user does.
            if (prefix := f"{folder}{os.sep}") in str(error):
                error.args = (str(error).replace(prefix, ""), *error.args[1:])
            raise


def _is_model_config(path: Path) -> bool:
    """Whether a file is a model's ``config.json`` on Hugging Face."""
    if path.suffix != ".json":
        return False
    try:
        table = read_json(path)
    except SpecError:
        return False
    return isinstance(table, dict) and any(name in table for name in _MODEL_KEYS)


Result = TypeVar("Result")

WHERE = "the answer"


@record(kw_only=True)
class CommandResult:
    """The result of a command: its object, its page, and data for pictures and files.

    ``assumption_texts`` explain the values assumed for unspecified options of a launch file.
    ``line`` is the command that estimates its plan; ``draw`` draws a picture; ``texts`` are its
    launch files.
    """

    object: str
    page: Page
    line: str = ""
    pinned: SavedPlan | None = None
    draw: Callable[[Picture], None] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    assumption_texts: Mapping[str, str] = field(default_factory=dict)


def run_command(command_input: CommandInput) -> CommandResult:
    """Run the command of a question and return its result.

    Raises PlannerError if the question is invalid, infeasible, or beyond a limit.
    """
    try:
        command, make_result = _COMMANDS[command_input.question.command]
        result = make_result(command_input, command.answer(command_input.call()))
    except StopSearch as late:  # before there is any result
        raise late_error(command_input.limits) from late
    page = result.page
    if not page.headline:
        page = replace(page, headline=page.answer[0], answer=page.answer[1:])
    return replace(result, page=page)


def check_size(size: int, limits: Limits) -> None:
    """Raise RequestRefused if an answer has too many characters."""
    if size > limits.answer_bytes:
        megabytes = limits.answer_bytes / 2**20
        raise RequestRefused(
            f"The answer has more than {megabytes:g} MB: narrow the question, or use the command "
            "line.",
            413,
        )


def _answer(
    command: Answering[Result], result: Result, command_input: CommandInput, **more: Any
) -> CommandResult:
    """Return the text, the page and the picture of the result of a command, and ``more`` fields.

    Raises the error of a result without a plan, or RequestRefused if the text is too large.
    """
    if problem := command.problem(result):
        raise problem
    arguments = command_input.question.arguments
    report = written_report(lambda files: command.write(files, result, arguments), Report)
    text = result_text(report)
    check_size(len(text), command_input.limits)  # before its page is built
    page = more.get("page") or _page_of(report, command_input)
    if (apis := getattr(result, "apis", None)) is not None:
        blocks = api_comparison_blocks(apis, is_full=True)
        page = replace(page, sections=[*page.sections, *split_sections("API prices", blocks)])
    draw = None if command.draw is None else partial(_draw, command, result)
    return CommandResult(**{"object": text, "draw": draw, **more, "page": page})


def _draw(command: Answering[Result], result: Result, picture: Picture) -> None:
    if command.draw is not None:
        command.draw(picture, result)


def _page_of(report: Report, command_input: CommandInput) -> Page:
    """Return the page that `planner report` makes of a result."""
    return result_page(report, Catalogue(command_input.specs))


def _plan_fields(plan: Plan, row: Row) -> JsonObject:
    """Return the plan of a row, and the command that estimates it."""
    return {"pinned": SavedPlan.of(plan, row), "line": estimate_command(plan, row)}


def _search(command_input: CommandInput, searched: Searched) -> CommandResult:
    """Return the page of a search, with its API prices.

    Raises RequestRefused if its time was over before any plan.
    """
    plan, result, best = searched.plan, searched.result, searched.result.recommended
    if result.interrupted and result.fastest is None:
        raise late_error(command_input.limits)
    fields = _plan_fields(plan, best.row) if best is not None else {}
    answer = _answer(SEARCH, searched, command_input, **fields)
    if not result.interrupted:
        return answer
    page = _prepend_to_headline(answer.page, interrupted_message(plan, result))
    return replace(answer, page=page)


def _prepend_to_headline(page: Page, line: str) -> Page:
    """The page with a sentence before its headline."""
    sentence = " ".join(line.split())
    return replace(page, headline=f"{sentence} {page.headline}".strip())


def _estimate(command_input: CommandInput, estimated: Estimated) -> CommandResult:
    """Return the page of one configuration, or of an uploaded launch file."""
    plan, rule = estimated.plan, estimated.evaluation.rejected_by
    arguments, texts = command_input.question.arguments, _assumption_texts(estimated)
    if estimated.launch is not None and rule:
        return CommandResult(
            object=document_text(plan_manifest(plan, arguments), rejected_by=rule),
            page=_page_of(estimated.report(arguments), command_input),
            assumption_texts=texts,
            **_plan_fields(plan, estimated.launch.row),
        )
    fields = _plan_fields(plan, estimated.evaluation.candidates.row)
    return _answer(ESTIMATE, estimated, command_input, assumption_texts=texts, **fields)


def _assumption_texts(estimated: Estimated) -> dict[str, str]:
    """Return the values assumed for unspecified options of a launch file, with the reasons."""
    if estimated.launch is None:
        return {}
    imported = estimated.launch.question.imported
    return {
        name: f"{imported.values.get(name, '')} ({reason})"
        for name, reason in imported.assumed.items()
    }


def _size(command_input: CommandInput, sized: Sized) -> CommandResult:
    """Return the page of a size: of one run or service, of several services, or of pools."""
    result = _answer(SIZE, sized, command_input)
    if not isinstance(sized, Sizes) or sized.best is None:
        return replace(result, draw=None)
    fleet = sized.best.cheapest or sized.best.fewest
    if fleet is None:
        return result
    purchase = {name: fleet.row[name] for name in terms_about("purchase") if fleet.row.get(name)}
    plan = make_plan(sized.request.changed(**purchase))
    return replace(result, assumption_texts=fleet.chosen, **_plan_fields(plan, fleet.row))


def _sweep(command_input: CommandInput, swept: Swept) -> CommandResult:
    """Return the table of the best plans of a sweep.

    Raises InfeasibleError if no scenario has a plan; RequestRefused if the time was over before.
    """
    rows, plan = swept.rows, swept.sweep.plan
    if not any(row["feasible"] for row in rows):
        if swept.is_stopped:
            raise late_error(command_input.limits)
        reasons = dict.fromkeys(str(row["reason"]) for row in rows if row["reason"])
        first = f"None of {plan.num_scenarios:,} scenarios has a plan."
        raise InfeasibleError("\n".join([first, *reasons]))
    page = sweep_page(swept.sweep, Catalogue(command_input.specs))
    if swept.is_stopped:
        page = _prepend_to_headline(
            page,
            f"Time limit reached: only a part of {plan.num_scenarios:,} scenarios is answered.",
        )
    best = next(iter(summarize(swept.sweep.rows(), plan).groups)).recommended
    pinned = (
        None
        if best is None
        else read_saved_plan(swept.folder, int(number_or_nan(best["scenario"])))
    )
    return CommandResult(
        object=SWEEP.text(swept, command_input.question.arguments),
        page=page,
        pinned=pinned,
        line=_estimate_command_of(pinned) if pinned is not None else "",
        draw=partial(_draw, SWEEP, swept),
    )


def _estimate_command_of(pinned: SavedPlan) -> str:
    """The command line that estimates a plan."""
    plan = make_single_plan(pinned.request())
    return estimate_command(plan, evaluate(plan).candidates.row)


def _compare(command_input: CommandInput, compared: Any) -> CommandResult:
    """Return the comparison of the plans or specs that a question names."""
    answer = _answer(COMPARE, compared, command_input)
    title = f"Which is better: {' or '.join(thing.text for thing in compared.things)}?"
    return replace(answer, page=replace(answer.page, title=title))


def _explain(command_input: CommandInput, explained: Explained) -> CommandResult:
    """Return the bottlenecks of a plan, and its differences from another plan if named."""
    plan, evaluation = explained.explanation.plan, explained.explanation.evaluation
    estimated = Estimated(plan=plan, evaluation=evaluation)
    return _answer(
        EXPLAIN, explained, command_input, draw=partial(_draw, ESTIMATE, estimated),
        assumption_texts=explained.inputs.defaults,
        **_plan_fields(plan, evaluation.candidates.row),
    )  # fmt: skip


def _largest(
    command: Answering[Largest | Methods], command_input: CommandInput, answer: Largest | Methods
) -> CommandResult:
    """Return the largest batch or length that fits; for several methods, the largest of each."""
    if isinstance(answer, Methods):
        page = _methods_page(methods_blocks(answer))
        return _answer(command, answer, command_input, page=page)
    fields = _plan_fields(answer.plan, answer.evaluation.candidates.row)
    result = _answer(command, answer, command_input, assumption_texts=answer.defaults, **fields)
    if command is not MAX_BATCH:
        return result
    manifest = plan_manifest(answer.plan, command_input.question.arguments)
    largest = answer.fits[0].to_dict()  # v1 of the interface has the one largest batch
    return replace(result, object=document_text(manifest, largest=largest))


def _launch(command_input: CommandInput, launched: Launched) -> CommandResult:
    """Return the launch files of a plan for a tool."""
    written, inputs = launched.launch, launched.inputs
    blocks = [
        block for block in launch_blocks(written, Path("plan")) if not isinstance(block, KeyValues)
    ]
    sections = [
        Section(title=file.name, blocks=[Code(text=file.text)], is_folded=index > 0)
        for index, file in enumerate(written.files)
    ]
    page = Page(
        title=f"How is it started with {target_of(inputs.target).title}?",
        question=[command_input.question.line],
        answer=[f"{file.name}: {file.meaning}" for file in written.files],
        sections=[*split_sections("What it starts", blocks), *sections],
    )
    return CommandResult(
        object=LAUNCH.text(launched, command_input.question.arguments),
        page=page,
        pinned=written.job.saved_plan,
        texts={file.name: file.text for file in written.files},
    )


_COMMANDS: Mapping[str, tuple[Answering[Any], Callable[..., CommandResult]]] = {
    "search": (SEARCH, _search),
    "estimate": (ESTIMATE, _estimate),
    "size": (SIZE, _size),
    "sweep": (SWEEP, _sweep),
    "compare": (COMPARE, _compare),
    "explain": (EXPLAIN, _explain),
    "max-batch": (MAX_BATCH, partial(_largest, MAX_BATCH)),
    "max-length": (MAX_LENGTH, partial(_largest, MAX_LENGTH)),
    "launch": (LAUNCH, _launch),
}
"""Each command, and what makes the page of its result."""


def _methods_page(blocks: Iterable[Block]) -> Page:
    """Return a page of the largest batch of each method: sentences, then the table."""
    flat_blocks = joined(blocks)
    lines = [line.strip() for b in flat_blocks if isinstance(b, Lines) for line in b.lines]
    rest = [block for block in flat_blocks if not isinstance(block, Lines)]
    return Page(
        title=LARGEST_TITLE,
        question=lines[1:2],
        headline=lines[0],
        answer=lines[2:],
        sections=split_sections("In numbers", rest),
    )
