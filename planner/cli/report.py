"""``planner report``: a page of a result for those who decide."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import how

Result = Annotated[
    Path,
    typer.Argument(
        help="The JSON file of a search, size or estimate, a plan, or the directory of a sweep.",
        metavar="RESULT",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the page here; - is stdout.", metavar="FILE"),
]
Markdown = Annotated[
    Path | None,
    typer.Option(help="Write it as Markdown, for a wiki or a pull request.", metavar="FILE"),
]


def report(
    result: Result,
    output: Output = None,
    markdown: Markdown = None,
    specs: how.Specs = None,
    quiet: how.Quiet = False,
) -> None:
    """Write a result as one page: the answer, its alternatives, the front, what it rests on."""
    from planner.base.files import check_path
    from planner.errors import SearchSpaceError
    from planner.pages.read import page_of
    from planner.show.html import check_installed, page_html
    from planner.show.html import markdown as as_markdown

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
        check_installed()
    page = page_of(result, specs)
    if output is not None:
        _write(output, page_html(page), quiet)
    if markdown is not None:
        _write(markdown, as_markdown(page), quiet)


def _write(path: Path, words: str, quiet: bool) -> None:
    from planner.base.files import STDOUT, written_whole

    with written_whole(path) as file:
        file.write(words)
    if path != STDOUT and not quiet:
        typer.echo(f"Written: {path}", err=True)
