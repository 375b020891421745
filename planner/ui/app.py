"""The application: pages with forms and answers, and the JSON interface."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from markupsafe import Markup
from starlette.requests import ClientDisconnect

from planner.base.enums import ComputePrecision, Quantization
from planner.base.records import record
from planner.base.version import __version__
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError
from planner.question.terms import Term, terms_of
from planner.show.html import environment, static, style
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind
from planner.specs.price import CONTRACTS
from planner.sweeps.plan import SPECS
from planner.ui.guard import Guard, Limits, Refused
from planner.ui.pool import Answer, Job, Pool
from planner.ui.question import (
    COMMANDS,
    OBJECTIVES,
    PRECISION,
    SETTINGS,
    WORKLOAD,
    Question,
    fields_of,
    option_of,
)
from planner.workloads.registry import workload_names

FIRST = "first"
"""The group of fields that are always seen."""

_FORM_TITLES = {
    FIRST: "",
    "question": "The work",
    "hardware": "Hardware and software",
    "money": "Money, failures, energy",
    "limits": "Limits",
    "search": "The configuration",
}
_LISTS = {**SPECS, "draft_model": SpecKind.MODELS, "reliability": SpecKind.RELIABILITY}
_TITLED = {
    PRECISION: ("number format of the matrix products, several, or all", "search"),
    SETTINGS: ("parameters that are pinned or narrowed, such as tp=4,8 mbs=1", "search"),
    OBJECTIVES: ("what is best: one to three names", "search"),
}
_LONG = "long"
_EXAMPLES = {
    "second": "30s, 2h, 30d",
    "byte": "4GiB",
    "usd": "2M",
    "watt": "800kW",
    "kg": "10t",
    "share": "0.9",
    SETTINGS: "tp=4,8 mbs=1",
    OBJECTIVES: "throughput,memory_headroom",
}


@record(kw_only=True)
class Field:
    """A field of a form: the text that it has, what may be chosen, what its option is called.

    ``is_long``: it needs a line for itself.
    """

    name: str
    option: str
    label: str
    title: str
    value: str
    example: str
    is_flag: bool
    is_long: bool
    choices: str


@record(kw_only=True)
class Group:
    """Fields that are seen or opened together."""

    name: str
    title: str
    fields: Sequence[Field]

    @property
    def is_open(self) -> bool:
        """Whether something in it was given."""
        return self.name == FIRST or any(field.value for field in self.fields)


def groups_of(question: Question) -> list[Group]:
    """The fields of a question's command, in groups, with what it answers."""
    found: dict[str, list[Field]] = {name: [] for name in _FORM_TITLES}
    asked = {question.workload, question.command}
    for name, term in fields_of(question.command, question.workload).items():
        group = _TITLED[name][1] if term is None else term.group
        is_first = term is not None and bool(asked & {*term.form})
        place = FIRST if is_first else group if group in found else "question"
        found[place].append(_field(name, term, question.fields.get(name, "")))
    return [
        Group(name=name, title=_FORM_TITLES[name], fields=fields)
        for name, fields in found.items()
        if fields
    ]


def _field(name: str, term: Term | None, value: str) -> Field:
    title = _TITLED[name][0] if term is None else term.description
    kind = "" if term is None else term.type
    limit = ""
    if term is not None and "limit" in term.kind and "question" not in term.kind:
        limit = "at most: " if term.sign > 0 else "at least: "
    return Field(
        name=name,
        option=option_of(name),
        label=_label(name, term),
        title=f"{limit}{title}",
        value=value,
        example=_EXAMPLES.get(name)
        or (term and term.example)
        or _EXAMPLES.get(kind)
        or (term.default if term else ""),
        is_flag=kind == "flag",
        is_long=name in (SETTINGS, OBJECTIVES) if term is None else _LONG in term.form,
        choices=name if name in _LISTS or name in ("contract", PRECISION, OBJECTIVES) else "",
    )


def _label(name: str, term: Term | None) -> str:
    words = name.replace("_", " ").replace("num gpus", "number of GPUs")
    words = words.replace("gpu", "GPU") if words in ("gpu", "prefill gpu", "max gpus") else words
    is_limit = term is not None and "limit" in term.kind and "question" not in term.kind
    side = "" if not is_limit or term is None else (" at most" if term.sign > 0 else " at least")
    return f"{words}{side}"


@cache
def choices(specs: Path | None, workload: str) -> Mapping[str, Sequence[str]]:
    """What fields propose: names of specs, contracts, formats, objectives."""
    catalogue = Catalogue(specs)
    lists: dict[str, Sequence[str]] = {n: catalogue.names(kind) for n, kind in _LISTS.items()}
    formats = ComputePrecision if workload == "train" else Quantization
    return lists | {
        "contract": CONTRACTS,
        PRECISION: [one.word for one in formats],
        OBJECTIVES: [*terms_of(workload, "objective")],
    }


