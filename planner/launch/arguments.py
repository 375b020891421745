"""The words of a command by the options that its parser takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from planner.documents.shell import Word
from planner.documents.shell.text import Given, Span
from planner.launch.option_table import Accepted, AcceptedOption
from planner.specs.quantization import checkpoint_of

_NUMBER = re.compile(r"-\.?\d")
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./-]*)=")
_MANY = ("*", "+")
_SURE = ("", "1")
_SCRIPT = ".py"
# Blanks, a continued line and its indent stand between words in a row; more stands elsewhere.
_WIDEST_GAP = 400


@dataclass(kw_only=True)
class Arguments:
    """Options by the name of the parser; those it does not know; the other words.

    ``repeated`` are options that a later one of the same name replaced, ``untold`` words of
    which text alone does not tell what they add.
    """

    options: dict[str, Given] = field(default_factory=dict)
    unknown: list[Given] = field(default_factory=list)
    positional: list[Given] = field(default_factory=list)
    repeated: list[Given] = field(default_factory=list)
    untold: list[Given] = field(default_factory=list)

    def add(self, given: Given) -> None:
        """Take in an option; the last one of a name counts."""
        if given.option in self.options:
            self.repeated.append(self.options[given.option])
        self.options[given.option] = given


def read_arguments(words: Sequence[Word], accepted: Accepted) -> Arguments:
    """The options in the words behind a program; ``key=value`` words are options, too."""
    found, place = Arguments(), 0
    while place < len(words):
        word = words[place]
        place += 1
        name, equals, _ = word.begins.partition("=")
        if _is_option(word):
            option = accepted.find(name)
            rest = [word.after(len(name) + 1)] if equals else []
            if not equals:
                rest = _values(words, place, option, accepted)
                place += len(rest)
            given = _given(option.name if option else name, word, rest)
            if option is None:
                found.unknown.append(given)
            else:
                found.add(given)
        elif key := _OVERRIDE.match(word.begins):
            option = accepted.find(key[1])
            given = _given(option.name if option else key[1], word, [word.after(key.end())])
            (found.add if option else found.unknown.append)(given)
        elif word.text is None and not word.begins:
            found.untold.append(_given(word.raw, word, [word]))
        else:
            found.positional.append(_given("", word, [word]))
    return found


def _is_option(word: Word) -> bool:
    return word.begins.startswith("-") and len(word.begins) > 1 and not _NUMBER.match(word.begins)


def _values(
    words: Sequence[Word], place: int, option: AcceptedOption | None, accepted: Accepted
) -> list[Word]:
    """The words from a place on that are values of an option: never an option that is known."""
    following = list(
        takewhile(lambda word: not _is_option(word) and word.begins != "--", words[place:])
    )
    nargs = "?" if option is None else option.nargs
    if nargs in _MANY:
        return following
    if nargs in _SURE:
        if not following and any(accepted.find(word.begins) for word in words[place : place + 1]):
            return []
        return list(words[place : place + 1])
    if nargs == "?" and following and following[0].begins.endswith(_SCRIPT):
        return []
    if nargs == "?":
        return following[:1]
    return following[: int(nargs)] if nargs.isdigit() else following[:1]


def _given(name: str, word: Word, values: Sequence[Word]) -> Given:
    unknown = "; ".join(dict.fromkeys(value.unknown for value in values if value.unknown))
    return Given(
        option=name,
        texts=tuple(value.text or _model_in(name, value) for value in values),
        line=word.line,
        spans=tuple(value.span for value in values),
        whole=_whole([word, *values]),
        unknown=unknown,
    )


def told_in(word: Word) -> str:
    """A word's text, or the end of it where its beginning is not known."""
    if word.text is not None:
        return word.text
    return next((piece.text for piece in reversed(word.pieces) if piece.text), "")


def _model_in(option: str, word: Word) -> str | None:
    """The model at the end of a path whose folder text alone does not tell: ``$HOME/llama-7b``."""
    _, slash, name = told_in(word).rpartition("/")
    is_known = bool(slash and word.pieces and not word.pieces[-1].unknown)
    is_model = is_known and "model" in option.lower() and checkpoint_of(name).model is not None
    return name if is_model else word.text


def _whole(words: Sequence[Word]) -> Span | None:
    """The words where they stand in a row: on the command's line, in an array, in a string."""
    if len(words) > 1 and words[1].raw == words[0].raw and words[1].regions == words[0].regions:
        # --option=value is one word.
        words = words[:1]
    best: tuple[int, Span] | None = None
    for first in words[0].regions:
        gaps, end = 0, first.end
        for word in words[1:]:
            behind = [place for place in word.regions if place.start >= end]
            if not behind:
                break
            place = min(behind)
            gaps, end = gaps + place.start - end, place.end
        else:
            if gaps <= _WIDEST_GAP and (best is None or gaps < best[0]):
                best = gaps, Span(first.start, end)
    return best[1] if best else None
