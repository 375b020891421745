"""``planner ui``: the questions of the command line in a browser."""

from __future__ import annotations

import typer

from planner.cli import options


@options.own("ui")
def ui(given: options.Given) -> None:
    """Ask in a browser: forms, pages and a JSON API, on this machine only by default."""
    from planner.ui.serve import check_installed, serve

    check_installed()
    from planner.specs.catalogue import Catalogue
    from planner.ui.guard import Limits

    Catalogue(given["specs"])  # a folder that is none is told now
    own = {} if given["workers"] is None else {"workers": given["workers"]}
    limits = Limits(seconds=given["time_limit"], **own)

    def said(link: str) -> None:
        if not given["quiet"]:
            typer.echo(f"planner is at {link} (Ctrl-C ends it)", err=True)

    asked = {name: given[name] for name in ("host", "port", "specs")}
    serve(**asked, token=given["token"] or "", limits=limits, said=said)
