"""Runs each command: its page, its object, and data for pictures and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from planner.base.csv_cells import number_or_nan
from planner.base.records import record
from planner.decide.explain.largest_fit import has_several, largest_batch, methods_of_layouts
from planner.decide.explain.plan_comparison import replace_answers
from planner.decide.fitting import MEMORIES
from planner.decide.sizing.budget import read_budget
from planner.decide.sizing.load_profile import read_load_or_trace
from planner.decide.sizing.shared_services import (
    read_services,
    read_stock,
    refuse_single_service_options,
    share_gpus,
)
from planner.decide.sizing.size_all import parse_contracts, size_all, sizing_tasks, without_contract
from planner.decide.suggestions.launch_changes import (
    allowed_changes,
    attempts_of,
    best_changes,
    recommended_change,
)
from planner.errors import InfeasibleError, LaunchError, SearchSpaceError
from planner.launch import SCRIPT, TARGETS
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchQuestion as LaunchQuestion
from planner.launch.read.launch_file import apply_engine_start, evaluate_launch, full_row
from planner.launch.targets import target_of
from planner.launch.write.rewrite_launch import can_express
from planner.launch.write.write_launch import make_launch, restrict_to_target, translate_request
from planner.optimize.exhaustive import StopSearch, exhaustive_search
from planner.optimize.result_columns import fit_probability
from planner.optimize.source import first_row
from planner.question.names import BUDGET, LOAD, SERVICES, STARTUP_TIME, STOCK
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.show.output_blocks import (
    Block,
    Code,
    KeyValues,
    Lines,
    Page,
    Section,
    Title,
    joined,
    make_lines,
)
from planner.show.presenters.comparison import compared_plans, plans_report, things_of
from planner.show.presenters.explanation import explain_plan, explanation_blocks, explanation_dict
from planner.show.presenters.infeasible import headline, infeasible_message, miss_texts
from planner.show.presenters.json_files import (
    add_estimate,
    command_manifest,
    document_text,
    finish_search,
    plan_manifest,
)
from planner.show.presenters.largest_fit import (
    add_methods,
    largest_blocks,
    largest_lines,
    methods_blocks,
    require_feasible_method,
)
from planner.show.presenters.launch_file import (
    change_blocks,
    launch_blocks,
    misfit_blocks,
    other_counts_blocks,
    understood_blocks,
)
from planner.show.presenters.pareto_front import marked_rows
from planner.show.presenters.plots.picture import Picture, draw
from planner.show.presenters.row_files import RowFiles, result_blocks
from planner.show.presenters.search import estimate_command, interrupted_message
from planner.show.presenters.services import add_services
from planner.show.presenters.sizes import add_sizes, question_lines, reason_lines
from planner.show.recommended_plan import evaluate_request, recommended_of
from planner.show.reports import (
    EstimateReport,
    ExplanationReport,
    Report,
    RowsReport,
    SearchReport,
    SizeReport,
    made_report,
    result_text,
    written_report,
)
from planner.specs.catalogue import Catalogue
from planner.sweeps.find_plan import read_saved_plan
from planner.sweeps.query import SweepQuery, draw_query
from planner.sweeps.read_plan import make_sweep
from planner.sweeps.run_sweep import Stopped, run_sweep
from planner.sweeps.summary import summarize
from planner.sweeps.sweep_folder import Sweep
from planner.ui.command_input import CommandInput
from planner.ui.pages.comparison import bounds_section, plans_page
from planner.ui.pages.page_of_file import result_page
from planner.ui.pages.sweep import sweep_page
from planner.ui.question import (
    AGAINST,
    SETTINGS,
    TARGET,
    THINGS,
    WORKLOAD,
    WRAPPER,
    Question,
    option_of,
    parse_things,
)
from planner.ui.request_limits import Limits, RequestRefused
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import (
    Plan,
    evaluate,
    make_plan,
    make_single_plan,
    result_of,
    with_assumption_notes,
)
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

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
        result = _COMMANDS[command_input.question.command](command_input)
    except StopSearch as late:  # before there is any result
        raise RequestRefused(_time_limit_message(command_input.limits), 504) from late
    return (
        result
        if result.page.headline
        else replace(
            result,
            page=replace(
                result.page, headline=result.page.answer[0], answer=result.page.answer[1:]
            ),
        )
    )


def check_size(size: int, limits: Limits) -> None:
    """Raise RequestRefused if an answer has too many characters."""
    if size > limits.answer_bytes:
        megabytes = limits.answer_bytes / 2**20
        raise RequestRefused(
            f"The answer has more than {megabytes:g} MB: narrow the question, or use the command "
            "line.",
            413,
        )


def _report_result(command_input: CommandInput, report: Report, **fields: Any) -> CommandResult:
    """Return the result of a command that has a page in `planner report`."""
    text = result_text(report)
    check_size(len(text), command_input.limits)  # before its page is built
    page = result_page(report, Catalogue(command_input.specs))
    return CommandResult(object=text, page=page, **fields)


def _search(command_input: CommandInput) -> CommandResult:
    """Return the result of a search question.

    Raises RequestRefused if it has too many configurations; InfeasibleError if none is feasible.
    """
    request, _ = command_input.read_request(is_search=True)
    plan = make_plan(request)
    total = plan.problem.num_rows
    if total > command_input.limits.rows:
        raise RequestRefused(
            f"That is {total:,} configurations; here a search has at most "
            f"{command_input.limits.rows:,}. "
            "Narrow it with settings, or use the command line.",
            413,
        )
    result = exhaustive_search(
        plan.problem, progress=lambda done: command_input.report_progress(done, total)
    )
    plan = with_assumption_notes(plan, result)
    if result.interrupted and result.fastest is None:
        raise RequestRefused(_time_limit_message(command_input.limits), 504)
    if result.fastest is None:
        raise InfeasibleError(infeasible_message(plan, result))

    def add(files: RowFiles) -> None:
        files.add(result_blocks(plan, marked_rows(plan, result)))
        finish_search(
            files, plan, result, command_input.question.arguments, {"driver": "exhaustive"}
        )

    def draw_picture(picture: Picture) -> None:
        draw(picture, plan, result if picture.name == "front" else result.recommended)

    best = result.recommended
    command = _report_result(
        command_input,
        written_report(add, SearchReport),
        draw=draw_picture,
        line=estimate_command(plan, best.row) if best is not None else "",
        pinned=SavedPlan.of(plan, best.row) if best is not None else None,
    )
    if result.interrupted:
        return replace(
            command, page=_prepend_to_headline(command.page, interrupted_message(plan, result))
        )
    return command


def _prepend_to_headline(page: Page, line: str) -> Page:
    """The page with a sentence before its headline."""
    sentence = " ".join(line.split())
    return replace(page, headline=f"{sentence} {page.headline}".strip())


def _time_limit_message(limits: Limits) -> str:
    return f"It takes more than {limits.seconds:g} s: narrow the question, or use the command line."


def _estimate(command_input: CommandInput) -> CommandResult:
    """Return the predicted configuration of a question or of an uploaded launch file.

    Raises InfeasibleError if the configuration of the question is rejected.
    """
    request, launch = command_input.read_request()
    if launch is not None:
        return _estimate_launch_file(command_input, request, launch)
    plan = make_single_plan(request)
    evaluation = evaluate(plan)
    if evaluation.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
    return _estimate_result(command_input, plan, evaluation)


def _estimate_result(
    command_input: CommandInput, plan: Plan, evaluation: Evaluation
) -> CommandResult:
    """Return the prediction of a configuration as a page, a JSON object and pictures."""
    row = evaluation.candidates.row
    arguments = command_input.question.arguments
    return _report_result(
        command_input,
        written_report(
            lambda files: add_estimate(files, plan, evaluation, arguments), EstimateReport
        ),
        draw=lambda picture: draw(picture, plan, evaluation.candidates),
        line=estimate_command(plan, row),
        pinned=SavedPlan.of(plan, row),
    )


def _estimate_launch_file(
    command_input: CommandInput, request: Request, launch: LaunchQuestion
) -> CommandResult:
    """Return the result of a launch file: its settings, prediction and suggested changes."""
    imported: ImportedLaunch = launch.imported
    plan, evaluation, notes = evaluate_launch(request)
    row = full_row(evaluation)
    defaults = imported.defaults.keys() - command_input.question.settings.keys()
    changes = allowed_changes(request, row, partial(can_express, imported), defaults)
    best, is_feasible = (
        recommended_change(best_changes(plan, evaluation, changes)),
        not evaluation.rejected_by,
    )
    attempts = None
    if best is None and evaluation.rejected_by in MEMORIES:
        attempts = attempts_of(plan, evaluation, changes, imported.target.profiles)
    assumption_texts = {
        name: f"{imported.values.get(name, '')} ({reason})"
        for name, reason in imported.assumed.items()
    }
    understood = [
        *understood_blocks(imported, is_full=True), make_lines(*notes),
        *other_counts_blocks(launch),
    ]  # fmt: skip
    better = [
        *change_blocks(
            plan.workload.name,
            best,
            row,
            is_running=is_feasible,
            fits=fit_probability(row),
            attempts=attempts,
        )
    ]
    sections = [
        Section(title="What would be better", blocks=better),
        *_sections("What the file sets", understood),
    ]
    if is_feasible:
        estimate = _estimate_result(command_input, plan, evaluation)
        first, *others = estimate.page.sections
        page = replace(estimate.page, sections=[first, *sections, *others])
        return replace(estimate, page=page, assumption_texts=assumption_texts)
    result = result_of(plan, evaluation)
    needs = [*misfit_blocks(plan, row)] if evaluation.rejected_by in MEMORIES else []
    page = Page(
        title=str(imported.path.name),
        question=[f"{imported.target.title}, as {imported.path.name} starts it"],
        answer=[headline(plan, result)],
        sections=[*_sections("Memory needed", needs), *sections],
    )
    manifest = plan_manifest(plan, command_input.question.arguments)
    return CommandResult(
        object=document_text(manifest, rejected_by=evaluation.rejected_by),
        page=page,
        line=estimate_command(plan, row),
        pinned=SavedPlan.of(plan, row),
        assumption_texts=assumption_texts,
    )


def _size(command_input: CommandInput) -> CommandResult:
    """Return the fewest and the cheapest GPUs of each type that keep the limits.

    Raises InfeasibleError if no GPU type does.
    """
    arguments, fields = command_input.request_arguments(), command_input.question.fields
    contracts = parse_contracts(arguments.get("contract"), option_of("contract"))
    if SERVICES in fields:
        return _services(command_input, arguments, contracts)
    if STOCK in fields:
        raise SearchSpaceError(f"{option_of(STOCK)} needs {option_of(SERVICES)}.")
    request, load = read_load_or_trace(
        without_contract(make_request(arguments, option_name=option_of)),
        command_input.uploaded_file(LOAD) if LOAD in fields else None,
        fields.get(STARTUP_TIME),
        option_of,
    )
    budget = fields.get(BUDGET)
    options: dict[str, Any] = {
        LOAD: load,
        "startup": command_input.startup,
        BUDGET: None if budget is None else read_budget(budget, option_of(BUDGET)),
    }
    total = len(sizing_tasks(request, contracts, option_name=option_of, **options))
    command_input.report_progress(0, total)
    sizes = size_all(
        request,
        contracts,
        option_name=option_of,
        progress=lambda done: command_input.report_progress(done, total),
        **options,
    )
    if sizes.best is None:
        lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
        raise InfeasibleError("\n".join(lines))

    def draw_picture(picture: Picture) -> None:
        from planner.show.presenters.plots.curves import size_picture

        draw(picture, *size_picture(picture.name, sizes))

    arguments_line = command_input.question.arguments
    report = written_report(lambda files: add_sizes(files, sizes, arguments_line), SizeReport)
    command = _report_result(command_input, report, draw=draw_picture)
    fleet = sizes.best.cheapest or sizes.best.fewest
    if fleet is None:
        return command
    purchase = {name: fleet.row[name] for name in terms_about("purchase") if fleet.row.get(name)}
    plan = make_plan(sizes.request.changed(**purchase))
    pinned, line = SavedPlan.of(plan, fleet.row), estimate_command(plan, fleet.row)
    return replace(command, pinned=pinned, line=line, assumption_texts=fleet.chosen)


def _services(
    command_input: CommandInput, values: Mapping[str, object], contracts: Sequence[str | None]
) -> CommandResult:
    """Return the result of sizing several services that share GPUs."""
    fields = command_input.question.fields
    refuse_single_service_options(fields, option_of)
    common = {name: value for name, value in values.items() if name != WORKLOAD}
    services, stock = read_services(command_input.uploaded_file(SERVICES), common, option_of)
    command_input.report_progress(0, len(services))
    fleet = share_gpus(
        services,
        read_stock(fields[STOCK], option_of(STOCK)) if STOCK in fields else stock,
        contracts,
        startup=command_input.startup,
        option_name=option_of,
        progress=lambda done: command_input.report_progress(done, len(services)),
    )
    line = command_input.question.arguments
    report = written_report(lambda files: add_services(files, fleet, line), SizeReport)
    return _report_result(command_input, report)


def _sweep(command_input: CommandInput) -> CommandResult:
    """Run every scenario of a sweep and return the table of their best plans.

    Raises RequestRefused if there are too many scenarios; InfeasibleError if none has a plan.
    """
    question = command_input.question
    arguments = command_input.request_arguments()
    limits, settings = question.limits, arguments.pop(SETTINGS, {})
    del arguments["constraints"]
    del arguments["specs"]
    plan = make_sweep(
        {**arguments, **limits, SETTINGS: settings}, command_input.specs, option_name=option_of
    )
    total = plan.num_scenarios
    if total > command_input.limits.scenarios:
        raise RequestRefused(
            f"That is {total:,} scenarios; here a sweep has at most "
            f"{command_input.limits.scenarios:,}. "
            "List fewer values, or use the command line.",
            413,
        )
    folder = command_input.folder.with_name("sweep")
    command_input.report_progress(0, total)
    notes = ""
    try:
        run_sweep(plan, folder, progress=lambda done: command_input.report_progress(done, total))
    except Stopped:
        notes = f"Time limit reached: only a part of {total:,} scenarios is answered."
    sweep = Sweep(folder)
    rows = [dict(row.items()) for row in sweep.rows()]
    if not any(row["feasible"] for row in rows):
        if notes:
            raise RequestRefused(_time_limit_message(command_input.limits), 504)
        reasons = dict.fromkeys(str(row["reason"]) for row in rows if row["reason"])
        raise InfeasibleError("\n".join([f"None of {total:,} scenarios has a plan.", *reasons]))
    page = sweep_page(sweep, Catalogue(command_input.specs))
    manifest = command_manifest(question.arguments)
    best = next(iter(summarize(sweep.rows(), plan).groups)).best.values()
    pinned = next(
        (read_saved_plan(folder, int(number_or_nan(row["scenario"]))) for row in best), None
    )
    return CommandResult(
        object=document_text(manifest, rows=rows),
        page=_prepend_to_headline(page, notes) if notes else page,
        pinned=pinned,
        line=_estimate_command_of(pinned) if pinned is not None else "",
        draw=lambda picture: draw_query(picture, SweepQuery(folder=folder)),
    )


def _estimate_command_of(pinned: SavedPlan) -> str:
    """The command line that estimates a plan."""
    plan = make_single_plan(pinned.request())
    return estimate_command(plan, evaluate(plan).candidates.row)


def _compare(command_input: CommandInput) -> CommandResult:
    """Return the comparison of the plans or specs that a question names."""
    question = command_input.question
    things = things_of(
        parse_things(question.fields.get(THINGS, ""), command_input.specs), command_input.specs
    )
    arguments = {name: value for name, value in command_input.request_arguments().items() if value}
    comparison = compared_plans(things, arguments, _no_file, option_of)
    report = plans_report(comparison, command_manifest(question.arguments))
    title = f"Which is better: {' or '.join(thing.text for thing in things)}?"
    page = replace(plans_page(report), title=title)
    return CommandResult(object=result_text(report), page=page)


def _no_file(*_: object, **__: object) -> Request:
    raise SearchSpaceError("Things are compared by name here.")


def _explain(command_input: CommandInput) -> CommandResult:
    """Return the bottlenecks of a plan, and its differences from another plan if named.

    Without settings or an uploaded file, the recommended plan is explained.
    """
    request, launch = command_input.read_request()
    assumption_texts: Mapping[str, str] = {}
    if launch is not None:
        request, _ = apply_engine_start(request)
    elif not command_input.question.settings and not command_input.question.files:
        assumption_texts = make_plan(request).defaults
        request = recommended_of(request).request()
    against = None
    if settings_text := command_input.question.fields.get(AGAINST):
        changes = Question(
            command="explain", workload=request.workload, fields={SETTINGS: settings_text}
        ).settings
        against = replace_answers(request, changes, option_of)
    explained = explain_plan(request, None, against)
    manifest = plan_manifest(explained.plan, command_input.question.arguments)
    report = made_report({**explanation_dict(explained), "manifest": manifest}, ExplanationReport)
    blocks = joined(explanation_blocks(explained, is_full=True))
    first = next(
        (index for index, block in enumerate(blocks) if isinstance(block, Title)), len(blocks)
    )
    parts, number = _sections("", blocks[first:]), int(explained.against is not None)
    estimate = _estimate_result(command_input, explained.plan, explained.evaluation)
    page = replace(
        estimate.page,
        title=f"Where do the time and memory of {estimate.page.subject} go?",
        sections=[
            *parts[:number],
            bounds_section(report),
            *(replace(section, is_folded=True) for section in parts[number:]),
            *estimate.page.sections,
        ],
    )
    return replace(
        estimate, object=result_text(report), page=page, assumption_texts=assumption_texts
    )


def _max_batch(command_input: CommandInput) -> CommandResult:
    """Return the largest batch that fits; for several methods, the largest one of each.

    Raises InfeasibleError if none fits.
    """
    request, launch = command_input.read_request()
    is_open = launch is None and not command_input.question.settings
    if limits := command_input.question.limits:
        request = make_request({"constraints": limits}, base=request, option_name=option_of)
    if not is_open and launch is None and has_several(request):
        methods = methods_of_layouts(request)
        require_feasible_method(methods)
        line = command_input.question.arguments
        report = written_report(lambda files: add_methods(files, methods, line), RowsReport)
        page = _lines_page(command_input, [*methods_blocks(methods)])
        return CommandResult(object=result_text(report), page=page)
    if launch is not None:
        request, _ = apply_engine_start(request)
    assumption_texts = make_plan(request).defaults if is_open else {}
    plan, evaluation = evaluate_request(request, is_open=is_open)
    largest = largest_batch(plan, evaluation)
    if largest.largest is None:
        missed = miss_texts(plan, result_of(plan, evaluation))
        raise InfeasibleError(" ".join(largest_lines(plan, largest, missed)))
    row = first_row(evaluation.table())
    manifest = plan_manifest(plan, command_input.question.arguments)
    lines = largest_lines(plan, largest)
    page = _lines_page(command_input, [*largest_blocks(plan, row, [largest])], lines)
    return CommandResult(
        object=document_text(manifest, largest=largest.to_dict()),
        page=page,
        line=estimate_command(plan, evaluation.candidates.row),
        pinned=SavedPlan.of(plan, evaluation.candidates.row),
        assumption_texts=assumption_texts,
    )


def _launch(command_input: CommandInput) -> CommandResult:
    """Return the launch files of a plan for a tool.

    Without settings or an uploaded file, the files start the recommended plan.
    """
    target = command_input.question.fields.get(TARGET, "")
    if not target:
        raise LaunchError(f"Name the tool to write files for: {', '.join(TARGETS)}.")
    tool = target_of(target)
    question = command_input.question
    if question.workload not in tool.workloads and not question.files:
        question = replace(question, workload=tool.workloads[0])
    command_input = replace(command_input, question=question)
    request, launch = command_input.read_request()
    if launch is not None:
        request, _ = apply_engine_start(request)
    elif not question.settings and not question.files:
        request = recommended_of(restrict_to_target(request, target)).request()
    launch_files = make_launch(
        translate_request(request, target), target, question.fields.get(WRAPPER, SCRIPT)
    )
    folder = Path("plan")
    blocks = [
        launch_block
        for launch_block in launch_blocks(launch_files, folder)
        if not isinstance(launch_block, KeyValues)
    ]
    sections = [
        Section(title=file.name, blocks=[Code(text=file.text)], is_folded=index > 0)
        for index, file in enumerate(launch_files.files)
    ]
    pinned = launch_files.job.saved_plan
    page = Page(
        title=f"How is it started with {tool.title}?",
        question=[question.line],
        answer=[f"{file.name}: {file.meaning}" for file in launch_files.files],
        sections=[*_sections("What it starts", blocks), *sections],
    )
    texts = {file.name: file.text for file in launch_files.files}
    manifest = command_manifest(question.arguments)
    return CommandResult(
        object=document_text(
            manifest, target=target, files=texts, starts=list(launch_files.starts)
        ),
        page=page,
        pinned=pinned,
        texts=texts,
    )


_COMMANDS: Mapping[str, Callable[[CommandInput], CommandResult]] = {
    "search": _search,
    "estimate": _estimate,
    "size": _size,
    "sweep": _sweep,
    "compare": _compare,
    "explain": _explain,
    "max-batch": _max_batch,
    "launch": _launch,
}


def _lines_page(
    command_input: CommandInput, blocks: Sequence[Block], answer: Sequence[str] = ()
) -> Page:
    """Return a page of terminal blocks; ``answer`` has the lines of the answer.

    Without ``answer``, the first line is the question and the others are the answer.
    """
    flat_blocks = joined(blocks)
    lines = [line.strip() for b in flat_blocks if isinstance(b, Lines) for line in b.lines]
    rest = [block for block in flat_blocks if not isinstance(block, Lines)]
    return Page(
        title="What is the largest batch that fits?",
        question=[line for line in lines if line not in answer] if answer else lines[:1],
        answer=answer or lines[1:] or lines,
        sections=_sections("In numbers", rest),
    )


def _sections(title: str, blocks: Iterable[Block]) -> list[Section]:
    """Return sections of blocks by their titles; ``title`` is for blocks before the first one."""
    sections: list[tuple[str, list[Block]]] = [(title, [])]
    for block in blocks:
        if isinstance(block, Title):
            sections.append((block.text, []))
        else:
            sections[-1][1].append(block)
    return [Section(title=name, blocks=content) for name, content in sections if joined(content)]
