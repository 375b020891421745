"""The application: pages with forms and answers, and the JSON interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from markupsafe import Markup
from starlette.requests import ClientDisconnect

from planner.base.records import record
from planner.base.version import __version__
from planner.confidence.profile_rules import read_table
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError
from planner.launch import WRAPPERS
from planner.show.html import environment, static, style
from planner.show.output_blocks import LOAD_PICTURES, PICTURES
from planner.ui.form import choices, field_groups, plan_sliders
from planner.ui.question import (
    COMMANDS,
    SUMMARIES,
    WORKLOAD,
    Question,
    field_schemas,
    question_schema,
    suggest_fixes,
)
from planner.ui.request_limits import Limits, RequestGuard, RequestRefused
from planner.ui.worker_pool import Answer, AnswerCache, AnswerFile, Job, Pool, Uploads, WatchedJob
from planner.workloads.registry import workload_names

_STATUSES = {
    "200": "the object that --json writes",
    "400": "a name is unknown, or a value is invalid or impossible",
    "408": "the question did not arrive in time",
    "413": "the question or its answer is too large",
    "422": "no configuration is feasible; the message names the closest ones",
    "503": "too many questions are queued, or too many connections",
    "504": "it took too long",
}


@cache
def openapi(limits: Limits) -> Mapping[str, object]:
    """Return the OpenAPI description of all paths, with the limits of a request."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "planner",
            "version": __version__,
            "description": f"At most {limits.seconds:g} s of work, {limits.rows:,} configurations "
            f"and {limits.question_bytes:,} bytes a question. Values are as on the command line: "
            "8k, 40%, 30d, several with commas.",
        },
        "paths": {f"/api/v1/{command}": _path(command) for command in COMMANDS},
    }


def _path(command: str) -> dict[str, object]:
    """Return the OpenAPI description of a command's path, for GET and for POST."""
    return {
        "get": {
            "summary": f"{SUMMARIES[command]}; the query is the same as in the link of a page",
            "operationId": f"{command}_of_query",
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string"}}
                | {"description": schema["description"]}
                for name, (schema, _) in field_schemas(command).items()
            ],
            "responses": _responses(),
        },
        "post": {
            "summary": SUMMARIES[command],
            "operationId": command,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": question_schema(command)}},
            },
            "responses": _responses(),
        },
    }


def _responses() -> dict[str, object]:
    """Return the OpenAPI description of the responses, by HTTP status."""
    error = {
        "type": "object",
        "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    }
    error_content = {"content": {"application/json": {"schema": error}}}
    answer = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        status: {"description": description, **(answer if status == "200" else error_content)}
        for status, description in _STATUSES.items()
    }


_PACKAGE = "planner.ui"
_POLL_S = 0.25
_TITLES = {
    "search": "Search",
    "size": "Size",
    "sweep": "Sweep",
    "compare": "Compare",
    "estimate": "Estimate",
    "explain": "Explain",
    "max-batch": "Max batch",
    "max-length": "Max length",
    "launch": "Launch files",
}
_COMMAND_HINTS = {
    "search": "Give a model and GPUs: the best layout, its time, memory and cost.",
    "size": "Give a model and the limits: the fewest and the cheapest GPUs.",
    "sweep": "List several GPUs, numbers or contracts: every combination, as a matrix and a chart.",
    "compare": "Name two GPUs, models, frameworks or engines: which is better, what is tied.",
    "estimate": "Give a model, GPUs and settings, or upload a launch script: one plan in full.",
    "explain": "The causes of a plan's time and memory; move the sliders to see changes.",
    "max-batch": "The largest batch, or the largest number of concurrent requests, that fits.",
    "max-length": "The longest sequence, prompt or answer that fits and keeps the limits.",
    "launch": "The files that start the best plan, or yours in another tool.",
}
_WORKLOADS = {
    "train": "Training",
    "inference": "Static batches",
    "serve": "Serving",
    "rl": "Reinforcement learning",
}
_LIVE_COMMANDS = ("search", "estimate", "explain", "max-batch", "max-length", "launch")
"""Commands that are fast enough to answer while the user types."""
_CACHE_HEADERS = {"cache-control": "public, max-age=86400"}


