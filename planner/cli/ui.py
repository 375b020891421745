"""``planner report``, ``planner ui``, ``planner mcp``: pages in a file, a browser, an assistant."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from planner.cli import options
from planner.errors import require_installed


@options.own("ui")
def ui(given: options.Given) -> None:
    """Ask in a browser: forms, pages and a JSON API, on this machine only by default."""
    require_installed("planner ui needs", "ui", "fastapi", "jinja2", "uvicorn")
    from planner.specs.catalogue import Catalogue
    from planner.ui.guard import Limits
    from planner.ui.serve import serve

    Catalogue(given["specs"])  # a folder that is none is told now
    limits = Limits(seconds=given["time_limit"], **_workers(given))

    def said(link: str) -> None:
        if not given["quiet"]:
            typer.echo(f"planner is at {link} (Ctrl-C ends it)", err=True)

    asked = {name: given[name] for name in ("host", "port", "specs")}
    serve(**asked, token=given["token"] or "", limits=limits, said=said)


@options.own("mcp")
def mcp(given: options.Given) -> None:
    """Answer assistants: the questions as tools of the Model Context Protocol."""
    for module in ("mcp", "jinja2"):
        require_installed("planner mcp needs", "mcp", module)
    from planner.specs.catalogue import Catalogue
    from planner.ui.guard import Limits
    from planner.ui.tools import serve

    Catalogue(given["specs"])
    serve(Limits(seconds=given["time_limit"], **_workers(given)), given["specs"])


def _workers(given: options.Given) -> dict[str, int]:
    return {} if given["workers"] is None else {"workers": given["workers"]}


@options.own("report")
def report(given: options.Given) -> None:
    """Write a result as one page: the answer, alternatives, the front, sources."""
    from planner.base.files import check_path
    from planner.errors import SearchSpaceError
    from planner.show.html import markdown as as_markdown
    from planner.show.html import page_html
    from planner.ui.pages.read import page_of

    output, markdown, result = given["output"], given["markdown"], given["result"]
    targets = [path for path in (output, markdown) if path is not None]
    if not targets:
        raise SearchSpaceError("Give --output FILE.html, --markdown FILE.md, or both.")
    if len({*targets}) < len(targets):
        raise SearchSpaceError(f"--output and --markdown both name {output}: give two files.")
    for path in targets:
        check_path(path)
        if os.path.exists(result) and os.path.realpath(path) == os.path.realpath(result):
            raise SearchSpaceError(f"{path}: is the result itself; give another file.")
    if output is not None:
        require_installed("Pages need", "report", "jinja2")
    page = page_of(result, given["specs"])
    if output is not None:
        _write(output, page_html(page), given["quiet"])
    if markdown is not None:
        _write(markdown, as_markdown(page), given["quiet"])


def _write(path: Path, words: str, quiet: bool) -> None:
    from planner.base.files import STDOUT, written_whole

    with written_whole(path) as file:
        file.write(words)
    if path != STDOUT and not quiet:
        typer.echo(f"Written: {path}", err=True)
