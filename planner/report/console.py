"""Where tables are printed, and how they look on a terminal and in a pipe."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, NoReturn, TextIO

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from planner.base.text import printable
from planner.errors import OutputError

_PIPED_WIDTH = 80
# Read on a light and on a dark ground.
GOOD, BAD, TIE = "bold green", "red", "magenta"
_PLAIN_HEAD = Box(str(SIMPLE_HEAD).replace("─", "-"), ascii=True)


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does, without its padding at the end of lines where a file takes them."""
        try:
            self._print(*objects, **options)
            self.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "stderr" if self.file is sys.stderr else "stdout"
            raise OutputError(f"{name}: cannot be written ({error.strerror or error}).") from error

    def _print(self, *objects: Any, **options: Any) -> None:
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as printed:
            super().print(*objects, **options)
        lines = printed.get().split("\n")
        self.file.write("\n".join(line.rstrip(" ") for line in lines))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """As rich does, without control characters that came with a name.

        Styles and the moves of a progress bar are no part of the text.
        """
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr: plain text of 80 columns where it is not a terminal."""
    file = sys.stderr if stderr else sys.stdout
    width = None if file.isatty() else _piped_width()
    return _Console(file=file, width=width, highlight=False, emoji=False, markup=False)


def text_console(file: TextIO, width: int) -> Console:
    """A console that writes plain text of a width into a stream."""
    return _Console(
        file=file, width=width, highlight=False, emoji=False, markup=False, no_color=True
    )


def make_table(console: Console, *, gap: int = 2, header: bool = True) -> Table:
    """An empty table whose columns stand ``gap`` apart."""
    return Table(
        box=(SIMPLE_HEAD if console.is_terminal else _PLAIN_HEAD) if header else None,
        show_edge=False,
        show_header=header,
        pad_edge=False,
        padding=(0, gap - 1 if header else gap, 0, 0),
        header_style="bold",
    )


def print_title(console: Console, title: str) -> None:
    """A heading with an empty line before it."""
    console.print()
    console.print(title, style="bold")


def print_folded(console: Console, line: str, *, indent: str = "  ", most: int = 9) -> None:
    """A sentence over as many lines as it takes, but no more than ``most``; words stay whole."""
    print_lines = textwrap.wrap(
        line,
        max(console.width, 20),
        subsequent_indent=indent,
        max_lines=most,
        placeholder=" ...",
        break_long_words=False,
        break_on_hyphens=False,
    )
    for words in print_lines:
        console.print(words, soft_wrap=True)


def print_pairs(console: Console, pairs: dict[str, str]) -> None:
    """Names and their values in two aligned columns."""
    table = make_table(console, header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs.items():
        table.add_row(name, text)
    console.print(table)


def _piped_width() -> int:
    try:
        return max(20, int(os.environ.get("COLUMNS", _PIPED_WIDTH)))
    except ValueError:
        return _PIPED_WIDTH