def make_app(limits: Limits, specs: Path | None = None, token: str = "") -> FastAPI:
    """Return the web application; the server must close its workers, ``state.pool``."""
    pool = Pool(limits, specs)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.pool = pool
    pages = Pages(AnswerCache(pool), pool, specs, Uploads(limits))
    app.add_middleware(RequestGuard, token=token, question_bytes=limits.question_bytes)
    app.exception_handler(PlannerError)(_error_response)
    paths: dict[str, Callable[..., object]] = {
        "/": pages.home,
        "/static/{name}": pages.static,
        "/jobs/{name}/events": pages.events,
        "/api": pages.describe_api,
        "/api/openapi.json": pages.openapi,
        "/api/{command}": pages.object_of_query,
        "/api/v1/{command}": pages.object_of_query,
        "/answers/{command}": pages.part,
        "/files/{command}/{name}": pages.file,
        "/{command}": pages.page,
    }
    for path, function in paths.items():
        app.get(path)(function)
    app.delete("/jobs/{name}")(pages.cancel)
    for path in ("/api/{command}", "/api/v1/{command}"):
        app.post(path)(pages.object_of_body)
    app.post("/uploads")(pages.upload)
    return app


async def _error_response(_: Request, error: Exception) -> Response:
    """Return the error of a question as a JSON response."""
    status = 422 if isinstance(error, InfeasibleError) else 400
    if isinstance(error, RequestRefused):
        status = error.status
    table = {"error": type(error).__name__, "message": str(error)}
    headers = {"retry-after": "5"} if status == 503 else None
    return Response(json.dumps(table), status, headers, "application/json")


