"""Plans side by side: differences only, the best by column, and ties."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from planner.base.formatting import format_large, format_parameter, join_words
from planner.base.records import record
from planner.base.units import HOUR
from planner.decide.explain.plan_comparison import ComparedPlans, PredictedPlan
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.launch import MANIFEST
from planner.layers.model import count_parameters
from planner.question.request import Answers, Request
from planner.show.output_blocks import (
    BEST,
    GAP,
    TIE,
    Block,
    Cell,
    Table,
    Title,
    make_lines,
    text_table,
)
from planner.show.presenters.explanation import predict_plan
from planner.show.presenters.format_results import format_result, label, short_plan
from planner.show.presenters.infeasible import infeasible_reason, where
from planner.show.presenters.plan_report import recommended_of
from planner.show.presenters.spec_numbers import scalar_fields, spec_table
from planner.show.reports import ComparedResult, PlansReport, SpecsReport, made_report
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind, names
from planner.workloads.build_request import OptionNamer, make_request

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Labels of compared things."""

_MOST_PLANS_WITH_INTERVALS = 2
_RESULTS, _SETTINGS, _PARTS = 5, 3, 3
_MEMORY, _HEADROOM = "peak_memory_gib", "memory_headroom_gib"


def comparison_blocks(comparison: ComparedPlans, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the compared plans, how they differ, their results, and the best per column."""
    report = made_report({"manifest": {}, **comparison_dict(comparison)}, PlansReport)
    yield from plans_blocks(report, is_full=is_full)


def plans_blocks(report: PlansReport, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the compared plans of a result, how they differ, and the best per column."""
    for letter, plan in zip(LETTERS, report.plans, strict=False):
        yield make_lines(f"{letter}  {plan.name}: {plan.subject}", indent="   ")
        if plan.impossible:
            yield make_lines(f"   impossible: {plan.why or plan.impossible}", indent="   ")
    for name, reason in report.without_plan.items():
        yield make_lines(f"-  {name}: no plan: {reason}", indent="   ")
    yield from differences_blocks(report, is_full=is_full)


def _subject(seen: PredictedPlan) -> dict[str, str]:
    """Return the model, the GPUs and the layout of a compared plan, and why it is impossible."""
    layout = f"{seen.row[seen.plan.workload.profile_kind]}, {short_plan(seen.plan, seen.row)}"
    subject = f"{seen.plan.problem.inputs.model.name} on {where(seen.plan)}, {layout}"
    return {"subject": subject, "why": infeasible_reason(seen) if seen.reason else ""}


def differences_blocks(report: PlansReport, *, is_full: bool = False) -> Iterator[Block]:
    """Yield the verdict, and the results, settings and parts in which plans differ."""
    letters = LETTERS[: len(report.plans)]
    yield from (make_lines(line, indent="   ") for line in report.sentences)
    results = report.results if is_full else _shown_results(report)
    if results:
        yield GAP
        has_intervals = is_full or len(letters) <= _MOST_PLANS_WITH_INTERVALS
        shown = replace(report, results=tuple(results))
        yield results_table(shown, letters, has_intervals=has_intervals)
        has_ties = any(result.ties for result in results)
        marks = "* best; = tied with it" if has_ties else "* best"
        intervals = "in brackets: 90 % interval" if has_intervals else "90 % intervals: --full"
        yield make_lines(f"{marks}; {intervals}")
    if is_full:
        if report.settings:
            yield GAP
            yield settings_table(report, letters)
        yield from _parts_blocks(report, letters)
        return
    if parts := _largest_parts(report, _PARTS):
        yield GAP
        yield text_table(("largest differences", *letters), parts)
    if report.settings:
        yield make_lines(_settings_line(report), indent="  ")


def _shown_results(report: PlansReport) -> list[ComparedResult]:
    """Return the results of the first screen: the first few, and the peak memory."""
    results = [result for result in report.results if result.name != _HEADROOM]
    memory = [result for result in results if result.name == _MEMORY]
    others = [result for result in results if result.name != _MEMORY]
    return [*others[:_RESULTS], *memory]


def _settings_line(report: PlansReport) -> str:
    """Return the first settings that differ with the value of each plan, as text."""
    texts = []
    for name, values in [*report.settings.items()][:_SETTINGS]:
        each = ["-" if v is None else format_parameter(v) for v in values]
        texts.append(f"{name.replace('_', ' ')} {' | '.join(each)}")
    hidden = len(report.settings) - _SETTINGS
    texts += [f"{hidden} more (--full)"] if hidden > 0 else []
    return f"Settings: {'; '.join(texts)}"


def verdicts(comparison: ComparedPlans) -> list[str]:
    """Return sentences that name the best plan for each result and the tied plans."""
    lines = []
    for index, wins in comparison.wins.items():
        columns = [name for name in wins if name != _HEADROOM]
        if not columns:
            continue
        lines.append(
            f"{LETTERS[index]} is best in {join_words([label(name) for name in columns])}."
        )
    tied: dict[tuple[str, float], list[str]] = {}
    for result in comparison.results:
        if result.ties:
            factor = max(comparison.tie_factor(result.best, index) for index in result.ties)
            group = join_words([LETTERS[index] for index in sorted((result.best, *result.ties))])
            tied.setdefault((group, factor), []).append(label(result.name))
    lines += [
        f"{group} are tied within x{factor:.2f} in {join_words(columns)}."
        for (group, factor), columns in tied.items()
    ]
    return lines or ["They do not differ."]


def settings_table(report: PlansReport, plans: Sequence[str]) -> Table:
    """Return a table of the settings that differ, with a column for each of ``plans``."""
    rows = [
        (
            name.replace("_", " "),
            *("-" if v is None else format_parameter(v) for v in values),
        )
        for name, values in report.settings.items()
    ]
    heads = ("differs", *plans)
    return text_table(heads, rows, text_columns=range(len(heads)), name="settings")


def results_table(
    report: PlansReport, plans: Sequence[str], *, has_intervals: bool = True
) -> Table:
    """Return a table of predicted results with a column for each of ``plans``.

    ``*`` marks the best plan, ``=`` a tied one.
    """
    rows: list[list[str | Cell]] = [
        [
            label(result.name),
            *(
                format_compared(result, number, has_interval=has_intervals)
                for number in range(len(result.values))
            ),
        ]
        for result in report.results
    ]
    heads = ("predicted", *plans)
    return text_table(heads, rows, text_columns=range(len(heads)), name="results")


def format_compared(result: ComparedResult, index: int, *, has_interval: bool = True) -> Cell:
    """Return the cell of the plan ``index``; ``*`` marks the best plan, ``=`` a tied one."""
    sign, mark = (
        ("*", BEST) if index == result.best else ("=", TIE) if index in result.ties else ("", "")
    )
    interval = result.intervals[index] if has_interval else None
    text = format_result(result.name, result.values[index], interval)
    return Cell(text=f"{sign}{text}", mark=mark)


def _parts_blocks(report: PlansReport, plans: Sequence[str]) -> Iterator[Block]:
    """Yield tables of the parts of time [ms] and memory [GiB] that differ between plans."""
    for title, unit, parts, scale in _kinds_of_parts(report):
        rows = [
            (name.replace("_", " "), *cells)
            for name, values in parts.items()
            if len({*(cells := _format_part(values, scale))}) > 1
        ]
        if rows:
            yield Title(text=f"{title}, {unit}")
            yield text_table(("part", *plans), rows)


def _kinds_of_parts(
    report: PlansReport,
) -> Iterator[tuple[str, str, Mapping[str, Sequence[float]], float]]:
    """Yield the parts of each step and of memory: title, unit, values by name, scale."""
    for kind, terms in report.times_s.items():
        yield f"Time of the {kind}", "ms", terms, 1e3
    yield "Memory", "GiB", report.memory_gib, 1.0


def _largest_parts(report: PlansReport, count: int) -> list[tuple[str, ...]]:
    """Return the ``count`` parts that differ most as a share of their step or of the memory."""
    differences = []
    for title, unit, parts, scale in _kinds_of_parts(report):
        kind = title.removeprefix("Time of the ").lower()
        totals = [sum(values) for values in zip(*parts.values(), strict=True)]
        for name, values in parts.items():
            difference = (max(values) - min(values)) / max(totals)
            text = name.replace("_", " ")
            subject = text if len(report.times_s) <= 1 and unit == "ms" else f"{kind}: {text}"
            differences.append((difference, f"{subject}, {unit}", _format_part(values, scale)))
    differences.sort(key=lambda difference: -difference[0])
    return [(subject, *cells) for _, subject, cells in differences[:count]]


def _format_part(values: Sequence[float], scale: float) -> list[str]:
    return [f"{scale * value:,.2f}" if value else "-" for value in values]


def comparison_dict(comparison: ComparedPlans) -> dict[str, object]:
    """The comparison as a JSON object, with its sentences and the subjects of its plans."""
    table = ComparedPlans.to_dict(comparison)
    pairs = zip(table["plans"], comparison.predicted, strict=True)
    plans = [{**plan, **_subject(seen)} for plan, seen in pairs]
    return {**table, "plans": plans, "sentences": verdicts(comparison)}


_WORDS = ("notes", "aliases", "sources", "name", "source", "description")
_IN_FOLDERS = (
    SpecKind.GPUS, SpecKind.CLUSTERS, SpecKind.FRAMEWORKS, SpecKind.ENGINES, SpecKind.MODELS,
)  # fmt: skip
_FULL = 1000
_SHORT = 24


def compared_specs(
    things: Sequence[ComparedThing], specs: Path | None
) -> dict[str, dict[str, list[object]]]:
    """Return the numbers that differ between specs: one value per spec, None if it has none."""
    if things[0].kind != FOLDER:
        kind = SpecKind(things[0].kind)
        numbers_by_thing = [dict(_numbers(kind, thing.text, Catalogue(specs))) for thing in things]
        return {kind.singular: _differing(numbers_by_thing)}
    differences = {}
    for kind in _IN_FOLDERS:
        for name in _user_specs(kind, [thing.path for thing in things]):
            numbers_by_thing = [
                _numbers_or_empty(kind, name, Catalogue(thing.path)) for thing in things
            ]
            if differing := _differing(numbers_by_thing):
                differences[f"{kind.singular} {name}"] = differing
    return differences


def specs_blocks(
    things: Sequence[ComparedThing],
    differences: Mapping[str, Mapping[str, Sequence[object]]],
    *,
    is_full: bool = False,
) -> Iterator[Block]:
    """Yield a table of differing numbers for each kind of spec that differs."""
    for letter, thing in zip(LETTERS, things, strict=False):
        yield make_lines(f"{letter}  {thing.text}", indent="   ")
    report = made_report({"manifest": {}, "specs": differences}, SpecsReport)
    yield from spec_numbers_blocks(report, is_full=is_full)


def spec_numbers_blocks(report: SpecsReport, *, is_full: bool = False) -> Iterator[Block]:
    """Yield a table of differing numbers for each kind of spec that differs."""
    if not any(report.specs.values()):
        yield make_lines("They do not differ.")
    for title, numbers in report.specs.items():
        max_rows = _FULL if is_full else _SHORT
        yield Title(text=title)
        rows = [
            (name, *("-" if value is None else str(value) for value in values))
            for name, values in [*numbers.items()][:max_rows]
        ]
        count = max(map(len, numbers.values()), default=0)
        yield text_table(("differs", *LETTERS[:count]), rows)
        if len(numbers) > max_rows:
            yield make_lines(f"and {len(numbers) - max_rows} more: --full")


def _user_specs(kind: SpecKind, folders: Sequence[Path | None]) -> list[str]:
    """Return the names of specs in the folders that differ from the shipped specs."""
    shipped = {name: Catalogue().find(kind, name) for name in names(kind)}
    user_specs = {
        name
        for folder in folders
        if folder is not None
        for name in names(kind, folder)
        if Catalogue(folder).find(kind, name) != shipped.get(name)
    }
    return sorted(user_specs)


def _numbers_or_empty(kind: SpecKind, name: str, catalogue: Catalogue) -> dict[str, str]:
    """Return the numbers of a spec by dotted name; empty if the catalogue lacks the spec."""
    try:
        return dict(_numbers(kind, name, catalogue))
    except SpecError:
        if name in catalogue.names(kind):
            raise
        return {}


def _numbers(kind: SpecKind, name: str, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Yield every number of a spec: its dotted name, and its value with unit as text."""
    if kind is SpecKind.MODELS:
        model = catalogue.load_model(name)
        counted = count_parameters(model)
        yield "parameters", format_large(counted.total)
        yield "active parameters", format_large(counted.active)
        yield from ((field, format_parameter(value)) for field, value in scalar_fields(model))
        for number, group in enumerate(model.layer_groups, start=1):
            blocks = [part for part in (group, *group.mixers, group.feed_forward) if part]
            for block in blocks:
                for field, value in scalar_fields(block):
                    yield f"layers {number}: {field}", format_parameter(value)
        return
    path = catalogue.find(kind, name)
    table, _ = spec_table(kind, path, catalogue)
    price = catalogue.price(path.stem) if kind is SpecKind.GPUS else None
    if price is not None:
        yield "price, on demand", f"{price.value * HOUR:.2f} USD/h"
    yield from _flat(table, "")


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of every value in a nested table."""
    for key, value in table.items():
        if key in _WORDS:
            continue
        if isinstance(value, Mapping) and "value" in value and "unit" in value:
            unit = "" if value["unit"] == "1" else f" {value['unit']}"
            yield prefix + key, f"{value['value']:g}{unit}"
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, ", ".join(map(str, value))
        else:
            yield prefix + key, str(value)


def _differing(numbers_by_thing: Sequence[Mapping[str, str]]) -> dict[str, list[Any]]:
    all_names = dict.fromkeys(name for numbers in numbers_by_thing for name in numbers)
    values = {name: [numbers.get(name) for numbers in numbers_by_thing] for name in all_names}
    return {name: row_values for name, row_values in values.items() if len(set(row_values)) > 1}


Reading: TypeAlias = Callable[[Path, int | None, Mapping[str, object]], Request]
"""Reader of the request of a file or folder, or of a row of it, with changed answers."""

PLAN, FOLDER = "plan", "specs"
SHIPPED = "shipped"
"""Name of the shipped specs among folders of user specs."""

_PLAN_OF_SWEEP = "plan.json"
_OF_ALL = ("workload", "settings")
_NAMED = (SpecKind.GPUS, SpecKind.MODELS, SpecKind.FRAMEWORKS, SpecKind.ENGINES)


@record(kw_only=True)
class ComparedThing:
    """A compared thing; ``kind`` is ``plan``, a kind of spec, or ``specs`` for a folder."""

    text: str
    kind: str
    path: Path | None = None
    row: int | None = None

    @property
    def question(self) -> str:
        """The question that the name of a spec answers."""
        return self.kind.removesuffix("s")


def things_of(texts: Sequence[str], specs: Path | None) -> list[ComparedThing]:
    """Return the plans, specs or folders that the texts name; all must be of one kind.

    Raises SpecError or SearchSpaceError if a text is neither a file nor a known name, there are
    fewer than two, or they are of several kinds.
    """
    if len(texts) < 2:
        raise SearchSpaceError("Name two things to compare, or more.")
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise SearchSpaceError(f"{twice} is named twice: name two different things to compare.")
    things = [_thing(text, specs) for text in texts]
    if SHIPPED in texts:
        things = [
            replace(thing, kind=FOLDER, row=None) if thing.path else thing for thing in things
        ]
    kinds = dict.fromkeys(thing.kind for thing in things)
    if len(kinds) > 1:
        kinds_text = ", ".join(f"{thing.text} ({thing.question})" for thing in things)
        raise SearchSpaceError(
            f"These are different kinds of things, which cannot be compared: {kinds_text}."
        )
    return things


def file_and_row(text: str) -> tuple[Path, int | None]:
    """The file and row of a text ``FILE:ROW``; None without a row."""
    name, colon, row = text.rpartition(":")
    return (Path(name), int(row)) if colon and row.isdecimal() else (Path(text), None)


def compared_plans(
    things: Sequence[ComparedThing],
    answers: Answers,
    read: Reading,
    option_name: OptionNamer = str,
) -> ComparedPlans:
    """Return the comparison of several plans; ``answers`` are inputs as for `make_request`.

    ``read`` returns the request of a file or folder, or of a row of it.
    Raises SpecError or SearchSpaceError if an input is unknown, faulty or impossible, or the plans
    are of several workloads.
    Raises InfeasibleError if fewer than two have a plan.
    """
    requests: dict[str, Request] = {}
    missing: dict[str, str] = {}
    for thing in things:
        try:
            requests[thing.text] = _request(thing, answers, read, option_name)
        except InfeasibleError as error:
            missing[thing.text] = str(error)
    kinds = {request.workload for request in requests.values()}
    if len(kinds) > 1:
        raise SearchSpaceError(f"Plans of {' and '.join(sorted(kinds))} have nothing in common.")
    if len(requests) < 2:
        raise InfeasibleError("\n".join(f"{name}: {reason}" for name, reason in missing.items()))
    predicted = tuple(predict_plan(request, name=name) for name, request in requests.items())
    if all(seen.reason for seen in predicted):
        raise InfeasibleError("\n".join(f"{seen.name}: {seen.reason}" for seen in predicted))
    return ComparedPlans(predicted=predicted, missing=missing)


def has_question(things: Sequence[ComparedThing], answers: Answers) -> bool:
    """Whether the plans for a question are compared (True), or only the numbers of specs."""
    kind = things[0].kind
    has_count = any(answers.get(name) is not None for name in ("num_gpus", "request_rate"))
    return (
        kind == PLAN
        or (answers.get("model") is not None)
        or (kind == SpecKind.MODELS and has_count)
    )


def _thing(text: str, specs: Path | None) -> ComparedThing:
    """Return the plan, spec or folder that a text names.

    Raises SpecError if it is no file, no folder and no name of a spec.
    """
    path, row = file_and_row(text)
    if os.path.isdir(path):
        is_ours = any(os.path.isfile(path / name) for name in (MANIFEST, _PLAN_OF_SWEEP))
        return ComparedThing(text=text, kind=PLAN if is_ours else FOLDER, path=path, row=row)
    if os.path.isfile(path):
        return ComparedThing(text=text, kind=PLAN, path=path, row=row)
    if text == SHIPPED:
        return ComparedThing(text=text, kind=FOLDER)
    for kind in kinds_named(text, specs):
        return ComparedThing(text=text, kind=kind)
    kinds = ", ".join(kind.singular for kind in _NAMED)
    raise SpecError(
        f"{text} is no file, no folder and no {kinds}: `planner specs list gpus` has the names."
    )


def kinds_named(text: str, specs: Path | None) -> Iterator[SpecKind]:
    """Yield the kinds of specs (GPU, model, ...) that have a spec with this name."""
    catalogue = Catalogue(specs)
    for kind in _NAMED:
        try:
            catalogue.find(kind, text)
        except SpecError:
            continue
        yield kind


def _request(
    thing: ComparedThing, answers: Mapping[str, Any], read: Reading, option_name: OptionNamer
) -> Request:
    """Return the request of the one plan that a file, folder or spec name stands for."""
    specified = {name: value for name, value in answers.items() if value is not None}
    if thing.kind == PLAN:
        changes = {name: value for name, value in specified.items() if name not in _OF_ALL}
        path = thing.path
        assert path is not None
        default_row = 1 if path.suffix == ".csv" else None
        return read(
            path,
            default_row if thing.row is None else thing.row,
            {**changes, **specified.get("settings", {})},
        )
    if thing.kind == FOLDER:
        return recommended_of(
            make_request({**specified, "specs": thing.path}, option_name=option_name)
        ).request()
    if thing.kind == SpecKind.ENGINES and "workload" not in specified:
        specified["workload"] = "serve"
    request = make_request({**specified, thing.question: thing.text}, option_name=option_name)
    return recommended_of(request).request()
