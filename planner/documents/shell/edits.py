"""Edits of launch files: positions of values, changes there, and the difference as a patch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import unified_diff

from planner.base.read_files import MEBIBYTE
from planner.base.records import record
from planner.errors import LaunchError

LARGEST = 4 * MEBIBYTE
"""Bytes of a file, or characters of a text, up to which it is read."""

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True, order=True)
class Span:
    """Characters ``start`` up to ``end`` of a file's text; empty where something can be put in."""

    start: int
    end: int


@record(kw_only=True)
class ParsedOption:
    """One option of a user's file, as read from its text.

    ``option`` is spelled as in the target's table: ``--tensor-model-parallel-size``,
    ``zero_optimization.stage``.
    """

    option: str
    texts: tuple[str | None, ...]
    """Its values as text; empty for a flag; None: an unknown value."""
    line: int
    """The first line of a file is 1."""
    spans: tuple[Span | None, ...]
    """Of each value; through a variable, where that got it; None if composed of several parts."""
    full_span: Span | None
    """Position of option and values, if adjacent: the text to delete to remove the option."""
    unknown: str = ""
    """Why a value is unknown: ``$WORLD_SIZE is set by nothing in this file``."""

    @property
    def single(self) -> str | None:
        """Its only value; None: a flag, several values, or an unknown value."""
        return self.texts[0] if len(self.texts) == 1 else None

    @property
    def joined(self) -> str | None:
        """Its values with blanks between; None: a flag, or an unknown value."""
        readable = [text for text in self.texts if text is not None]
        return (" ").join(readable) if len(readable) == len(self.texts) and readable else None

    def with_value(self, text: str) -> ParsedOption:
        """The option with another value that is not in the file."""
        return replace(self, texts=(text,), spans=(None,))


def implied_option(option: str, text: str, line: int = 1) -> ParsedOption:
    """A default option of a program: it is not in the file."""
    return ParsedOption(option=option, texts=(text,), line=line, spans=(None,), full_span=None)


def apply_edits(text: str, edits: Mapping[Span, str]) -> str:
    """Replace each span of the text; an empty span inserts.

    Raises ValueError if two edits overlap or one lies outside the text.

    >>> apply_edits("tp=2 pp=4", {Span(3, 4): "8", Span(9, 9): " cp=2"})
    'tp=8 pp=4 cp=2'
    """
    parts, done = [], 0
    for span in sorted(edits):
        if not done <= span.start <= span.end <= len(text):
            raise ValueError(f"The edit {span} overlaps another or lies outside the text.")
        parts += [text[done : span.start], edits[span]]
        done = span.end
    return "".join([*parts, text[done:]])


def make_patch(before: str, after: str, name: str) -> str:
    """Return a unified diff for ``patch``; empty if nothing changed.

    >>> print(make_patch("tp=2\\npp=4\\n", "tp=8\\npp=4\\n", "run.sh"), end="")
    --- run.sh
    +++ run.sh
    @@ -1,2 +1,2 @@
    -tp=2
    +tp=8
     pp=4
    """
    lines = unified_diff(list(_lines(before)), list(_lines(after)), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines with their line feeds; no other character ends a line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


Texts = tuple[str | None, ...]
Changes = Mapping[str, tuple[str, ...] | None]
"""Options with their new texts, an empty tuple for a flag; None removes the option."""


@record(kw_only=True)
class EditResult:
    """A file after changes; ``unwritten`` are changes whose position in the text is unknown."""

    text: str
    unwritten: Changes = field(default_factory=dict)


def first_that_reads(
    candidates: Iterable[str],
    wanted: Mapping[str, Texts],
    read: Callable[[str], Mapping[str, Texts]],
) -> str | None:
    """Return the first candidate text that ``read`` turns into ``wanted``; None: none."""
    for candidate in candidates:
        try:
            texts = read(candidate)
        except LaunchError:
            continue
        if dict(texts) == dict(wanted):
            return candidate
    return None


def after_change(
    options: Mapping[str, Texts], name: str, texts: tuple[str, ...] | None
) -> dict[str, Texts]:
    """Return the options after a change of the option ``name``; None removes the option."""
    rest = {option: old for option, old in options.items() if option != name}
    return rest if texts is None else {**rest, name: texts}


def shell_word(text: str) -> str:
    """Quote a text as one argument of a POSIX shell command.

    Raises LaunchError for a NUL character, which no argument of a command can hold.

    >>> print(shell_word("bf16"), shell_word("a b"), shell_word("it's $(rm -rf ~)"))
    bf16 'a b' 'it'"'"'s $(rm -rf ~)'
    """
    if "\0" in text:
        raise LaunchError(f"{text!r} holds a NUL character, which no argument of a command can.")
    if _PLAIN_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


_SAFE_WORD = re.compile(r"[A-Za-z0-9_@%+:,./=-]+")
# Quotes of a string that is split into words do not protect these from the shell.
_EXPANDED = re.compile(r"[*?\[\]{}~]")
_CONTINUED = re.compile(r"[ \t]*\\\r?\n")
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\n]*)?(\r?\n|$)")
_MOST_NEIGHBOURS = 12
_MOST_REPEATED = 5

