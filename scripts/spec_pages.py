"""Pages of the site that list what specs say: every number with its unit and its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.base.enums import (
    Precision,
)
from planner.base.formatting import format_count
from planner.base.units import GIB, GIGA, HOUR, TERA
from planner.layers.model import count_parameters
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import with_defaults
from planner.specs.model import ModelSpec
from planner.specs.software_profile import profile_table
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind
from planner.specs.validated import field_words

_PEAKS = (Precision.BF16, Precision.FP8, Precision.FP4)
_GPUS = """# GPUs

What `planner` knows of each GPU: dense peaks, bandwidths in one direction, and the price that
`hardware_specs/prices.csv` has of an hour. *assumed* has no published source. What no kernel of a
GPU was measured for is that of its defaults, which stand at the end."""
_CLUSTERS = "# Clusters\n\nNodes and the networks between them, by name for `--cluster`."
_MODELS = """# Models

Names for `--model`, with the parameters that `planner` counts and the source of the architecture.
Other models come from their `config.json`: [own specs](../how-to/specs.md#models)."""
_FRAMEWORKS = """# Frameworks

Profiles for `--framework`: what training software does, and its times that were fitted to
published runs. `planner validate` shows how well: [accuracy](../background/accuracy.md)."""
_ENGINES = """# Engines

Profiles for `--engine`: the scheduler of serving software, and its times that were fitted to
published runs. `planner validate` shows how well: [accuracy](../background/accuracy.md)."""

Row = Sequence[str]
Defaults = dict[str, tuple[dict[str, Row], dict[str, str]]]
"""Numbers by name, and texts of sources by their names, of each group of defaults."""

_DEFAULT_SOURCE = re.compile(r"default \(([^)]*)\)")


def gpus(catalogue: Catalogue) -> str:
    """Key figures of all GPUs, each with every number of its own, and the defaults once."""
    names = catalogue.names(SpecKind.GPUS)
    peaks = (f"{peak} TFLOP/s" for peak in _PEAKS)
    head = ("GPU", "memory GiB", "memory GB/s", *peaks, "link GB/s", "W", "USD/h")
    rows = (_gpu(catalogue, name) for name in names)
    defaults: Defaults = {}
    sections = [_section(catalogue, SpecKind.GPUS, name, defaults) for name in names]
    ends = (
        _page(f"## {_defaults_of(group)}", _sourced(shown.values(), sources))
        for group, (shown, sources) in sorted(defaults.items())
    )
    return _page(_GPUS, table(head, rows), *sections, *ends)


def clusters(catalogue: Catalogue) -> str:
    """Every number of all clusters."""
    names = catalogue.names(SpecKind.CLUSTERS)
    return _page(_CLUSTERS, *(_section(catalogue, SpecKind.CLUSTERS, name) for name in names))


def models(catalogue: Catalogue) -> str:
    """Sizes and sources of all models."""
    sizes = ("billion parameters", "active", "layers", "hidden", "heads", "experts")
    rows = (_model(name, catalogue.load_model(name)) for name in catalogue.names(SpecKind.MODELS))
    return _page(_MODELS, table(("model", *sizes, "source"), rows))


def frameworks(catalogue: Catalogue) -> str:
    """Every number of all framework profiles, and what the numbers mean."""
    return _profiles(catalogue, SpecKind.FRAMEWORKS, _FRAMEWORKS, FrameworkProfile)


def engines(catalogue: Catalogue) -> str:
    """Every number of all engine profiles, and what the numbers mean."""
    return _profiles(catalogue, SpecKind.ENGINES, _ENGINES, EngineProfile)


def _profiles(catalogue: Catalogue, kind: SpecKind, head: str, profile: type) -> str:
    names = catalogue.names(kind)
    sections = (_section(catalogue, kind, name) for name in names)
    meanings = ((f"`{name}`", plain(words)) for name, words in field_words(profile).items())
    return _page(head, *sections, "## Meanings", table(("name", "meaning"), meanings))


def _gpu(catalogue: Catalogue, name: str) -> Iterator[str]:
    gpu = catalogue.load_gpu(name).spec
    price = catalogue.price(gpu.name)
    yield f"[{name}](#{_anchor(name)})"
    yield f"{gpu.memory_capacity / GIB:.0f}"
    yield _scaled(gpu.memory_bandwidth, GIGA)
    yield from (_scaled(gpu.peak_flops.get(peak), TERA) for peak in _PEAKS)
    yield _scaled(gpu.scale_up.bandwidth, GIGA)
    yield _scaled(gpu.thermal_design_power, 1)
    yield "" if price is None else f"{price.value * HOUR:.2f}"


def _model(name: str, model: ModelSpec) -> Iterator[str]:
    parameters = count_parameters(model)
    yield name
    yield _scaled(parameters.total, GIGA, digits=4)
    yield _scaled(parameters.active, GIGA, digits=4) if model.num_experts else ""
    yield str(model.num_hidden_layers)
    yield format_count(model.hidden_size)
    yield str(max(attention.num_attention_heads for attention in model.attentions))
    yield str(model.num_experts or "")
    yield plain(model.source)


def _scaled(given: float | None, scale: float, digits: int = 10) -> str:
    return "" if given is None else f"{given / scale:,.{digits}g}"


def _section(
    catalogue: Catalogue, kind: SpecKind, name: str, defaults: Defaults | None = None
) -> str:
    """All that a file says; what it has of ``defaults`` goes there, and is named here."""
    values, sources, builds_on = _values(catalogue, kind, name)
    about = [str(values.pop(key)) for key in ("vendor", "year") if key in values]
    if aliases := values.pop("aliases", []):
        about.append(f"also {', '.join(map(str, aliases))}")
    notes = plain(str(values.pop("notes", "")))
    own, groups = [], dict[str, None]()
    for row in _numbers(values):
        found = _DEFAULT_SOURCE.match(sources.get(row[2], ""))
        if defaults is None or found is None:
            own += [row] if row[0] != "`name`" else []
            continue
        groups[found[1]] = None
        shown, of_group = defaults.setdefault(found[1], ({}, {}))
        if shown.setdefault(row[0], row) != row:
            raise ValueError(f"{name}: {row[0]} differs from the default of {found[1]}")
        of_group[row[2]] = sources[row[2]]
    links = [f"[{group}](#{_anchor(_defaults_of(group))})" for group in groups]
    rest = f"What is not here: the defaults of {', '.join(links)}." if links else ""
    if builds_on:
        rest = f"What is not here: as [{builds_on}](#{_anchor(builds_on)})."
    return _page(f"## {name}", plain("; ".join(about)), notes, _sourced(own, sources), rest)


def _defaults_of(group: str) -> str:
    return f"Defaults of {group}"


def _sourced(rows: Iterable[Row], sources: Mapping[str, str]) -> str:
    """A table of numbers, and below it what their sources are."""
    rows = list(rows)
    used = dict.fromkeys(row[2] for row in rows)
    origins = (f"- {plain(key)}: {plain(sources[key])}" for key in used if key in sources)
    cells = ((*row[:2], _source(row[2], sources)) for row in rows)
    return _page(table(("name", "value", "source"), cells), "\n".join(origins))


def _source(key: str, sources: Mapping[str, str]) -> str:
    """The name of a source, with what one should know before believing a number."""
    marks = ("assumed", "default", "transferred")
    told = sources.get(key, key)
    mark = next((mark for mark in marks if told.startswith(mark)), "")
    return (
        f"**{mark}**" if mark and mark == key else f"{plain(key)}{f' (**{mark}**)' if mark else ''}"
    )


def _values(
    catalogue: Catalogue, kind: SpecKind, name: str
) -> tuple[dict[str, Any], Mapping[str, str], str]:
    """What a file says itself, the sources of it, and the name of what it builds on."""
    path = catalogue.find(kind, name)
    values = dict(read_toml(path))
    of_all: Mapping[str, Any] = values
    if kind in (SpecKind.FRAMEWORKS, SpecKind.ENGINES):
        of_all, _ = profile_table(kind, path, catalogue.folder)
    elif kind is SpecKind.GPUS:
        of_all, _ = with_defaults(values, str(path), catalogue.folder)
        values = dict(of_all)
    values.pop("sources", None)
    return values, of_all.get("sources", {}), values.pop("extends", "")


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[Row]:
    """Name, value and the name of the source of every number and word."""
    for key, given in values.items():
        name = f"{prefix}{key}"
        if isinstance(given, Mapping) and "value" in given:
            unit = "" if given["unit"] == "1" else f" {given['unit']}"
            yield f"`{name}`", f"{given['value']:,.10g}{unit}", str(given["source"])
        elif isinstance(given, Mapping):
            yield from _numbers(given, f"{name}.")
        else:
            yield f"`{name}`", plain(_words(given)), ""


def _words(given: Any) -> str:
    if isinstance(given, bool):
        return "yes" if given else "no"
    return ", ".join(map(str, given)) if isinstance(given, list) else str(given)


def plain(text: str) -> str:
    """A text in Markdown that shows as it is; an address becomes a link.

    >>> plain("a_b <c>, https://d.e/f_g")
    'a\\\\_b \\\\<c\\\\>, <https://d.e/f_g>'
    """
    parts = re.split(r"(https?://[^\s|<>]*[^\s|<>.,;:)])", text)
    return "".join(
        f"<{part}>" if number % 2 else re.sub(r"([\\`*_{}\[\]<>|#~$])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def table(head: Row, rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    cells = [tuple(row) for row in rows]
    rules = ["---:" if _are_numbers(column) else "---" for column in zip(*cells, strict=True)]
    lines = [head, rules, *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _are_numbers(column: Sequence[str]) -> bool:
    return all(re.fullmatch(r"(?:[+-]?[\d.,]+(?: %)?)?", cell) for cell in column)


def _page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
