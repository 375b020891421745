"""Prints blocks: on a terminal as wide as it is, otherwise as plain text."""

from __future__ import annotations

import io
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, NoReturn

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from planner.base.formatting import printable
from planner.base.signals import defer_interrupt, is_stop_requested
from planner.base.units import ceil_div
from planner.errors import OutputError
from planner.optimize.exhaustive import StopSearch
from planner.show.output_blocks import (
    BAD,
    BEST,
    FAINT,
    TIE,
    TOTAL,
    Block,
    Code,
    ColumnHead,
    KeyValues,
    Lines,
    SideBySide,
    Table,
    TextChart,
    Title,
)

_PIPED_WIDTH = 80
_PAIR_GAP = "   "
_NARROW, _ROOMY, _SIDE_BY_SIDE = 60, 72, 78
# Legible on light and dark backgrounds.
_STYLES: Mapping[str, str] = {
    BEST: (
        "bold green"
    ), TIE: "magenta", BAD: "red", TOTAL: "bold",
    FAINT: "dim",
}  # fmt: skip
_PLAIN_HEAD = Box(str(SIMPLE_HEAD).replace("─", "-"), ascii=True)


class _Console(Console):
    def print(self, *objects: object, **options: object) -> None:
        """Print as rich does, without trailing spaces if the output is a file."""
        try:
            self._print(*objects, **options)
            self.file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "stderr" if self.file is sys.stderr else "stdout"
            raise OutputError(f"{name}: cannot be written ({error.strerror or error}).") from error

    def _print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; trailing spaces are removed if the output is no terminal."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        if options.get("soft_wrap"):  # whole lines, for which rich takes a hundred times as long
            texts = (line for text in objects for line in str(text).expandtabs().split("\n"))
            self.file.write("".join(f"{printable(line).rstrip(' ')}\n" for line in texts))
            return
        with self.capture() as printed:
            super().print(*objects, **options)
        lines = printed.get().split("\n")
        self.file.write("\n".join(line.rstrip(" ") for line in lines))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, but without control characters in names.

        Styles and cursor movements of a progress bar stay.
        """
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for stdout or stderr: plain text of 80 columns if not a terminal."""
    file = sys.stderr if stderr else sys.stdout
    try:
        piped = max(20, int(os.environ.get("COLUMNS", _PIPED_WIDTH)))
    except ValueError:
        piped = _PIPED_WIDTH
    width = None if file.isatty() else piped
    return _Console(file=file, width=width, highlight=False, emoji=False, markup=False)


def terminal_text(blocks: Iterable[Block], width: int) -> str:
    """Return blocks as plain text of a width in characters."""
    stream = io.StringIO()
    console = _Console(
        file=stream, width=width, highlight=False, emoji=False, markup=False, no_color=True
    )
    print_blocks(console, blocks)
    return stream.getvalue().rstrip("\n")


def print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    """Print blocks one after the other."""
    for block in blocks:
        _WRITERS[type(block)](console, block)


def _write_title(console: Console, title: Title) -> None:
    console.print()
    console.print(title.text, style="bold")


