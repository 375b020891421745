"""What a user's file was found to say, before and after a target understood it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError
from planner.launch.option_table import Meaning
from planner.launch.text import Given

_LARGEST = 1e18


@record(kw_only=True)
class World:
    """On what a file starts its job; None where it does not say.

    ``num_gpus`` where it gives a total; ``gpu`` as its scheduler calls the kind; ``copies`` of
    the whole job, which know nothing of each other.
    """

    num_nodes: Given | None = None
    gpus_per_node: Given | None = None
    num_gpus: Given | None = None
    gpu: str | None = None
    copies: Given | None = None


@record(kw_only=True)
class Found:
    """One command or document of a file that a target reads.

    ``options`` are those that the target's parsers know, by the names of its table; ``unknown``
    those that they do not; ``repeated`` those that a later one of the same name replaces.
    ``positional`` are words that are no options, the model of
    ``vllm serve`` among them. ``files`` are documents that the same text writes (here-documents),
    or that stand beside it, by the name that options call them. ``text`` and ``name`` are those
    of the file in which the spans are.
    """

    target: str
    name: str
    text: str
    line: int = 1
    options: Mapping[str, Given] = field(default_factory=dict)
    unknown: tuple[Given, ...] = ()
    repeated: tuple[Given, ...] = ()
    positional: tuple[Given, ...] = ()
    environment: Mapping[str, Given] = field(default_factory=dict)
    world: World = field(default_factory=World)
    files: Mapping[str, Found] = field(default_factory=dict)


@record(kw_only=True)
class Answers:
    """What a target makes of a file, in the words of the table of terms.

    ``values`` are parameters and questions by name, as text or numbers; ``shape`` the model's
    in the words of `planner.launch.shape` where the file tells it in place of a name.
    ``used`` are further options that told something, ``ignored`` such as are the tool's and no
    part of what is predicted; ``defaults`` what the target does where
    the file says nothing, by term, with the reason. ``asked`` are terms that the file leaves
    open and that have no default; ``notes`` say what else is worth knowing.
    """

    workload: str
    values: Mapping[str, Any]
    shape: Mapping[str, Any] | None = None
    used: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@record(kw_only=True)
class Reading:
    """A file as its target's table reads it: what `Target.answers` is given."""

    found: Found
    meanings: Mapping[str, Meaning]

    def text(self, option: str) -> str | None:
        """The single value of an option; None where it is absent, a flag, or cannot be told."""
        given = self.found.options.get(option)
        return given.texts[0] if given is not None and len(given.texts) == 1 else None

    def has(self, option: str) -> bool:
        """Whether the option is there."""
        return option in self.found.options

    def number(self, option: str) -> int | None:
        """The value of an option as a whole number; None where it is none.

        Raises
        ------
        LaunchError
            It is beyond what anything counts.
        """
        amount = self.amount(option)
        return int(amount) if amount is not None and amount.is_integer() else None

    def amount(self, option: str) -> float | None:
        """The value of an option as any number, as `number`."""
        text = (self.text(option) or "").replace("_", "")
        try:
            number = float(text)
        except ValueError:
            return None
        if abs(number) > _LARGEST:
            where = f"{self.found.name}:{self.found.line}"
            raise LaunchError(f"{where}: {option} is {text[:40]}, which is beyond {_LARGEST:.0e}.")
        return number

    def value(self, parameter: str) -> str | None:
        """The value of a parameter or quantity of the table."""
        meaning = self.meanings.get(parameter)
        return None if meaning is None else meaning.value
