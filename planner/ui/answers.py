"""What workers do: the answer to a question as a page and an object, and files of it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from planner.base.reading import TABLE, json_of, read_bytes
from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.launch.targets import targets
from planner.show.html import environment, page_html
from planner.show.page import Page
from planner.show.theme import DARK, LIGHT
from planner.show.views.plots.picture import Picture
from planner.show.views.rows import csv_cell
from planner.ui.commands import UPLOADED, WHERE, Asked, Tell, check_size, found_by, placed
from planner.ui.guard import Limits
from planner.ui.question import FILE, PRICES, Question
from planner.workloads.pinned import PinnedPlan
from planner.workloads.registry import workload_of

PLAN_FILE = "plan.toml"
OBJECT_FILE = "answer.json"
"""The object of an answer, and what its page says first."""


@record(kw_only=True)
class Answer:
    """The object of ``--json`` as text, and as a page its content as HTML.

    ``assumed`` says of fields what nobody gave; ``plan`` is the query that estimates its plan,
    ``targets`` the tools that can start it, its own first; ``is_drawn``: it has pictures.
    """

    title: str
    object: str
    content: str
    workload: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    targets: Sequence[str] = ()
    is_drawn: bool = False

    @property
    def size(self) -> int:
        """Characters of all."""
        return len(self.object) + len(self.content)


@record(kw_only=True)
class Made:
    """A file of an answer."""

    name: str
    kind: str
    content: bytes


def answer(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> Answer:
    """Answer a question.

    Raises
    ------
    PlannerError
        It is unknown, impossible, infeasible, or beyond a limit.
    """
    with placed(question, specs, limits, tell) as asked:
        found = found_by(asked)
        text = _without(asked, found.object)
        check_size(len(text), limits)
        content = environment().get_template("content.html").render(page=found.page)
        line = _without(asked, found.line)
    made = Answer(
        title=found.page.title,
        object=text,
        content=_without(asked, content),
        workload=found.pinned.workload if found.pinned else question.workload,
        assumed={**_assumed(text), **found.told},
        plan=_of_plan(question, line).query if line else "",
        targets=_targets(found.pinned) if found.pinned else (),
        is_drawn=found.draw is not None,
    )
    check_size(made.size, limits)
    return made


def file_of(question: Question, name: str, specs: Path | None, limits: Limits, tell: Tell) -> Made:
    """A file of an answer: ``table.csv``, ``page.html``, ``plan.toml``, ``launch.zip``, or a
    picture, ``front.png``, whose name may end in ``-dark``.

    Raises
    ------
    PlannerError
        The question has no answer, or the answer no such file.
    """
    with placed(question, specs, limits, tell) as asked:
        found = found_by(asked)
        stem, _, ending = name.rpartition(".")
        if ending in ("png", "svg") and found.draw is not None:
            path = asked.folder / f"picture.{ending}"
            picture = stem.removesuffix("-dark")
            theme = DARK if stem.endswith("-dark") else LIGHT
            found.draw(Picture(path=path, name=picture, theme=theme))
            kind = "image/png" if ending == "png" else "image/svg+xml"
            return Made(name=name, kind=kind, content=read_bytes(path, TABLE))
        texts: dict[str, tuple[str, Callable[[], str]]] = {
            "page.html": ("text/html", lambda: page_html(found.page)),
            "table.csv": ("text/csv", lambda: _csv(found.object)),
        }
        if found.pinned is not None:
            texts[PLAN_FILE] = ("application/toml", found.pinned.to_toml)
        if name == OBJECT_FILE:
            both = f'{{"text": {json.dumps(_first(found.page))}, "object": {found.object}}}'
            content = _without(asked, both).encode()
            return Made(name=name, kind="application/json", content=content)
        if name in texts:
            kind, text = texts[name]
            content = _without(asked, text()).encode()
            return Made(name=name, kind=f"{kind}; charset=utf-8", content=content)
        if name == "launch.zip" and found.texts:
            return Made(name=name, kind="application/zip", content=_zipped(asked, found.texts))
    raise SearchSpaceError(f"This answer has no file {name}.")


def _first(page: Page) -> str:
    """The title of a page, its headline, what was asked, the answer, and what is reached."""
    reached = (f"{name}: {words}" for name, words in page.reached.items())
    said = [page.title, page.headline, *page.question, *page.answer, *reached, *page.sure]
    return "\n".join(filter(None, said))


def _zipped(asked: Asked, texts: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, _without(asked, text))
    return stream.getvalue()


def _csv(text: str) -> str:
    """The rows of an object as CSV."""
    table = json_of(text, WHERE)
    rows = table.get("rows") if isinstance(table, Mapping) else None
    if not rows:
        raise SearchSpaceError("This answer has no rows: take its page or its object.")
    names = [*dict.fromkeys(name for row in rows for name in row)]
    stream = io.StringIO()
    stream.write(",".join(map(csv_cell, names)) + "\n")
    for row in rows:
        stream.write(",".join(csv_cell(row.get(name)) for name in names) + "\n")
    return stream.getvalue()


def _without(asked: Asked, text: str) -> str:
    """A text without the folder that the question was in."""
    own = asked.folder.with_name(asked.folder.name + "-own")
    for folder in (own, asked.folder, asked.folder.parent):
        text = text.replace(f"{folder}/", "").replace(str(folder), UPLOADED)
    return text


def _assumed(text: str) -> dict[str, str]:
    """What the manifest of an object says of fields that nobody gave."""
    table = json_of(text, WHERE)
    manifest = table.get("manifest") if isinstance(table, Mapping) else None
    found = manifest.get("defaults") if isinstance(manifest, Mapping) else None
    return {str(n): str(v) for n, v in found.items()} if isinstance(found, Mapping) else {}


def _targets(pinned: PinnedPlan) -> list[str]:
    """The tools that start plans of this workload, those of the plan's own software first."""
    kind = workload_of(pinned.workload).profile_kind
    own = _plain(str(pinned.answers.get(kind)))
    known = {n: tool for n, tool in targets().items() if pinned.workload in tool.workloads}
    return sorted(known, key=lambda name: own not in map(_plain, known[name].profiles))


def _plain(name: str) -> str:
    return name.lower().replace(" ", "-")


def _of_plan(question: Question, line: str) -> Question:
    """The plan of an answer as a question; own prices and models are those of the question."""
    found = Question.of_line("estimate", line)
    if PRICES in found.fields:
        found = found.changed(**{PRICES: question.fields.get(PRICES, "")})
    if found.fields.get("model", "").endswith(".json"):
        found = found.changed(model="", file=question.fields.get(FILE, ""))
    return found
