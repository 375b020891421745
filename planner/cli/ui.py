"""``planner ui``: the questions of the command line in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import how

Host = Annotated[
    str,
    typer.Option(help="The address to listen on; beyond this machine a token is needed."),
]
Port = Annotated[int, typer.Option(help="The port; 0 is any that is free.", min=0, max=65535)]
Token = Annotated[
    str, typer.Option(help="Who asks needs it; made where none is given and others may ask.")
]
Workers = Annotated[
    int | None, typer.Option(help="Processes that answer; one for each core.", min=1, max=256)
]
Seconds = Annotated[
    float, typer.Option("--time-limit", help="Seconds of work on one question.", min=1)
]


def ui(
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Token = "",
    workers: Workers = None,
    time_limit: Seconds = 60.0,
    specs: how.Specs = None,
    quiet: how.Quiet = False,
) -> None:
    """Ask in a browser: forms, pages and a JSON interface, on this machine alone by default."""
    from planner.ui.serve import check_installed, serve

    check_installed()
    from planner.specs.catalogue import Catalogue
    from planner.ui.limits import Limits

    Catalogue(specs)  # a folder that is none is told now
    own = {} if workers is None else {"workers": workers}
    limits = Limits(seconds=time_limit, **own)

    def said(link: str) -> None:
        if not quiet:
            typer.echo(f"planner is at {link} (Ctrl-C ends it)", err=True)

    serve(host, port, token=token, limits=limits, specs=specs, said=said)