Read = Callable[[str], Mapping[str, ParsedOption]]


def edit_command(text: str, changes: Changes, read: Read, after: str = "") -> EditResult:
    """Change options of one command in a script; return the text and the unwritten changes.

    Parameters
    ----------
    changes : new texts by option, named as by ``read``
    read : returns the options of the command in a text; every candidate text is read back, and
        accepted only if all other options are unchanged
    after : option after which new ones are written; empty: the last ones are tried
    """
    unwritten: dict[str, tuple[str, ...] | None] = {}
    for name, texts in changes.items():
        options = read(text)
        option = options.get(name)
        if (option is None and texts is None) or (option is not None and option.texts == texts):
            continue
        if option is None:
            # Options after which the new one may be written, the best first.
            placed = [other for other in options.values() if other.full_span is not None]
            placed.sort(key=lambda other: other.full_span or Span(0, 0), reverse=True)
            neighbours = [*([options[after]] if after in options else []), *placed]
            candidates = _added(text, name, texts or (), neighbours[:_MOST_NEIGHBOURS])
        elif texts is None:
            candidates = _removed(text, option)
        else:
            candidates = _changed(text, option, texts)
        wanted = after_change(_texts(options), name, texts)
        edited = first_that_reads(candidates, wanted, lambda candidate: _texts(read(candidate)))
        if edited is None and texts is None:
            edited = _removed_again(text, name, wanted, read)
        if edited is None:
            unwritten[name] = texts
        else:
            text = edited
    return EditResult(text=text, unwritten=unwritten)


def _texts(options: Mapping[str, ParsedOption]) -> dict[str, tuple[str | None, ...]]:
    return {name: option.texts for name, option in options.items()}


def _changed(text: str, option: ParsedOption, texts: tuple[str, ...]) -> Iterator[str]:
    """Yield texts with the values replaced in place, then with the option written again."""
    spans = [span for span in option.spans if span is not None]
    if len(spans) == len(texts) == len(option.spans):
        for quoted in _spellings(texts):
            yield apply_edits(text, dict(zip(spans, quoted, strict=True)))
    if option.full_span is not None:
        before = text[option.full_span.start : option.full_span.end]
        spelt = re.split(r"[=\s]", before, maxsplit=1)[0]
        for words in _written(
            (spelt if _SAFE_WORD.fullmatch(spelt) else option.option),
            texts,
            joins=_is_joined(option, before),
        ):
            yield apply_edits(text, {option.full_span: words})


