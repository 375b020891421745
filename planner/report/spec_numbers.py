"""Every number of one spec, with its unit and where it comes from; of a GPU what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base import text
from planner.base.units import HOUR, KILOWATT_HOUR, MONTH, YEAR
from planner.errors import SpecError
from planner.estimators.ownership import owned, used_figures
from planner.estimators.parameters import count_parameters
from planner.report.spec_checks import check_files
from planner.show.page import TOTAL, Block, Pairs, Table, Title, grid, said
from planner.specs.catalogue import Catalogue
from planner.specs.checked import field_words
from planner.specs.csv_table import UNDATED
from planner.specs.efficiency import DEFAULT, with_defaults
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import read_toml
from planner.specs.model import ModelSpec
from planner.specs.ownership import ASSUMED, DIMENSIONS, Figure
from planner.specs.paths import SpecKind
from planner.specs.price import CONTRACTS, Price, contracts_of
from planner.specs.profile import profile_table
from planner.specs.reliability import ReliabilitySpec, reliability_table

_PROFILES = {
    SpecKind.FRAMEWORKS: FrameworkProfile,
    SpecKind.ENGINES: EngineProfile,
    SpecKind.RELIABILITY: ReliabilitySpec,
}
_TYPICAL = ("contract", "typical", "from", "to", "offers", "newest")
_OFFER = ("contract", "USD /h", "provider", "region", "date")
_FIGURE = ("quantity", "value", "unit", "range")
_NUMBERS = ("USD /h", "typical", "from", "to", "offers", "value")
_UNITS = {
    "usd": (1.0, "USD"),
    "1": (1.0, ""),
    "1/year": (1.0, "1/year"),
    "second": (YEAR, "years"),
    "watt": (1.0, "W"),
    "usd/J": (1 / KILOWATT_HOUR, "USD/kWh"),
    "usd/watt/s": (1 / (1e3 * MONTH), "USD/kW/month"),
}


def spec_blocks(kind: SpecKind, name: str, catalogue: Catalogue) -> Iterator[Block]:
    """The figures of a spec by section; what nobody measured is marked.

    Raises
    ------
    SpecError
        It is unknown, or its file has faults.
    """
    if kind is SpecKind.MODELS:
        yield from _model_blocks(catalogue.load_model(name))
        return
    path = catalogue.find(kind, name)
    if faults := check_files([(kind, path)], catalogue):
        raise SpecError("\n".join(faults))
    table, others = spec_table(kind, path, catalogue)
    sources = table.pop("sources", {})
    yield said(f"{kind.singular} {table.get('name', path.stem)}", mark=TOTAL, indent="")
    yield said(str(path), indent="")
    for other in others:
        yield said(f"extends {other}", indent="")
    yield from _sections_blocks(table, sources)
    if kind is SpecKind.GPUS:
        yield from prices_blocks(catalogue.load_gpu(str(path)).spec, catalogue)
    yield from _sources_blocks(table, sources)
    if kind in _PROFILES:
        yield from _words_blocks(table, field_words(_PROFILES[kind]))


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


def _model_blocks(model: ModelSpec) -> Iterator[Block]:
    parameters = count_parameters(model)
    yield said(f"model {model.name}", mark=TOTAL, indent="")
    facts = {
        "parameters": f"{parameters.total:,.0f}",
        **{name: text.value(given) for name, given in plain_fields(model)},
        "source": model.source,
    }
    if model.published_parameters is not None:
        facts["published parameters"] = (
            f"{model.published_parameters:,.0f} ({model.published_parameters_source})"
        )
    yield Pairs(pairs=facts)
    for number, group in enumerate(model.layer_groups, start=1):
        yield Title(text=f"Layers, group {number} of {len(model.layer_groups)}")
        blocks = [block for block in (group.attention, group.feed_forward) if block is not None]
        fields = [field for spec in (group, *blocks) for field in plain_fields(spec)]
        yield Pairs(pairs={name: text.value(given) for name, given in fields})
    if model.training is not None:
        yield Title(text="Published training")
        yield Pairs(
            pairs={
                n: text.large(g) if isinstance(g, float) else text.value(g)
                for n, g in plain_fields(model.training)
            }
        )


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


def _sections_blocks(
    table: Mapping[str, Any], sources: Mapping[str, str], title: str = ""
) -> Iterator[Block]:
    rows = [_row(key, value, sources) for key, value in table.items() if not _is_section(value)]
    if title and rows:
        yield Title(text=title)
    if rows:
        yield grid(("", " ", "  "), rows, words=range(3))
    for key, value in table.items():
        if _is_section(value):
            yield from _sections_blocks(value, sources, f"{title}.{key}".removeprefix("."))


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


def _sources_blocks(table: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[Block]:
    used = dict.fromkeys(_used(table))
    listed = {f"[{name}]": sources[name] for name in used if name in sources}
    if listed:
        yield Title(text="Sources")
        for name, origin in listed.items():
            yield said(f"{name} {origin}", indent="")


def _words_blocks(table: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Block]:
    """What the numbers of a profile mean."""
    yield Title(text="Meanings")
    given = [name for name in words if "." in name and _is_given(table, name.split("."))]
    yield Pairs(pairs={name: words[name] for name in given})


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


def prices_blocks(gpu: GpuSpec, catalogue: Catalogue) -> Iterator[Block]:
    """The prices of a GPU: one line a contract, then one an offer, the newest in front."""
    yield Title(text="Prices, USD per GPU-hour")
    contracts = contracts_of(gpu.name, catalogue.folder)
    prices = [catalogue.price(gpu.name, contract) for contract in contracts]
    rows = [_typical(price) for price in (*prices, owned(gpu, catalogue)) if price is not None]
    offers = sorted(catalogue.offers(gpu.name), key=lambda offer: offer.provider)
    if rows:
        yield _table(_TYPICAL, rows)
    if not offers:
        yield said("No rent was found.", indent="")
    else:
        yield Title(text="Offers")
        offers.sort(key=lambda offer: offer.date, reverse=True)
        offers.sort(key=lambda offer: (CONTRACTS.index(offer.contract), offer.is_old))
        yield _table(_OFFER, [_offer(offer) for offer in offers])
    if figures := used_figures(gpu, catalogue):
        yield Title(text="To own it")
        yield _table(_FIGURE, [_figure(name, figure) for name, figure in figures.items()])
        for name, figure in figures.items():
            when = f", {figure.date}" if figure.date else ""
            source = "ASSUMED" if figure.source == ASSUMED else figure.source
            yield said(f"[{name}] {source}{when}", indent="")


def _figure(name: str, figure: Figure) -> list[str]:
    scale, unit = _UNITS[DIMENSIONS.get(name, "1")]
    ends = ""
    if figure.low < figure.high:
        ends = f"{figure.low / scale:,.6g} to {figure.high / scale:,.6g}"
    return [name, f"{figure.value / scale:,.6g}", unit, ends]


def _typical(price: Price) -> list[str]:
    ends = (price.low, price.high)
    return [
        price.contract,
        _hourly(price.value),
        *map(_hourly, ends),
        text.count(price.offers),
        price.when or UNDATED,
    ]


def _offer(offer: Price) -> list[str]:
    when = offer.when or UNDATED
    return [offer.contract, _hourly(offer.value), offer.provider, offer.region, when]


def _hourly(rate: float) -> str:
    return f"{rate * HOUR:.2f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return grid(heads, rows, words=[n for n, name in enumerate(heads) if name not in _NUMBERS])