class Pages:
    """The response of every path."""

    def __init__(
        self, answers: AnswerCache, pool: Pool, specs: Path | None, uploads: Uploads
    ) -> None:
        self._cache, self._pool, self._specs, self._uploads = answers, pool, specs, uploads
        self._templates = environment(_PACKAGE)

    async def home(self) -> Response:
        """Return the first page, with examples and saved questions."""
        text = self._templates.get_template("home.html").render(
            examples=examples(), titles=_TITLES, asks=_COMMAND_HINTS, command="", workload="train"
        )
        return HTMLResponse(text)

    async def static(self, name: str) -> Response:
        """Return a style sheet or a script."""
        files: dict[str, tuple[Callable[[], str], str]] = {
            "page.css": (style, "text/css"),
            "page.js": (lambda: static("page.js"), "text/javascript"),
            "ui.css": (lambda: static("ui.css", _PACKAGE), "text/css"),
            "ui.js": (lambda: static("ui.js", _PACKAGE), "text/javascript"),
        }
        if name not in files:
            return Response("There is no such file.", 404, media_type="text/plain")
        text, kind = files[name]
        return Response(text(), 200, _CACHE_HEADERS, kind)

    async def page(self, command: str, request: Request) -> Response:
        """Return the form of a command, filled in from the query, and the answer if it is ready."""
        if command not in COMMANDS:
            return self._note(f"There is no page /{command}.", 404)
        pairs = [(name, value) for name, value in request.query_params.multi_items()]
        question, state = self._question_state(command, request)
        if not isinstance(state, PlannerError) and any(not v.strip() for _, v in pairs):
            # A form also sends empty fields.
            return RedirectResponse(f"/{command}?{question.query}", 303)
        if isinstance(state, Answer) and state.workload != question.workload and question.files:
            # The uploaded file is of another workload, which has other fields.
            pairs = [(WORKLOAD, state.workload), *question.fields.items()]
            other = Question.draft(command, pairs)
            return RedirectResponse(f"/{command}?{other.query}", 303)
        text = self._templates.get_template("ask.html").render(
            **self._template_values(question, state),
            titles=_TITLES,
            workloads={name: _WORKLOADS.get(name, name) for name in workload_names()},
            choices=choices(self._specs, question.workload),
            is_live=command in _LIVE_COMMANDS,
        )
        busy = isinstance(state, RequestRefused) and state.status == 503
        return HTMLResponse(text, 503 if busy else 200)  # a form with an error is a page

    async def part(self, command: str, request: Request) -> Response:
        """Return the answer next to a form, for the script that updates it while users type."""
        question, state = self._question_state(_require_command(command), request)
        values = self._template_values(question, state)
        table = {
            "html": self._templates.get_template("main.html").render(**values),
            "title": values["title"],
            "job": values["job"],
            "query": question.query,
            "assumed": dict(state.assumed) if isinstance(state, Answer) else {},
        }
        return Response(json.dumps(table), media_type="application/json")

    def _question_state(
        self, command: str, request: Request
    ) -> tuple[Question, Answer | PlannerError | WatchedJob | None]:
        """Return the question of a query, and its answer, its error or its running job.

        The second value is None if the query names no model, file or other subject.
        """
        pairs = [(name, value) for name, value in request.query_params.multi_items()]
        try:
            question = self._uploads.with_files(Question.of(command, pairs))
        except PlannerError as error:
            return Question.draft(command, pairs), error
        if not question.has_subject:
            return question, None
        self._cache.settle()
        state = self._cache.answer(question)
        if state is None:
            try:
                return question, self._cache.ask(question, _client(request))
            except RequestRefused as error:
                return question, error
        return question, state

    def _template_values(
        self, question: Question, state: Answer | PlannerError | WatchedJob | None
    ) -> dict[str, object]:
        """Return the values for the templates of a form and of an answer."""
        answer = state if isinstance(state, Answer) else None
        message = str(state) if isinstance(state, PlannerError) else ""
        plan = None
        if answer is not None and answer.plan:
            plan = Question.draft("estimate", parse_qsl(answer.plan))
        return {
            "question": question,
            "command": question.command,
            "workload": question.workload,
            "asks": _COMMAND_HINTS,
            "groups": field_groups(question, answer.assumed if answer else {}, plan),
            "message": message,
            "fixes": suggest_fixes(question, message) if message else [],
            "job": state.name if isinstance(state, WatchedJob) else "",
            "title": answer.title if answer else "",
            "content": Markup(answer.content) if answer else "",
            "plan": plan,
            "sliders": plan_sliders(plan) if plan and question.command in _SLIDER_COMMANDS else [],
            "files": _files_of(question.command, answer) if answer else {},
            "targets": answer.targets if answer else (),
            "wrappers": [*WRAPPERS],
        }

    async def file(self, command: str, name: str, request: Request) -> Response:
        """Return a file of an answer as a download."""
        question = Question.of(_require_command(command), request.query_params.multi_items())
        answer_file = await self._make_file(self._uploads.with_files(question), request, name)
        headers = {"content-disposition": f'attachment; filename="{answer_file.name}"'}
        return Response(answer_file.content, 200, headers, answer_file.kind)

    async def upload(self, request: Request) -> Response:
        """Store uploaded files; the response has the name under which a question refers to them."""
        table = await _body(request, self._pool.limits.upload_bytes)
        return Response(
            json.dumps({"file": self._uploads.keep(table)}), media_type="application/json"
        )

    async def events(self, name: str) -> Response:
        """Stream a job's progress until the job ends; it is cancelled if all watchers leave."""
        watched_job = self._cache.find(name)
        if watched_job is None:
            return StreamingResponse(iter([_event("end", {})]), media_type="text/event-stream")
        return StreamingResponse(self._progress_events(watched_job), media_type="text/event-stream")

    async def _progress_events(self, watched_job: WatchedJob) -> AsyncIterator[str]:
        """Yield server-sent events with the progress of a job until the job ends.

        The job is cancelled if its last watcher disconnects before.
        """
        watched_job.watchers += 1
        job = watched_job.job
        future = asyncio.wrap_future(job.future)
        try:
            while not future.done():
                yield _event("progress", self._progress(job))
                await asyncio.wait([future], timeout=_POLL_S)
            future.exception()  # the next page shows the error
            yield _event("end", {})
        finally:
            watched_job.watchers -= 1
            if not watched_job.watchers and not job.future.done():
                self._cache.cancel(watched_job)
            future.cancel()  # the next request gets the result

    def _progress(self, job: Job) -> dict[str, object]:
        """Return a job's state: whether it runs, the jobs queued before, and the steps done."""
        return {
            "running": job.is_running,
            "before": self._pool.before(job),
            "done": job.done,
            "total": job.total,
        }

    async def cancel(self, name: str) -> Response:
        """Cancel a job."""
        if watched_job := self._cache.find(name):
            self._cache.cancel(watched_job)
        return Response(status_code=204)

    async def describe_api(self) -> Response:
        """Return the API description as a page."""
        text = self._templates.get_template("api.html").render(
            api=openapi(self._pool.limits), command="api", workload="train", titles=_TITLES
        )
        return HTMLResponse(text)

    async def openapi(self) -> Response:
        """The API description as OpenAPI."""
        text = json.dumps(openapi(self._pool.limits), indent=1)
        return Response(text, media_type="application/json")

    async def object_of_query(self, command: str, request: Request) -> Response:
        """The object that ``--json`` writes, for the query of a page."""
        question = Question.of(_require_command(command), request.query_params.multi_items())
        return await self._object(question, request)

    async def object_of_body(self, command: str, request: Request) -> Response:
        """The object that ``--json`` writes, for a JSON object."""
        table = await _body(request, self._pool.limits.question_bytes)
        return await self._object(Question.of_object(_require_command(command), table), request)

    async def _object(self, draft: Question, request: Request) -> Response:
        """Return the JSON answer to a question, from the cache or from a new job.

        Raises PlannerError if the question has no answer.
        """
        question = self._uploads.with_files(draft)
        self._cache.settle()
        state = self._cache.answer(question)
        if state is None:
            state = await self._wait_for(self._pool.submit(question, _client(request)), request)
        if isinstance(state, PlannerError):
            raise state
        return Response(state.object, media_type="application/json")

    async def _make_file(self, question: Question, request: Request, name: str) -> AnswerFile:
        answer_file: AnswerFile = await self._wait_for(
            self._pool.submit(question, _client(request), name), request
        )
        return answer_file

    async def _wait_for(self, job: Job, request: Request) -> Any:
        """Wait for a job and return its result; the job is cancelled if the client disconnects."""
        future = asyncio.wrap_future(job.future)
        try:
            while not future.done():
                await asyncio.wait([future], timeout=_POLL_S)
                if not future.done() and await request.is_disconnected():
                    break
        finally:
            if not future.done():
                job.cancel()
        return await future

    def _note(self, message: str, status: int) -> Response:
        template = self._templates.get_template("note.html")
        text = template.render(words=message, titles=_TITLES, command="", workload="train")
        return HTMLResponse(text, status)