def _write_lines(console: Console, lines: Lines) -> None:
    """Print sentences wrapped between words."""
    for line in lines.lines:
        if not lines.most:
            console.print(line, style=_STYLES.get(lines.mark), soft_wrap=True)
            continue
        folded = textwrap.wrap(
            line,
            max(console.width, 20),
            subsequent_indent=lines.indent,
            max_lines=lines.most,
            placeholder=" ...",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in folded or [""]:
            console.print(text, style=_STYLES.get(lines.mark), soft_wrap=True)


def _write_code(console: Console, code: Code) -> None:
    is_command = "\n" not in code.text
    text = fold_command(code.text, console.width) if is_command else code.text
    console.print(text, soft_wrap=True)


def fold_command(command: str, width: int) -> str:
    """Return a command as shell lines with continuations; options stay with their values."""
    pieces: list[str] = []
    for argument in shlex.split(command):
        if pieces and pieces[-1].startswith("--") and not argument.startswith("--"):
            pieces[-1] += f" {shlex.quote(argument)}"
        else:
            pieces.append(shlex.quote(argument))
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + len(piece) + 1 > width - (2 if len(lines) == 1 else 6):
            lines.append(piece)
        else:
            lines[-1] += f" {piece}"
    return " \\\n    ".join(lines)


def _write_pairs(console: Console, pairs: KeyValues) -> None:
    """Print names and values in aligned columns, or one after the other if they are inline."""
    items = [*pairs.pairs.items()]
    if pairs.is_inline:
        for text in _join_pairs(items, max(console.width, 20), pairs.indent):
            console.print(text, soft_wrap=True)
        return
    half = ceil_div(len(items), 2)
    paired: list[Sequence[str]] = [
        [*left, *right]
        for left, right in zip_longest(items[:half], items[half:], fillvalue=("", ""))
    ]
    widths = [max(map(len, column)) for column in zip(*paired, strict=True)]
    is_two_column = pairs.is_two_column and sum(widths) + 2 * (len(widths) - 1) <= console.width
    table = _empty_table(console, has_head=False)
    for number in range(4 if is_two_column else 2):
        is_whole = not pairs.is_two_column and number == 0
        table.add_column(no_wrap=is_whole, overflow="ellipsis" if is_whole else "fold")
    for cells in paired if is_two_column else items:
        table.add_row(*cells)
    console.print(table)


def _join_pairs(items: Iterable[tuple[str, str]], width: int, indent: str) -> list[str]:
    """Return lines of names and values; a pair is broken only if it is longer than a line."""
    lines = [""]
    for name, value in items:
        pair = f"{name} {value}".strip()
        if lines[-1] and len(indent) + len(lines[-1]) + len(_PAIR_GAP) + len(pair) > width:
            lines.append("")
        lines[-1] += f"{_PAIR_GAP if lines[-1] else ''}{pair}"
    further = f"{indent}  "
    return [
        text
        for line in lines
        for text in textwrap.wrap(
            line, width, initial_indent=indent, subsequent_indent=further, break_long_words=False
        )
    ]


def _write_table(console: Console, table: Table) -> None:
    """Print a table with its notes; names the columns that do not fit if it must be complete."""
    console.print(_make_rich_table(console, table))
    if table.is_whole and table.elsewhere:
        names = {head.name for head in _fit_columns(table, console.width)[0]}
        missing = [head.name for head in table.heads if head.name not in names]
        if missing:
            console.print(f"Columns not shown: {', '.join(missing)} ({table.elsewhere}).")
    for note in table.notes:
        console.print(note)


def _make_rich_table(console: Console, table: Table) -> RichTable:
    """Return a rich table in which columns are omitted or cells folded to fit the width."""
    heads, gap = [*table.heads], 2
    if table.is_whole:
        heads, gap = _fit_columns(table, console.width)
    elif console.width < _NARROW:
        heads = [head for head in heads if not head.rank]
    names = {head.name for head in heads}
    shown_indexes = [index for index, head in enumerate(table.heads) if head.name in names]
    stacked = [_head_lines(h) if table.is_whole else h.text.split("\n") for h in heads]
    highest = max(map(len, stacked))
    widest = (
        max(
            map(
                len,
                (
                    *head_lines,
                    *(line for row in table.rows for line in row[index].text.split("\n")),
                ),
            )
        )
        for head_lines, index in zip(stacked, shown_indexes, strict=True)
    )
    if not table.is_whole and sum(widest) + 2 * (len(shown_indexes) - 1) > console.width:
        has_numbers = any(head.numeric for head in heads)
        gap = 1 if has_numbers or console.width < _ROOMY else 2
    has_head = any(head.text.strip() for head in heads)
    rich_table = _empty_table(console, gap=gap if has_head else 2, has_head=has_head)
    for head, head_lines in zip(heads, stacked, strict=True):
        is_whole = head.numeric or table.is_whole
        rich_table.add_column(
            Text("\n" * (highest - len(head_lines)) + "\n".join(head_lines)),
            justify="right" if head.numeric else "left",
            no_wrap=is_whole,
            overflow="ellipsis" if is_whole else "fold",
            vertical="bottom" if table.is_low else "top",
        )
    for number, row in enumerate(table.rows):
        mark = table.mark_of(number)
        if mark == TOTAL and number and not table.is_whole:
            rich_table.add_section()
        cells = [Text(row[index].text, _STYLES.get(row[index].mark, "")) for index in shown_indexes]
        rich_table.add_row(*cells, style=_STYLES.get(mark))
    return rich_table


def _head_lines(head: ColumnHead) -> list[str]:
    """Return the lines of a head: those that it has, or else its words."""
    return head.text.split("\n") if "\n" in head.text else head.text.split() or [""]


def _empty_table(console: Console, *, gap: int = 2, has_head: bool = True) -> RichTable:
    """Return a rich table without rows, with ``gap`` spaces between its columns."""
    return RichTable(
        box=(SIMPLE_HEAD if console.is_terminal else _PLAIN_HEAD) if has_head else None,
        show_edge=False,
        show_header=has_head,
        pad_edge=False,
        padding=(0, gap - 1 if has_head else gap, 0, 0),
        header_style="bold",
    )


def _fit_columns(table: Table, width: int) -> tuple[list[ColumnHead], int]:
    """Return the columns that fit the width, and the number of spaces between them."""
    cells = zip(*([cell.text for cell in row] for row in table.rows), strict=True)
    widest = [max(map(len, column), default=0) for column in cells] or [0] * len(table.heads)
    short = [ColumnHead(**{**vars(h), "text": h.short or h.text}) for h in table.heads]

    def total(heads: Sequence[ColumnHead], gap: int) -> int:
        head_widths = (max(map(len, _head_lines(head))) for head in heads)
        cell_widths = (widest[index_of[head.name]] for head in heads)
        return sum(map(max, head_widths, cell_widths)) + gap * (len(heads) - 1)

    index_of = {head.name: index for index, head in enumerate(table.heads)}
    for heads in ([*table.heads], short):
        for gap in (2, 1):
            if total(heads, gap) <= width:
                return heads, gap
    ranked = sorted(short, key=lambda head: head.rank)
    while len(ranked) > 2 and total(ranked, 1) > width:
        ranked.pop()
    shown_names = {head.name for head in ranked}
    return [head for head in short if head.name in shown_names], 1


def _write_side_by_side(console: Console, block: SideBySide) -> None:
    """Print tables side by side if the width allows, otherwise below each other."""
    parts = [
        Group(Text(title, style="bold"), _make_rich_table(console, table))
        for title, table in block.tables.items()
    ]
    if console.width >= _SIDE_BY_SIDE:
        row = RichTable.grid(padding=(0, 4, 0, 0))
        row.add_row(*parts)
        console.print()
        console.print(row)
        return
    for part in parts:
        console.print()
        console.print(part)


def _write_text_chart(console: Console, drawn: TextChart) -> None:
    is_plain = not console.is_terminal or console.options.ascii_only
    for line in drawn.lines(console.width, is_plain):
        console.print(line, soft_wrap=True)


_WRITERS: Mapping[type, Callable[..., None]] = {
    Title: _write_title,
    Lines: _write_lines,
    Code: _write_code,
    KeyValues: _write_pairs,
    Table: _write_table,
    SideBySide: _write_side_by_side,
    TextChart: _write_text_chart,
}


_PATIENCE = 1.0


@contextmanager
def stoppable_bar(total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar as `progress_bar` does, for a search that can be interrupted.

    After SIGINT the yielded function raises `planner.optimize.exhaustive.StopSearch`.
    """
    with defer_interrupt(), progress_bar(total, unit, quiet=quiet) as bar:

        def report_progress(done: int) -> None:
            if bar is not None:
                bar(done)
            if is_stop_requested():
                raise StopSearch

        yield report_progress


@contextmanager
def progress_bar(total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that sets the number of steps done; None if no bar is shown."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
        BarColumn(bar_width=None),
        TimeRemainingColumn(),
        console=make_console(stderr=True),
        transient=True,
    )
    task = bar.add_task("search", total=total)
    started = time.monotonic()

    def report_progress(done: int) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()

    try:
        yield report_progress
    finally:
        bar.stop()