Key: TypeAlias = tuple[str, str, int]

_LEFT_S = 30.0
_KEPT_FAULTS = 200


@dataclass
class Asked:
    """A job of one client: how many connections watch it, and when somebody last asked for it."""

    name: str
    job: Job
    asked: float
    watchers: int = 0


class Kept:
    """What was answered, by question, the latest last; and what is being worked on, by client.

    All of it is used by one thread, that of the event loop.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._faults: OrderedDict[Key, PlannerError] = OrderedDict()
        self._asked: dict[str, Asked] = {}
        self._size = 0

    def answer(self, question: Question) -> Answer | PlannerError | None:
        """The answer to a question, or what is wrong with it; None where it is not known.

        That something lasted too long or was lost is told once: the next time it is tried again.
        """
        key = self._key(question)
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        fault = self._faults.get(key)
        if isinstance(fault, Refused):
            del self._faults[key]
        return fault

    def ask(self, question: Question, client: str) -> Asked:
        """The job of a client's question: one that is worked on, or a new one.

        Raises
        ------
        Refused
            Too many wait already.
        """
        self.settle()
        for asked in self._asked.values():
            if asked.job.client == client and asked.job.question == question:
                asked.asked = time.monotonic()
                return asked
        name, job = secrets.token_urlsafe(12), self._pool.submit(question, client)
        self._asked[name] = Asked(name=name, job=job, asked=time.monotonic())
        return self._asked[name]

    def find(self, name: str) -> Asked | None:
        """A job by its name."""
        return self._asked.get(name)

    def cancel(self, asked: Asked) -> None:
        """Nobody waits for a job any more."""
        asked.job.cancel()
        self._asked.pop(asked.name, None)

    def settle(self) -> None:
        """Keep what has been answered since; cancel what nobody watches or asked for in a while."""
        now = time.monotonic()
        for name, asked in [*self._asked.items()]:
            if asked.job.future.done():
                del self._asked[name]
                self._keep(asked.job)
            elif not asked.watchers and now - asked.asked > _LEFT_S:
                self.cancel(asked)

    def _keep(self, job: Job) -> None:
        key, error = self._key(job.question), job.future.exception()
        if error is None:
            found = job.future.result()
            old = self._answers.pop(key, None)
            self._size -= 0 if old is None else old.size
            self._answers[key] = found
            self._size += found.size
            while self._size > self._pool.limits.kept_bytes and len(self._answers) > 1:
                _, oldest = self._answers.popitem(last=False)
                self._size -= oldest.size
        elif isinstance(error, PlannerError):
            self._faults[key] = error
            while len(self._faults) > _KEPT_FAULTS:
                self._faults.popitem(last=False)

    def _key(self, question: Question) -> Key:
        """A question, and when the folder of own specs was changed last."""
        return question.command, question.query, changed(self._pool.specs)


def changed(folder: Path | None) -> int:
    """When the last of a folder's files was changed [ns]; 0 without one."""
    if folder is None:
        return 0
    times = (path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
    return max(times, default=0)


_SUMMARIES = {
    "search": "The Pareto front and the plan one would launch, as planner search --json",
    "estimate": "One configuration in full, as planner estimate --json",
    "size": "The fewest and the cheapest GPUs that keep limits, as planner size --json",
}
_STATUSES = {
    "200": "the object that --json writes",
    "400": "something is unknown, faulty or impossible",
    "408": "the question did not come whole in time",
    "413": "the question or its answer is too large",
    "422": "nothing is feasible; the message says what came closest",
    "503": "too many questions wait, or there are too many connections",
    "504": "it took too long",
}
_OTHERS = {
    SETTINGS: "parameters and their values, pinned or narrowed; in a query tp=4,8 mbs=1",
    OBJECTIVES: "one to three names, the first one counts first",
    "precision": "number format of the matrix products, several, or all",
}


@cache
def openapi(limits: Limits) -> Mapping[str, object]:
    """The description of all paths, which says what one request may take."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "planner",
            "version": __version__,
            "description": f"At most {limits.seconds:g} s of work, {limits.rows:,} configurations "
            f"and {limits.question_bytes:,} bytes a question. Values are as on the command line: "
            "8k, 40%, 30d, several with commas.",
        },
        "paths": {f"/api/{command}": _path(command) for command in COMMANDS},
    }


def _path(command: str) -> dict[str, object]:
    terms: dict[str, Term | None] = {WORKLOAD: None}
    for workload in workload_names():
        terms |= fields_of(command, workload)
    fields = {name: _described(name, term) for name, term in terms.items()}
    limits = {n: one for n, (one, is_limit) in fields.items() if is_limit}
    others = {n: one for n, (one, is_limit) in fields.items() if not is_limit}
    properties: dict[str, object] = {**others}
    if limits:
        properties["constraints"] = {"type": "object", "properties": limits}
    body = {"type": "object", "required": ["model"], "properties": properties}
    return {
        "get": {
            "summary": f"{_SUMMARIES[command]}; the query is that of a page's link",
            "operationId": f"{command}_of_query",
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                | {"description": one["description"]}
                for name, (one, _) in fields.items()
            ],
            "responses": _responses(),
        },
        "post": {
            "summary": _SUMMARIES[command],
            "operationId": command,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": body}},
            },
            "responses": _responses(),
        },
    }


def _described(name: str, term: Term | None) -> tuple[dict[str, object], bool]:
    """The schema of a field, and whether it is a limit."""
    if name == WORKLOAD:
        words = {"type": "string", "enum": [*workload_names()], "default": "train"}
        return {**words, "description": "training, static batches, or serving requests"}, False
    if term is None:
        kind = {"type": ["object", "string"]} if name == SETTINGS else {"type": ["array", "string"]}
        return {**kind, "description": _OTHERS[name]}, False
    of = f" ({', '.join(term.of)})" if term.of else ""
    is_limit = "limit" in term.kind and "question" not in term.kind
    bound = ("at most: " if term.sign > 0 else "at least: ") if is_limit else ""
    kinds = ["number", "string", "array"] if "parameter" in term.kind else ["number", "string"]
    if term.type == "flag":
        kinds = ["boolean", "string"]
    elif term.is_word:
        kinds = ["string", "array"]
    return {"type": kinds, "description": f"{bound}{term.description}{of}"}, is_limit


def _responses() -> dict[str, object]:
    error = {
        "type": "object",
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    }
    of_error = {"content": {"application/json": {"schema": error}}}
    answer = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        status: {"description": words, **(answer if status == "200" else of_error)}
        for status, words in _STATUSES.items()
    }


_PACKAGE = "planner.ui"
_LOOK_S = 0.25
_TITLES = {"search": "Search", "estimate": "Estimate", "size": "Size"}
_WORKLOADS = {"train": "Training", "inference": "Static batches", "serve": "Serving"}
_LASTING = {"cache-control": "public, max-age=86400"}


def make_app(limits: Limits, specs: Path | None = None, token: str = "") -> FastAPI:
    """The application; its workers, ``state.pool``, are closed by whoever serves it."""
    pool = Pool(limits, specs)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.pool = pool
    pages = Pages(Kept(pool), pool, specs)
    app.add_middleware(Guard, token=token, question_bytes=limits.question_bytes)
    app.exception_handler(PlannerError)(_told)
    paths: dict[str, Callable[..., object]] = {
        "/": pages.home,
        "/static/{name}": pages.static,
        "/jobs/{name}/events": pages.events,
        "/api": pages.described,
        "/api/openapi.json": pages.openapi,
        "/api/{command}": pages.object_of_query,
        "/{command}": pages.page,
    }
    for path, function in paths.items():
        app.get(path)(function)
    app.delete("/jobs/{name}")(pages.cancel)
    app.post("/api/{command}")(pages.object_of_body)
    return app


async def _told(_: Request, error: Exception) -> Response:
    """What is wrong with a question, as programs read it."""
    status = 422 if isinstance(error, InfeasibleError) else 400
    if isinstance(error, Refused):
        status = error.status
    table = {"error": type(error).__name__, "message": str(error)}
    headers = {"retry-after": "5"} if status == 503 else None
    return Response(json.dumps(table), status, headers, "application/json")


class Pages:
    """What is handed out for every path."""

    def __init__(self, kept: Kept, pool: Pool, specs: Path | None) -> None:
        self._kept, self._pool, self._specs = kept, pool, specs
        self._templates = environment(_PACKAGE)

    async def home(self) -> Response:
        """The first page asks for a search."""
        return RedirectResponse("/search", 307)

    async def static(self, name: str) -> Response:
        """Styles and scripts."""
        made: dict[str, tuple[Callable[[], str], str]] = {
            "page.css": (style, "text/css"),
            "page.js": (lambda: static("page.js"), "text/javascript"),
            "ui.css": (lambda: static("ui.css", _PACKAGE), "text/css"),
            "ui.js": (lambda: static("ui.js", _PACKAGE), "text/javascript"),
        }
        if name not in made:
            return Response("There is no such file.", 404, media_type="text/plain")
        text, kind = made[name]
        return Response(text(), 200, _LASTING, kind)

    async def page(self, command: str, request: Request) -> Response:
        """The form of a command with what was given, and the answer where it is there."""
        if command not in COMMANDS:
            return self._note(f"There is no page /{command}.", 404)
        pairs = [(name, value) for name, value in request.query_params.multi_items()]
        try:
            question = Question.of(command, pairs)
        except PlannerError as error:
            return self._page(Question.draft(command, pairs), error)
        if any(not value.strip() for _, value in pairs):  # a form sends fields left empty, too
            return RedirectResponse(f"/{command}?{question.query}", 303)
        if not question.is_asked:
            return self._page(question, None)
        self._kept.settle()
        found = self._kept.answer(question)
        if found is None:
            try:
                return self._page(question, self._kept.ask(question, _client(request)))
            except Refused as error:
                return self._page(question, error)
        return self._page(question, found)

    async def events(self, name: str) -> Response:
        """How far a job is, until it ends; who leaves, ends it."""
        asked = self._kept.find(name)
        if asked is None:
            return StreamingResponse(iter([_event("end", {})]), media_type="text/event-stream")
        return StreamingResponse(self._watched(asked), media_type="text/event-stream")

    async def _watched(self, asked: Asked) -> AsyncIterator[str]:
        asked.watchers += 1
        job = asked.job
        future = asyncio.wrap_future(job.future)
        try:
            while not future.done():
                yield _event("progress", self._progress(job))
                await asyncio.wait([future], timeout=_LOOK_S)
            future.exception()  # the page that is asked for next tells it
            yield _event("end", {})
        finally:
            asked.watchers -= 1
            if not asked.watchers and not job.future.done():
                self._kept.cancel(asked)

    def _progress(self, job: Job) -> dict[str, object]:
        return {
            "running": job.is_running,
            "before": self._pool.before(job),
            "done": job.done,
            "total": job.total,
        }

    async def cancel(self, name: str) -> Response:
        """End a job."""
        if asked := self._kept.find(name):
            self._kept.cancel(asked)
        return Response(status_code=204)

    async def described(self) -> Response:
        """What programs may ask, for people."""
        text = self._templates.get_template("api.html").render(
            api=openapi(self._pool.limits), command="", workload="train", titles=_TITLES
        )
        return HTMLResponse(text)

    async def openapi(self) -> Response:
        """What programs may ask, as OpenAPI."""
        text = json.dumps(openapi(self._pool.limits), indent=1)
        return Response(text, media_type="application/json")

    async def object_of_query(self, command: str, request: Request) -> Response:
        """The object that ``--json`` writes, for a query as that of a page."""
        question = Question.of(_known(command), request.query_params.multi_items())
        return await self._object(question, request)

    async def object_of_body(self, command: str, request: Request) -> Response:
        """The same for a JSON object."""
        most, body = self._pool.limits.question_bytes, b""
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise Refused(f"A question has at most {most:,} bytes.", 413)
        except ClientDisconnect as error:
            raise Refused("The question did not come whole.", 400) from error
        try:
            table = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise SearchSpaceError(f"The question is no JSON ({error}).") from error
        return await self._object(Question.of_object(_known(command), table), request)

    async def _object(self, question: Question, request: Request) -> Response:
        self._kept.settle()
        found = self._kept.answer(question)
        if found is None:
            found = await self._answered(question, request)
        if isinstance(found, PlannerError):
            raise found
        return Response(found.object, media_type="application/json")

    async def _answered(self, question: Question, request: Request) -> Answer:
        """The answer of a worker; nobody works for a program that left."""
        job = self._pool.submit(question, _client(request))
        future = asyncio.wrap_future(job.future)
        try:
            while not future.done():
                await asyncio.wait([future], timeout=_LOOK_S)
                if not future.done() and await request.is_disconnected():
                    break
        finally:
            if not future.done():
                job.cancel()
        return await future

    def _page(self, question: Question, found: Answer | PlannerError | Asked | None) -> Response:
        """A page with a form and, beside it, what was found."""
        groups = groups_of(question)
        error = found if isinstance(found, PlannerError) else None
        answer = found if isinstance(found, Answer) else None
        text = self._templates.get_template("ask.html").render(
            question=question,
            titles=_TITLES,
            command=question.command,
            workload=question.workload,
            workloads={name: _WORKLOADS.get(name, name) for name in workload_names()},
            groups=groups,
            choices=choices(self._specs, question.workload),
            message="" if error is None else str(error),
            job=found.name if isinstance(found, Asked) else "",
            title="" if answer is None else answer.title,
            content="" if answer is None else Markup(answer.content),
        )
        busy = isinstance(error, Refused) and error.status == 503
        return HTMLResponse(text, 503 if busy else 200)  # a form that tells what is wrong is one

    def _note(self, words: str, status: int) -> Response:
        template = self._templates.get_template("note.html")
        text = template.render(words=words, titles=_TITLES, command="", workload="train")
        return HTMLResponse(text, status)


def _known(command: str) -> str:
    if command not in COMMANDS:
        raise Refused(f"There is no /api/{command}: ask {', '.join(COMMANDS)}.", 404)
    return command


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _event(kind: str, table: Mapping[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(table)}\n\n"
