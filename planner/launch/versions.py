"""The version of an engine that a file names, and the profile that holds for it."""

from __future__ import annotations

import re

from planner.base.records import record
from planner.launch.understood import Found
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind

_NUMBER = r"v?(?P<number>\d+\.\d+(?:\.\d+)*)"
# What names a version, the surest first: the tag of an image, a pin, words. Images of other
# products that hold the engine count versions of their own.
_PLACES = {
    "vllm": (
        rf"\bvllm-openai(?:-\w+)*:{_NUMBER}",
        rf"\bvllm/vllm-[\w-]+:{_NUMBER}",
        rf"\bq9t5s3a7/vllm[\w-]*:{_NUMBER}",
        rf"\brepository:\s*\S*\bvllm-openai\S*\s+tag:\s*[\"']?{_NUMBER}",
        rf"\bvllm(?:\[[\w,-]+\])?\s*[=~]=\s*{_NUMBER}",
        rf"#[^\n]*\bvllm(?:\s+version)?[\s:=-]+{_NUMBER}",
    ),
}


@record(kw_only=True)
class Version:
    """A version that stands in a line of a file; ``tool`` is the engine's target."""

    tool: str
    number: str
    line: int

    @property
    def parts(self) -> tuple[int, ...]:
        """Its numbers, the first the one that matters most."""
        return _parts(self.number)

    def profile(self, catalogue: Catalogue, vendor: str | None = None) -> str | None:
        """The engine profile of the latest release that is not after it; None where none is.

        It has kernels for the GPUs of a ``vendor``, where that is known.
        """
        held: list[tuple[tuple[int, ...], str]] = []
        for name in catalogue.names(SpecKind.ENGINES):
            spec = catalogue.load_engine(name).spec
            tool, _, since = spec.since.partition(" ")
            if tool == self.tool and _parts(since) <= self.parts:
                held += [(_parts(since), name)] * (vendor is None or vendor in spec.vendors)
        # Of equal ones the first: a copy that was calibrated has a longer name.
        return max(held, key=lambda one: one[0])[1] if held else None


def version_of(tool: str, found: Found) -> Version | None:
    """The version of a tool that the file of a command names, nearest to the command.

    Image tags count before pins, and those before comments.
    """
    for place in _PLACES.get(tool, ()):
        named = [
            _version(tool, found.text, one) for one in re.finditer(place, found.text, re.IGNORECASE)
        ]
        if named:
            return min(named, key=lambda one: abs(one.line - found.line))
    return None


def _version(tool: str, text: str, at: re.Match[str]) -> Version:
    line = text.count("\n", 0, at.start("number")) + 1
    return Version(tool=tool, number=at["number"], line=line)


def _parts(number: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", number)))
