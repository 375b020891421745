"""``planner report``, ``planner ui``, ``planner mcp``: pages in a file, a browser, an assistant."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from planner.cli import options
from planner.errors import require_installed


@options.with_command_options("ui")
def ui(values: options.OptionValues) -> None:
    """Run the web interface and JSON API on this machine.

    Other machines can reach it only with --host, and need the access token.
    """
    require_installed("planner ui needs", "ui", "fastapi", "jinja2", "uvicorn")
    from planner.specs.catalogue import Catalogue
    from planner.ui.request_limits import Limits
    from planner.ui.server import serve

    Catalogue(values["specs"])  # raises here if the folder does not exist
    limits = Limits(seconds=values["time_limit"], **_workers(values))

    def announce(link: str) -> None:
        if not values["quiet"]:
            typer.echo(f"planner is at {link} (Ctrl-C ends it)", err=True)

    server_options = {name: values[name] for name in ("host", "port", "specs")}
    serve(**server_options, token=values["token"] or "", limits=limits, report_address=announce)


@options.with_command_options("mcp")
def mcp(values: options.OptionValues) -> None:
    """Run an MCP server for AI assistants."""
    for module in ("mcp", "jinja2"):
        require_installed("planner mcp needs", "mcp", module)
    from planner.specs.catalogue import Catalogue
    from planner.ui.mcp_server import serve
    from planner.ui.request_limits import Limits

    Catalogue(values["specs"])
    serve(Limits(seconds=values["time_limit"], **_workers(values)), values["specs"])


def _workers(values: options.OptionValues) -> dict[str, int]:
    return {} if values["workers"] is None else {"workers": values["workers"]}


@options.with_command_options("report")
def report(values: options.OptionValues) -> None:
    """Write a result as a page to share.

    The page has the answer, the alternatives, the front and the sources.
    """
    from planner.base.atomic_write import check_path
    from planner.decide.sizing.purchase import read_price_change
    from planner.errors import SearchSpaceError
    from planner.show.html import markdown as as_markdown
    from planner.show.html import page_html
    from planner.ui.pages.page_of_file import read_page

    output, markdown, result = values["output"], values["markdown"], values["result"]
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
    change = values["price_change"]
    if change is not None:
        change = read_price_change(change, "--price-change")
    page = read_page(result, values["specs"], change)
    if output is not None:
        _write(output, page_html(page), values["quiet"])
    if markdown is not None:
        _write(markdown, as_markdown(page), values["quiet"])


def _write(path: Path, text: str, quiet: bool) -> None:
    """Write a text to a file atomically and print the path on stderr, unless ``quiet``."""
    from planner.base.atomic_write import STDOUT, write_atomically

    with write_atomically(path) as file:
        file.write(text)
    if path != STDOUT and not quiet:
        typer.echo(f"Written: {path}", err=True)
