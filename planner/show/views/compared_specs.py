"""Specs side by side: only the numbers that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base import text
from planner.base.units import HOUR
from planner.errors import SpecError
from planner.estimators.parameters import count_parameters
from planner.show.page import Block, Title, grid, said
from planner.show.views.compared_things import FOLDER, Thing
from planner.show.views.comparison import LETTERS
from planner.show.views.spec_numbers import plain_fields, spec_table
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind, names

_WORDS = ("notes", "aliases", "sources", "name", "source", "description")
_IN_FOLDERS = (
    SpecKind.GPUS, SpecKind.CLUSTERS, SpecKind.FRAMEWORKS, SpecKind.ENGINES, SpecKind.MODELS,
)  # fmt: skip
_FULL = 1000
_SHORT = 24


def compared_specs(
    things: Sequence[Thing], specs: Path | None
) -> dict[str, dict[str, list[object]]]:
    """By spec the numbers that differ, with the value of each thing; None where it has none."""
    if things[0].kind != FOLDER:
        kind = SpecKind(things[0].kind)
        each = [dict(_numbers(kind, thing.text, Catalogue(specs))) for thing in things]
        return {kind.singular: _differing(each)}
    found = {}
    for kind in _IN_FOLDERS:
        for name in _named_in(kind, [thing.path for thing in things]):
            each = [_known(kind, name, Catalogue(thing.path)) for thing in things]
            if differing := _differing(each):
                found[f"{kind.singular} {name}"] = differing
    return found


def specs_blocks(
    things: Sequence[Thing],
    found: Mapping[str, Mapping[str, Sequence[object]]],
    *,
    is_full: bool = False,
) -> Iterator[Block]:
    """A table for each spec that differs."""
    for letter, thing in zip(LETTERS, things, strict=False):
        yield said(f"{letter}  {thing.text}", indent="   ")
    if not any(found.values()):
        yield said("They do not differ.")
    for title, numbers in found.items():
        most = _FULL if is_full else _SHORT
        yield Title(text=title)
        rows = [
            (name, *("-" if value is None else str(value) for value in values))
            for name, values in [*numbers.items()][:most]
        ]
        yield grid(("differs", *LETTERS[: len(things)]), rows)
        if len(numbers) > most:
            yield said(f"and {len(numbers) - most} more: --full")


def _named_in(kind: SpecKind, folders: Sequence[Path | None]) -> list[str]:
    """The specs that a folder of the user's has."""
    shipped = {name: Catalogue().find(kind, name) for name in names(kind)}
    own = {
        name
        for folder in folders
        if folder is not None
        for name in names(kind, folder)
        if Catalogue(folder).find(kind, name) != shipped.get(name)
    }
    return sorted(own)


def _known(kind: SpecKind, name: str, catalogue: Catalogue) -> dict[str, str]:
    try:
        return dict(_numbers(kind, name, catalogue))
    except SpecError:
        if name in catalogue.names(kind):
            raise
        return {}


def _numbers(kind: SpecKind, name: str, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """Every number of a spec by its dotted name, in words with its unit."""
    if kind is SpecKind.MODELS:
        model = catalogue.load_model(name)
        counted = count_parameters(model)
        yield "parameters", text.large(counted.total)
        yield "active parameters", text.large(counted.active)
        yield from ((field, text.value(value)) for field, value in plain_fields(model))
        for number, group in enumerate(model.layer_groups, start=1):
            blocks = [part for part in (group, group.attention, group.feed_forward) if part]
            for block in blocks:
                for field, value in plain_fields(block):
                    yield f"layers {number}: {field}", text.value(value)
        return
    path = catalogue.find(kind, name)
    table, _ = spec_table(kind, path, catalogue)
    price = catalogue.price(path.stem) if kind is SpecKind.GPUS else None
    if price is not None:
        yield "price, on demand", f"{price.value * HOUR:.2f} USD/h"
    yield from _flat(table, "")


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if key in _WORDS:
            continue
        if isinstance(value, Mapping) and "value" in value and "unit" in value:
            unit = "" if value["unit"] == "1" else f" {value['unit']}"
            yield prefix + key, f"{value['value']:g}{unit}"
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, ", ".join(map(str, value))
        else:
            yield prefix + key, str(value)


def _differing(each: Sequence[Mapping[str, str]]) -> dict[str, list[Any]]:
    found = dict.fromkeys(name for numbers in each for name in numbers)
    values = {name: [numbers.get(name) for numbers in each] for name in found}
    return {name: several for name, several in values.items() if len(set(several)) > 1}
