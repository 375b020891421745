"""Read a spec file and report every fault in it at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from planner.base import reading
from planner.base.reading import SMALL, TABLE
from planner.base.units import to_si
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept, remembered, stamp
from planner.specs.checked import UNKNOWN, Before, Faults, Interval, checked_of, field_types


@dataclass(slots=True)
class FileContext:
    """What the validators of one file share: its ``[sources]`` table."""

    sources: dict[str, str] = field(default_factory=dict)


def _read(dimension: str) -> Callable[[object, object], object]:
    def read(value: object, context: object) -> object:
        if not isinstance(context, FileContext):
            return value
        if not isinstance(value, dict):
            raise ValueError(
                f'must be written {{ value = {value!r}, unit = "...", source = "..." }}'
            )
        missing = {"value", "unit", "source"} - value.keys()
        extra = value.keys() - {"value", "unit", "source"}
        if missing or extra:
            raise ValueError(
                "needs exactly the keys value, unit, source"
                + (f"; missing: {', '.join(sorted(missing))}" if missing else "")
                + (f"; unknown: {', '.join(sorted(extra))}" if extra else "")
            )
        number, unit, source = value["value"], value["unit"], value["source"]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"value {number!r} is not a number")
        if not isinstance(unit, str) or not isinstance(source, str):
            raise ValueError("unit and source must be text")
        if source != "assumed" and source not in context.sources:
            raise ValueError(f"source {source!r} is not in the [sources] table")
        return to_si(number, unit, dimension)

    return read


Bytes = Annotated[float, Before(_read("byte")), Interval(gt=0, lt=1e18)]
BytesOrZero = Annotated[float, Before(_read("byte")), Interval(ge=0, lt=1e18)]
BytesPerSecond = Annotated[float, Before(_read("byte/s")), Interval(gt=0, lt=1e18)]
BytesPerSecondOrZero = Annotated[float, Before(_read("byte/s")), Interval(ge=0, lt=1e18)]
FlopPerSecond = Annotated[float, Before(_read("flop/s")), Interval(gt=0, lt=1e20)]
Seconds = Annotated[float, Before(_read("second")), Interval(ge=0, lt=1e6)]
GpuSeconds = Annotated[float, Before(_read("second")), Interval(gt=0, lt=1e18)]
Watts = Annotated[float, Before(_read("watt")), Interval(gt=0, lt=1e6)]
Fraction = Annotated[float, Before(_read("1")), Interval(gt=0, le=2)]
FractionOrZero = Annotated[float, Before(_read("1")), Interval(ge=0, le=2)]
Share = Annotated[float, Before(_read("1")), Interval(ge=0, le=1)]
Numbers = Annotated[float, Before(_read("1")), Interval(ge=0, lt=1e15)]
Ratio = Annotated[float, Before(_read("1")), Interval(ge=0, lt=1e9)]


Spec = TypeVar("Spec")


def read_bytes(path: Path, limit: int = SMALL) -> bytes:
    """The content of a file of at most ``limit`` bytes.

    Raises
    ------
    SpecError
        It cannot be read, is larger, or is no regular file: a device or a pipe may never end.
    """
    stamp(path)
    return reading.read_bytes(path, limit)


def read_text(path: Path, limit: int = SMALL) -> str:
    """The text of a UTF-8 file of at most ``limit`` bytes; every line ends with one newline.

    Raises
    ------
    SpecError
        It cannot be read, is larger, is no regular file, or is not UTF-8.
    """
    text = reading.text_of(read_bytes(path, limit), path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file; those inside it are shared and must not be changed.

    Raises
    ------
    SpecError
        The file cannot be read or is not TOML; the message names file and line.
    """
    return dict(_parsed(path))


@kept
def _parsed(path: Path) -> dict[str, object]:
    return remembered(path, lambda place: reading.toml_of(read_text(place), str(place)))


def read_spec(kind: type[Spec], path: Path) -> Spec:
    """A spec file as a validated, frozen object.

    Raises
    ------
    SpecError
        With one line per fault: file, key, what is wrong, and a close match.
    """
    return check_spec(kind, read_toml(path), where=str(path))


def check_spec(kind: type[Spec], table: Mapping[str, object], where: str) -> Spec:
    """``table`` as a ``kind``; ``where`` names it in error messages.

    Raises
    ------
    SpecError
        With one line per fault.
    """
    fields = dict(table)
    sources = fields.pop("sources", {})
    faults = list(_source_faults(sources))
    context = FileContext(sources if isinstance(sources, dict) else {})
    try:
        spec = checked_of(kind, fields, context)
    except Faults as error:
        for place, text in error.found:
            hint = did_you_mean(place[-1], field_names(kind)) if text == UNKNOWN else ""
            faults.append(f"{'.'.join(place) or 'the file'} {text}.{hint}")
    if faults:
        raise SpecError("\n".join(f"{where}: {fault}" for fault in faults))
    return spec


def provenance(table: Mapping[str, object]) -> dict[str, str]:
    """Dotted key of every quantity in a spec table -> the source it names."""
    return {key: str(quantity["source"]) for key, quantity in _quantities(table, "")}


def digest(*paths: Path) -> str:
    """Twelve hexadecimal digits that change when one of the files changes."""
    return _short(b"".join(read_bytes(path, TABLE) for path in paths))


def text_digest(text: str) -> str:
    """As `digest`, of a text."""
    return _short(text.encode())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _quantities(
    table: Mapping[str, object], prefix: str
) -> Iterator[tuple[str, Mapping[str, object]]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            if "value" in value and "source" in value:
                yield prefix + key, value
            else:
                yield from _quantities(value, f"{prefix}{key}.")


def _source_faults(sources: object) -> Iterator[str]:
    if not isinstance(sources, dict):
        yield "sources must be a table of name = text"
        return
    for name, text in sources.items():
        if not isinstance(text, str) or not text.strip():
            yield f"sources.{name} must say where the figures come from"


def field_names(kind: object) -> set[str]:
    """Names of the fields of a spec and of the specs inside it."""
    names: set[str] = set()
    for name, hint in field_types(kind).items():
        names.add(name)
        for part in (hint, *getattr(hint, "__args__", ())):
            if part is not kind:
                names |= field_names(part)
    return names
