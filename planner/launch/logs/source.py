"""The lines of a log, whatever printed them: packed or not, coloured, of several ranks, cut."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.base.reading import opened, unreadable
from planner.base.records import record
from planner.errors import LaunchError

_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16
_MOST_CHARACTERS = 4 << 30
_LARGEST_JSON = 256 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NUMBER_AT_END = re.compile(r"\d[\d.,eE+-]*$")
# What launchers write before the lines of a rank: torchrun, torchrun --tee, srun --label.
_RANK = re.compile(r"\s*(?:\[(?:rank|default)?(\d+)\]:|(\d+):(?=\s))\s?")


@record(kw_only=True)
class Line:
    """A line without colours and without what a launcher wrote before it.

    ``stream`` tells the rank that printed it as far as the launcher does, else it is empty.
    """

    number: int
    stream: str
    text: str


@record()
class Log:
    """A log file, read line by line as often as it is asked for."""

    path: Path

    @cached_property
    def cut(self) -> bool:
        """Whether the file ends in the middle of a number or of its packed data."""
        try:
            ends = deque(self._pieces(), maxlen=1)
        except (EOFError, zlib.error):
            return True
        return bool(ends) and _is_cut(ends[0])

    def lines(self) -> Iterator[Line]:
        """Every line but one that the end of the file cuts, so that its last number is a part.

        Raises
        ------
        LaunchError
            The file cannot be read, or is larger than a log is.
        """
        read = 0
        try:
            for number, piece in enumerate(self._pieces(), 1):
                read += len(piece)
                if read > _MOST_CHARACTERS:
                    raise LaunchError(f"{self.path}: is longer than 4 GiB; give a part of it.")
                if not _is_cut(piece):
                    yield _line(number, piece)
        except (EOFError, zlib.error):
            return
        except OSError as error:
            raise unreadable(self.path, error, LaunchError) from error

    @cached_property
    def objects(self) -> tuple[Any, ...]:
        """What a file of JSON, or of a JSON object per line, holds; nothing of any other file."""
        text = self._small_text()
        if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
            return ()
        try:
            return (json.loads(text.lstrip("\ufeff")),)
        except (ValueError, RecursionError):
            return tuple(_objects_of_lines(text))

    def _small_text(self) -> str:
        """The text, or nothing of a file too large to be a result."""
        try:
            text = "".join(_within(self._pieces(), _LARGEST_JSON))
        except (EOFError, zlib.error):
            return ""
        except OSError as error:
            raise unreadable(self.path, error, LaunchError) from error
        return text

    def _pieces(self) -> Iterator[str]:
        """Lines with one kind of end, overlong ones in parts; progress bars end theirs by CR."""
        with opened(self.path, LaunchError) as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream: Any = gzip.GzipFile(fileobj=file) if packed else file
            with io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=None) as text:
                yield from iter(lambda: text.readline(_LONGEST_LINE), "")


def _is_cut(piece: str) -> bool:
    """Whether a number goes on behind a piece, as far as that can be known."""
    is_open = not piece.endswith("\n") and len(piece) < _LONGEST_LINE
    return is_open and _NUMBER_AT_END.search(piece) is not None


def _line(number: int, piece: str) -> Line:
    text = _ANSI.sub("", piece).rstrip()
    rank = _RANK.match(text)
    if rank is None:
        return Line(number=number, stream="", text=text)
    return Line(number=number, stream=rank[1] or rank[2], text=text[rank.end() :])


def _within(pieces: Iterator[str], most: int) -> Iterator[str]:
    """The pieces, or none as soon as they are longer than ``most`` characters."""
    kept: list[str] = []
    read = 0
    for piece in pieces:
        read += len(piece)
        # Only what begins like JSON is worth keeping.
        if read > most or (kept == [] and piece.strip() and piece.lstrip()[0] not in "{[\ufeff"):
            return
        if kept or piece.strip():
            kept.append(piece)
    yield from kept


def _objects_of_lines(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the line that a full disk or a kill cut
        if isinstance(found, dict):
            yield found
