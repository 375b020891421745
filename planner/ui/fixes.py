"""What a message says would help, as questions that a click asks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.base.records import record
from planner.ui.question import PLACED, SETTINGS, Question, fields_of, option_of

_MEANT = re.compile(r"'([^']+)'[^?]*?Did you mean ([^?]+)\?", re.DOTALL)
_OPTION = re.compile(r"(--[a-z][\w-]*)(?:[ =]+([^\s,;:]+))?")
_MOST = 8
_END = ".,;:)"
# Words that stand behind an option in a sentence and are no value of it.
_VALUE = re.compile(r"(?=.*[\d=])[\w.=+*/%-]+|true|false|full|selective|bf16|fp8|all")


@record(kw_only=True)
class Fix:
    """A change of a question: its ``query``, or the ``field`` to be filled in."""

    label: str
    query: str = ""
    field: str = ""


def fixes_of(question: Question, message: str) -> list[Fix]:
    """The changes that a message names, each once, those that can be asked at once first."""
    found = {one.label: one for one in (*_meant(question, message), *_options(question, message))}
    return sorted(found.values(), key=lambda one: not one.query)[:_MOST]


def _meant(question: Question, message: str) -> Iterator[Fix]:
    """A word that is unknown, and the nearest that are known."""
    for word, listed in _MEANT.findall(message):
        for meant in re.split(r"\s+or\s+|,\s*", " ".join(listed.split())):
            for name, text in question.fields.items():
                whole = rf"(?<![\w.-]){re.escape(word)}(?![\w.-])"
                changed = re.sub(whole, lambda _, by=meant: by, text, flags=re.IGNORECASE)  # type: ignore[misc]
                if changed != text:
                    query = question.changed(**{name: changed}).query
                    yield Fix(label=f"{word} → {meant}", query=query)


def _options(question: Question, message: str) -> Iterator[Fix]:
    """Options that a message tells to give, with their values where it has some."""
    fields = fields_of(question.command, question.workload)
    names = {option_of(name): name for name in fields if name not in PLACED}
    for option, given in _OPTION.findall(" ".join(message.split())):
        name, value = names.get(option), given.rstrip(_END)
        if name is None:
            continue
        if not _VALUE.fullmatch(value) or value.isupper():
            yield Fix(label=f"Fill in {name.replace('_', ' ')}", field=name)
        elif name == SETTINGS:
            own = dict(one.partition("=")[::2] for one in question.fields.get(name, "").split())
            key, _, text = value.partition("=")
            words = " ".join(f"{n}={v}" for n, v in {**own, key: text}.items())
            yield Fix(label=f"Set {value}", query=question.changed(**{name: words}).query)
        elif question.fields.get(name) != value:
            query = question.changed(**{name: value}).query
            yield Fix(label=f"Set {name.replace('_', ' ')} = {value}", query=query)
