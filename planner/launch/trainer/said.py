"""What the options of a script and of the files beside it say, and the answers so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.base.records import record
from planner.launch.option_table import Meaning
from planner.launch.understood import World


@record(kw_only=True)
class Said:
    """What the tables made of each source; see `planner.launch.trainer.reading`.

    ``texts`` are all options by name, None where text alone does not tell the value; ``spelled``
    is how the file has them. ``words``: the program and what stands beside its options.
    """

    script: Mapping[str, Meaning]
    deepspeed: Mapping[str, Meaning]
    accelerate: Mapping[str, Meaning]
    texts: Mapping[str, str | None]
    has_deepspeed: bool
    deepspeed_keys: frozenset[str] = frozenset()
    has_script: bool
    is_supervised: bool
    world: World
    unknown: tuple[str, ...] = ()
    spelled: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def of(self, source: str, parameter: str) -> str | None:
        """What one source says of a parameter; None where none of its options is there."""
        meaning = getattr(self, source).get(parameter)
        return meaning.value if meaning is not None and meaning.options else None

    def number(self, source: str, parameter: str) -> int | None:
        """The same as a whole number."""
        return whole(self.of(source, parameter))

    def absent_file(self) -> str | None:
        """DeepSpeed's file where one is named and is not here."""
        name = self.texts.get("--deepspeed") or ""
        is_here = any("." in key or key == "train_batch_size" for key in self.deepspeed_keys)
        return name if name.endswith(".json") and not is_here else None

    def is_on(self, *options: str) -> bool:
        """Whether one of some flags is there and not false."""
        return any(
            option in self.texts and self.texts[option] not in ("false", "0", "None", "none")
            for option in options
        )

    def is_hidden(self, *options: str) -> bool:
        """Whether one of some options is there with a value that text alone does not tell."""
        return any(option in self.texts and self.texts[option] is None for option in options)


@dataclass(kw_only=True)
class Collected:
    """Answers while they are collected."""

    values: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def default(self, term: str, value: Any, reason: str) -> None:
        """A value that nothing in the file says."""
        self.values[term] = value
        self.defaults[term] = reason

    def ask(self, term: str) -> None:
        """What the file leaves open."""
        if term not in self.asked:
            self.asked.append(term)


def whole(text: str | None) -> int | None:
    """A whole number of at least one; None where it is none.

    >>> whole("2_048"), whole("auto"), whole(None)
    (2048, None, None)
    """
    try:
        number = float((text or "").replace("_", ""))
    except ValueError:
        return None
    return int(number) if number >= 1 and number.is_integer() else None