async def _body(request: Request, max_bytes: int) -> object:
    """Return the JSON value of a request body."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                raise RequestRefused(f"A question has at most {max_bytes:,} bytes.", 413)
    except ClientDisconnect as error:
        raise RequestRefused("The question did not arrive completely.", 400) from error
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SearchSpaceError(f"The question is not JSON ({error}).") from error
    return value


_SLIDER_COMMANDS = ("explain", "estimate", "max-batch", "max-length")
"""Commands of one plan, which get sliders."""
_TABLE_COMMANDS = ("search", "estimate", "size", "sweep")


def _files_of(command: str, answer: Answer) -> dict[str, str]:
    """Return the label of each file that belongs to an answer, by file name."""
    files = {"page.html": "page"}
    files |= {"table.csv": "CSV"} if command in _TABLE_COMMANDS else {}
    files |= {"plan.toml": "plan"} if answer.plan else {}
    files |= {"launch.zip": "all files"} if command == "launch" else {}
    pictures = PICTURES.get(command, ()) if answer.is_drawn else ()
    return files | {
        f"{name}.png": f"picture: {name}" for name in pictures if name not in LOAD_PICTURES
    }


@record(kw_only=True)
class Example:
    """An example question: its title, its text, and its link."""

    title: str
    words: str
    command: str
    query: str


@cache
def examples() -> Sequence[Example]:
    """The examples of the first page."""
    return [Example(**row) for row in read_table("examples.csv", Path(__file__).parent)]


def _require_command(command: str) -> str:
    if command not in COMMANDS:
        raise RequestRefused(f"There is no /api/{command}: ask {', '.join(COMMANDS)}.", 404)
    return command


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _event(kind: str, table: Mapping[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(table)}\n\n"
