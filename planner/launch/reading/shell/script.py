"""What a shell script says: its commands, variables, directives and the files it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from planner.base.records import record
from planner.launch.reading.shell.values import Pieces, Word
from planner.launch.text import Span


@record(kw_only=True)
class Command:
    """One command with its words expanded, and the variables that it is given."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    line: int
    span: Span


@record(kw_only=True)
class Directive:
    """An option for the scheduler in a comment: ``#SBATCH --nodes=4``.

    ``kind`` is ``SBATCH``, ``PBS`` or ``BSUB``; ``text`` is empty for a flag; ``span`` is of the
    value, ``whole`` of option and value.
    """

    kind: str
    option: str
    text: str
    span: Span
    line: int
    whole: Span


@record(kw_only=True)
class HereDocument:
    """A text that the script gives to a command or writes to a file.

    ``span`` is where it stands. ``expanded``: variables were replaced or tabs removed, so that
    `place` says where a part of ``text`` stands. What is not known stands in ``text`` as in the
    file, and ``unknown`` says why.
    """

    text: str
    span: Span
    line: int
    expanded: bool
    unknown: str = ""
    pieces: Pieces = field(default=(), repr=False)

    def place(self, span: Span) -> Span | None:
        """Where characters of ``text`` stand in the script; None if they are computed."""
        if not self.expanded:
            return Span(self.span.start + span.start, self.span.start + span.end)
        passed = 0
        for piece in self.pieces:
            end = passed + len(piece.text)
            if passed <= span.start and span.end <= end and span.start < max(end, passed + 1):
                whole = (span.start, span.end) == (passed, end)
                if piece.is_exact or (whole and piece.start >= 0):
                    part = piece.part(span.start - passed, span.end - passed)
                    return Span(part.start, part.end)
                return None
            passed = end
        return None


@record(kw_only=True)
class Script:
    """A shell script as far as its text alone tells; nothing of it was run.

    ``commands`` in the order in which they would run; a branch that is certainly not taken is
    left out. ``variables`` as they are at the end. ``files`` are here-documents by the name of
    the file that they are written to, else ``<<END (line 3)``.
    """

    name: str
    text: str
    commands: tuple[Command, ...]
    variables: Mapping[str, Word]
    directives: tuple[Directive, ...]
    files: Mapping[str, HereDocument]
