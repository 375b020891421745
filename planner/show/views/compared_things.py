"""What is compared: plans in files, or names of which each has a plan of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from planner.base.records import record
from planner.decide.explaining.compared import ComparedPlans
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.launch import MANIFEST
from planner.plan.given import Said, make_request
from planner.question.request import Request
from planner.show.views.explanation import seen_plan
from planner.show.views.recommended import recommended_of
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind

Reading: TypeAlias = Callable[[Path, int | None, Mapping[str, object]], Request]
"""What a file or folder, or a row of it, asks, with other answers and settings."""

PLAN, FOLDER = "plan", "specs"
SHIPPED = "shipped"
"""What stands for the specs as they are shipped, among folders of own ones."""

_PLAN_OF_SWEEP = "plan.json"
_OF_ALL = ("workload", "settings")
_NAMED = (SpecKind.GPUS, SpecKind.MODELS, SpecKind.FRAMEWORKS, SpecKind.ENGINES)


@record(kw_only=True)
class Thing:
    """One of the things that are compared: a ``plan``, the name of a spec, or ``specs``."""

    text: str
    kind: str
    path: Path | None = None
    row: int | None = None

    @property
    def question(self) -> str:
        """The question that it answers, where it is a name."""
        return self.kind.removesuffix("s")


def things_of(texts: Sequence[str], specs: Path | None) -> list[Thing]:
    """What is named, all of it of one kind.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is no file and no name that is known, there are fewer than two, or they are of
        several kinds.
    """
    if len(texts) < 2:
        raise SearchSpaceError("Name two things to compare, or more.")
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise SearchSpaceError(f"{twice} is named twice: name two different things to compare.")
    found = [_thing(text, specs) for text in texts]
    if SHIPPED in texts:
        found = [replace(thing, kind=FOLDER, row=None) if thing.path else thing for thing in found]
    kinds = dict.fromkeys(thing.kind for thing in found)
    if len(kinds) > 1:
        words = ", ".join(f"{thing.text} ({thing.question})" for thing in found)
        raise SearchSpaceError(f"These are of several kinds and have nothing in common: {words}.")
    return found


def file_and_row(text: str) -> tuple[Path, int | None]:
    """A file, and the row after a colon behind its name."""
    name, colon, row = text.rpartition(":")
    return (Path(name), int(row)) if colon and row.isdecimal() else (Path(text), None)


def compared_plans(
    things: Sequence[Thing], asked: Mapping[str, object], read: Reading, said: Said = str
) -> ComparedPlans:
    """The plan of each thing beside those of the others; ``asked`` as `make_request` takes it.

    ``read`` gives the request of a file or folder, and of a row of it.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or the plans are of several workloads.
    InfeasibleError
        Fewer than two have a plan.
    """
    requests: dict[str, Request] = {}
    missing: dict[str, str] = {}
    for thing in things:
        try:
            requests[thing.text] = _request(thing, asked, read, said)
        except InfeasibleError as error:
            missing[thing.text] = str(error)
    kinds = {request.workload for request in requests.values()}
    if len(kinds) > 1:
        raise SearchSpaceError(f"Plans of {' and '.join(sorted(kinds))} have nothing in common.")
    if len(requests) < 2:
        raise InfeasibleError("\n".join(f"{name}: {why}" for name, why in missing.items()))
    seens = tuple(seen_plan(request, name=name) for name, request in requests.items())
    if all(seen.reason for seen in seens):
        raise InfeasibleError("\n".join(f"{seen.name}: {seen.reason}" for seen in seens))
    return ComparedPlans(seens=seens, missing=missing)


def has_question(things: Sequence[Thing], asked: Mapping[str, object]) -> bool:
    """Whether plans are compared: files hold them, names and folders need a question."""
    kind = things[0].kind
    counted = any(asked.get(name) is not None for name in ("num_gpus", "request_rate"))
    return kind == PLAN or (asked.get("model") is not None) or (kind == SpecKind.MODELS and counted)


def _thing(text: str, specs: Path | None) -> Thing:
    path, row = file_and_row(text)
    if os.path.isdir(path):
        is_ours = any(os.path.isfile(path / name) for name in (MANIFEST, _PLAN_OF_SWEEP))
        return Thing(text=text, kind=PLAN if is_ours else FOLDER, path=path, row=row)
    if os.path.isfile(path):
        return Thing(text=text, kind=PLAN, path=path, row=row)
    if text == SHIPPED:
        return Thing(text=text, kind=FOLDER)
    for kind in _kinds(text, specs):
        return Thing(text=text, kind=kind)
    kinds = ", ".join(kind.singular for kind in _NAMED)
    raise SpecError(
        f"{text} is no file, no folder and no {kinds}: `planner specs list gpus` has the names."
    )


def _kinds(text: str, specs: Path | None) -> Iterator[SpecKind]:
    catalogue = Catalogue(specs)
    for kind in _NAMED:
        try:
            catalogue.find(kind, text)
        except SpecError:
            continue
        yield kind


def _request(thing: Thing, asked: Mapping[str, Any], read: Reading, said: Said) -> Request:
    """The request of the one plan of a thing."""
    given = {name: value for name, value in asked.items() if value is not None}
    if thing.kind == PLAN:
        changes = {name: value for name, value in given.items() if name not in _OF_ALL}
        return _read(thing, {**changes, **given.get("settings", {})}, read)
    if thing.kind == FOLDER:
        return recommended_of(make_request({**given, "specs": thing.path}, said=said)).request()
    if thing.kind == SpecKind.ENGINES and "workload" not in given:
        given["workload"] = "serve"
    asked_of = make_request({**given, thing.question: thing.text}, said=said)
    return recommended_of(asked_of).request()


def _read(thing: Thing, changes: Mapping[str, object], read: Reading) -> Request:
    """That of a file: its row, or what its search recommends, or the first row of a table."""
    path = thing.path
    assert path is not None
    first = 1 if path.suffix == ".csv" else None
    return read(path, first if thing.row is None else thing.row, changes)
