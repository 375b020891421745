"""Every number of one spec, with its unit and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from planner.base import text
from planner.errors import SpecError
from planner.estimators.parameters import count_parameters
from planner.report.console import make_table, print_pairs, print_title
from planner.report.spec_checks import check_files
from planner.report.spec_prices import print_prices
from planner.specs.catalogue import Catalogue
from planner.specs.checked import field_words
from planner.specs.efficiency import DEFAULT, with_defaults
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.load import read_toml
from planner.specs.model import ModelSpec
from planner.specs.paths import SpecKind
from planner.specs.profile import profile_table
from planner.specs.reliability import ReliabilitySpec, reliability_table

_PROFILES = {
    SpecKind.FRAMEWORKS: FrameworkProfile,
    SpecKind.ENGINES: EngineProfile,
    SpecKind.RELIABILITY: ReliabilitySpec,
}


def print_spec(console: Console, kind: SpecKind, name: str, catalogue: Catalogue) -> None:
    """The figures of a spec by section; what nobody measured is marked.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    if kind is SpecKind.MODELS:
        _print_model(console, catalogue.load_model(name))
        return
    path = catalogue.find(kind, name)
    if faults := check_files([(kind, path)], catalogue):
        raise SpecError("\n".join(faults))
    table, others = spec_table(kind, path, catalogue)
    sources = table.pop("sources", {})
    console.print(f"{kind.singular} {table.get('name', path.stem)}", style="bold")
    console.print(str(path), soft_wrap=True)
    for other in others:
        console.print(f"extends {other}", soft_wrap=True)
    _print_sections(console, table, sources)
    if kind is SpecKind.GPUS:
        print_prices(console, catalogue.load_gpu(str(path)).spec, catalogue)
    _print_sources(console, table, sources)
    if kind in _PROFILES:
        _print_words(console, table, field_words(_PROFILES[kind]))


def spec_table(
    kind: SpecKind, path: Path, catalogue: Catalogue
) -> tuple[dict[str, Any], tuple[Path, ...]]:
    """The tables of a spec, and the files of the profiles it builds on."""
    if kind is SpecKind.RELIABILITY:
        return reliability_table(path, catalogue.folder)
    if kind in _PROFILES:
        return profile_table(kind, path, catalogue.folder)
    table = read_toml(path)
    if kind is SpecKind.GPUS:
        table, _ = with_defaults(table, str(path), catalogue.folder)
    return table, ()


def _print_model(console: Console, model: ModelSpec) -> None:
    parameters = count_parameters(model)
    console.print(f"model {model.name}", style="bold")
    facts = {
        "parameters": f"{parameters.total:,.0f}",
        **{name: text.value(given) for name, given in plain_fields(model)},
        "source": model.source,
    }
    if model.published_parameters is not None:
        facts["published parameters"] = (
            f"{model.published_parameters:,.0f} ({model.published_parameters_source})"
        )
    print_pairs(console, facts)
    for number, group in enumerate(model.layer_groups, start=1):
        print_title(console, f"Layers, group {number} of {len(model.layer_groups)}")
        blocks = [block for block in (group.attention, group.feed_forward) if block is not None]
        fields = [field for spec in (group, *blocks) for field in plain_fields(spec)]
        print_pairs(console, {name: text.value(given) for name, given in fields})
    if model.training is not None:
        print_title(console, "Published training")
        print_pairs(console, {n: _training(n, g) for n, g in plain_fields(model.training)})


def _training(name: str, given: Any) -> str:
    return text.large(given) if isinstance(given, float) else text.value(given)


def plain_fields(spec: Any) -> Iterator[tuple[str, Any]]:
    """The words and numbers of a model or of a part of one, those that say something."""
    for name in type(spec).__dataclass_fields__:
        given = getattr(spec, name)
        if name in ("name", "source") and hasattr(spec, "hidden_size"):
            continue
        if name.startswith("published_") or (given == 0 and not isinstance(given, bool)):
            continue
        if isinstance(given, bool | int | float | str) and given != "":
            yield name, given


def _print_sections(
    console: Console, table: Mapping[str, Any], sources: Mapping[str, str], title: str = ""
) -> None:
    rows = [_row(key, value, sources) for key, value in table.items() if not _is_section(value)]
    if title and rows:
        print_title(console, title)
    if rows:
        shown = make_table(console, header=False)
        shown.add_column(no_wrap=True)
        shown.add_column(justify="left", overflow="fold")
        shown.add_column(overflow="fold")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for key, value in table.items():
        if _is_section(value):
            _print_sections(console, value, sources, f"{title}.{key}".removeprefix("."))


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) and not _is_quantity(value) and not _is_choice(value)


def _is_quantity(value: Any) -> bool:
    return isinstance(value, Mapping) and "value" in value and "source" in value


def _is_choice(value: Any) -> bool:
    keys = ("powers_of_two_up_to", "divisors_of", "multiples_of")
    return isinstance(value, Mapping) and any(key in value for key in keys)


def _row(key: str, value: Any, sources: Mapping[str, str]) -> tuple[str, str, str]:
    if _is_quantity(value):
        unit = "" if value["unit"] == "1" else f" {value['unit']}"
        return key, f"{value['value']:g}{unit}", _mark(str(value["source"]), sources)
    return key, _words(value), ""


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {given}" for key, given in value.items())
    if isinstance(value, list):
        return ", ".join(text.value(item) for item in value)
    return (
        str(value) if isinstance(value, int) and not isinstance(value, bool) else text.value(value)
    )


def _mark(source: str, sources: Mapping[str, str]) -> str:
    origin = sources.get(source, source)
    if origin == "assumed":
        return "ASSUMED"
    if origin.startswith(DEFAULT):
        return f"CLASS DEFAULT [{source}]"
    return f"[{source}]"


def _print_sources(console: Console, table: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    used = dict.fromkeys(_used(table))
    listed = {f"[{name}]": sources[name] for name in used if name in sources}
    if listed:
        print_title(console, "Sources")
        for name, origin in listed.items():
            console.print(f"{name} {origin}")


def _print_words(console: Console, table: Mapping[str, Any], words: Mapping[str, str]) -> None:
    """What the numbers of a profile mean."""
    print_title(console, "Meanings")
    given = [name for name in words if "." in name and _is_given(table, name.split("."))]
    print_pairs(console, {name: words[name] for name in given})


def _is_given(table: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(table, Mapping) or key not in table:
            return False
        table = table[key]
    return not _is_section(table)


def _used(table: Mapping[str, Any]) -> Iterator[str]:
    for value in table.values():
        if _is_quantity(value):
            yield value["source"]
        elif isinstance(value, Mapping):
            yield from _used(value)