def _removed(text: str, option: ParsedOption) -> Iterator[str]:
    """Yield texts of the script without the option, the best layout first."""
    full_span = option.full_span
    if full_span is None:
        return
    start, end = _line_start(text, full_span.start), full_span.end
    if start is not None:
        if match := _CONTINUED.match(text, end):
            yield text[:start] + text[match.end() :]
        elif match := _REST_OF_LINE.match(text, end):
            if text[:start].endswith(("\\\n", "\\\r\n")):
                before = text[:start]
                if before.endswith(("\\\n", "\\\r\n")):
                    before = before.rstrip("\r\n")[:-1].rstrip(" \t")
                yield (before + text[end:])
            yield text[:start] + text[match.end() :]
    blanks = len(text[: full_span.start]) - len(text[: full_span.start].rstrip(" \t"))
    following = len(text) - end - len(text[end:].lstrip(" \t"))
    if start is not None:
        yield text[: full_span.start] + text[end + following :]
    if blanks:
        yield text[: full_span.start - blanks] + text[end:]
    yield text[: full_span.start] + text[end + following :]


def _removed_again(text: str, name: str, wanted: Mapping[str, Texts], read: Read) -> str | None:
    """Remove all occurrences of a repeated option from the text; None: impossible."""
    for _ in range(_MOST_REPEATED):
        options = read(text)
        if name not in options:
            return text

        def others(candidate: str) -> dict[str, Texts]:
            return {
                option: old for option, old in _texts(read(candidate)).items() if option != name
            }

        shorter = first_that_reads(_removed(text, options[name]), wanted, others)
        if shorter is None:
            return None
        text = shorter
    return None


def _added(
    text: str, name: str, texts: tuple[str, ...], neighbours: list[ParsedOption]
) -> Iterator[str]:
    """Yield texts of the script with a new option behind one of its neighbours."""
    for neighbour in neighbours:
        if neighbour.full_span is None:
            continue
        before = text[neighbour.full_span.start : neighbour.full_span.end]
        # Keys may have hyphens in front if their neighbours have some.
        is_key = not (name.startswith("-") or neighbour.option.startswith("-"))
        spelt = f"--{name}" if is_key and before.startswith("--") else name
        span, rest = neighbour.full_span, text[neighbour.full_span.end :]
        if rest.startswith("}") and before.count("{") > before.count("}"):  # ${NAME:-DEFAULT}
            span = Span(span.start, span.end + 1)
        for words in _written(spelt, texts, joins=_is_joined(neighbour, before)):
            yield _put_behind(text, span, words)


def _put_behind(text: str, span: Span, words: str) -> str:
    """Insert words behind a span of the text, on a separate line if the span starts its line."""
    start, end = _line_start(text, span.start), span.end
    if start is None:
        return f"{text[:end]} {words}{text[end:]}"
    indent = text[start : span.start]
    if match := _CONTINUED.match(text, end):
        return f"{text[: match.end()]}{indent}{words} \\\n{text[match.end() :]}"
    if text[:start].endswith(("\\\n", "\\\r\n")):
        return f"{text[:end]} \\\n{indent}{words}{text[end:]}"
    match = _REST_OF_LINE.match(text, end)
    if match is not None and match[1]:
        return f"{text[: match.end()]}{indent}{words}\n{text[match.end() :]}"
    return f"{text[:end]} {words}{text[end:]}"


def _line_start(text: str, position: int) -> int | None:
    """Start of the line if only blanks precede ``position``; else None."""
    start = text.rfind("\n", 0, position) + 1
    return start if not text[start:position].strip(" \t") else None


def _is_joined(option: ParsedOption, before: str) -> bool:
    """Whether option and value are one word: ``--tp=8``."""
    return bool(option.texts) and "=" in before.split()[0]


def _written(name: str, texts: tuple[str, ...], *, joins: bool) -> Iterator[str]:
    """Yield spellings of an option with its values as words of a shell."""
    joins = (joins and len(texts) == 1) or not name.startswith("-")
    for quoted in _spellings(texts):
        values = " ".join(quoted)
        yield f"{name}{'=' if joins else ' '}{values}" if quoted else name


def _spellings(texts: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the values for use outside quotes, in double quotes and in single quotes."""
    yield [shell_word(text) for text in texts]
    if all(_SAFE_WORD.fullmatch(text) for text in texts) or any(map(_EXPANDED.search, texts)):
        return
    yield [re.sub(r'(["$`\\])', r"\\\1", text) for text in texts]
    yield [text.replace("'", "'\"'\"'") for text in texts]
