"""What a result rests on: what nobody gave, what nobody measured, and where numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.base import text
from planner.base.records import record
from planner.errors import PlannerError
from planner.show.page import Block, Cell, Head, Lines, Section, Table
from planner.specs.catalogue import Catalogue

# A figure that nobody measured, or that its class of GPUs has.
_WITHOUT_SOURCE = ("assumed", "default (")
_MOST_FIGURES = 6

_LOADED: Mapping[str, Callable[[Catalogue, str], Any]] = {
    "gpu": Catalogue.load_gpu,
    "framework": Catalogue.load_framework,
    "engine": Catalogue.load_engine,
    "reliability": Catalogue.load_reliability,
    "cluster": Catalogue.load_cluster,
}


@record(kw_only=True)
class Rests:
    """What a result rests on.

    ``defaults`` are answers that nobody gave, ``assumed`` figures without a source, ``specs`` the
    digests of specs by kind and name, empty where a result does not tell them.
    """

    defaults: Mapping[str, str]
    assumed: Sequence[str]
    specs: Mapping[str, str]


def rests_of(manifest: Mapping[str, Any], row: Mapping[str, Any]) -> Rests:
    """What a plan rests on by the manifest of its result."""
    return Rests(
        defaults=manifest.get("defaults") or {},
        assumed=[str(one) for one in manifest.get("assumed") or ()],
        specs=used_specs(manifest.get("specs") or {}, [row]),
    )


def assumptions(rests: Rests, catalogue: Catalogue) -> Section:
    """The section that tells it."""
    blocks: list[Block] = []
    if rests.defaults:
        blocks.append(_defaults(rests.defaults))
    if line := text.assumed_in_short(rests.assumed):
        blocks.append(Lines(lines=[f"Without a source, or a default of the GPU's class: {line}."]))
    rows = [*_sources(rests.specs, catalogue)]
    if rows:
        blocks.append(_sources_table(rows))
    return Section(title="Assumptions and sources", blocks=blocks)


def _defaults(defaults: Mapping[str, str]) -> Table:
    return Table(
        name="defaults",
        caption="Not given, so chosen",
        heads=[Head(name="question", text="question"), Head(name="chosen", text="chosen")],
        rows=[
            [Cell(text=name.replace("_", " ")), Cell(text=str(value))]
            for name, value in defaults.items()
        ],
        is_small=True,
    )


def _sources_table(rows: Sequence[tuple[str, str, str]]) -> Table:
    heads = ("spec", "figures", "source")
    return Table(
        name="sources",
        caption="Where the figures come from",
        heads=[Head(name=name, text=name) for name in heads],
        rows=[[Cell(text=word) for word in row] for row in rows],
    )


def _sources(specs: Mapping[str, str], catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """The spec, figures and source of every number of specs that are still as they were."""
    for title, digest in specs.items():
        kind, _, name = title.partition(" ")
        try:
            if kind == "model":
                yield title, "architecture", catalogue.load_model(name).source
            elif kind in _LOADED:
                loaded = _LOADED[kind](catalogue, name)
                if digest and loaded.digest != digest:
                    yield title, "-", "has changed since, or is not that of --specs"
                else:
                    yield from _by_source(title, loaded.provenance)
        except PlannerError:
            yield title, "-", "is not among the specs here: give its folder with --specs"


def _by_source(title: str, origins: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    found: dict[str, list[str]] = {}
    for figure, source in origins.items():
        if not source.startswith(_WITHOUT_SOURCE):
            found.setdefault(source, []).append(figure)
    for source, figures in found.items():
        yield title, _some(figures), source


def _some(figures: Sequence[str]) -> str:
    more = len(figures) - _MOST_FIGURES
    words = ", ".join(figures[:_MOST_FIGURES])
    return f"{words} and {more} more" if more > 0 else words


def specs_of_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The specs that rows name, of which no digest is known."""
    names = ("model", "gpu", "prefill_gpu", "framework", "engine", "reliability")
    found: dict[str, str] = {}
    for row in rows:
        for name in names:
            if row.get(name):
                found[f"{name.removeprefix('prefill_')} {row[name]}"] = ""
    return found


def used_specs(specs: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Of the specs of a manifest those that the rows are of, and those that are no choice."""
    used = specs_of_rows(rows)
    choices = ("gpu", "framework", "engine", "model")
    return {
        title: digest
        for title, digest in specs.items()
        if title in used or title.partition(" ")[0] not in choices
    }
