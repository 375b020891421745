"""``planner ui`` and ``planner mcp``: the questions in a browser, and of assistants."""

from __future__ import annotations

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
