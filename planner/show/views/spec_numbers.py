"""Every number of one spec, its unit and where it comes from; faults of all; what a GPU costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base import text
from planner.base.units import HOUR, KILOWATT_HOUR, MONTH, YEAR
from planner.errors import PlannerError, SpecError
from planner.estimators.ownership import owned, used_figures
from planner.estimators.parameters import count_parameters
from planner.show.page import TOTAL, Block, Pairs, Table, Title, grid, said
from planner.show.views.spec_lists import KINDS, spec_kind
from planner.specs.api_price import read_api_prices
from planner.specs.catalogue import Catalogue
from planner.specs.checked import field_words
from planner.specs.csv_table import UNDATED
from planner.specs.efficiency import DEFAULT, with_defaults
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import read_spec, read_toml
from planner.specs.model import ModelSpec
from planner.specs.ownership import ASSUMED, DIMENSIONS, OWNERSHIP, Figure, unknown_owned
from planner.specs.paths import API_PRICES, SpecKind, api_price_files, beside_specs
from planner.specs.power import POWER, read_power
from planner.specs.price import (
    CONTRACTS,
    CURRENCIES,
    Price,
    contracts_of,
    read_currencies,
    unknown_gpus,
)
from planner.specs.profile import profile_table
from planner.specs.regions import REGIONS, read_regions
from planner.specs.reliability import ReliabilitySpec, reliability_table
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.workloads.serving_space import serving_mesh
from planner.workloads.training import mesh_of

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
_CHOICES = ("powers_of_two_up_to", "divisors_of", "multiples_of")
_FOLDERS = {
    "model_specs": SpecKind.MODELS,
    "framework_profiles": SpecKind.FRAMEWORKS,
    "engine_profiles": SpecKind.ENGINES,
    "search_spaces": SpecKind.SPACES,
}
_READERS: Mapping[str, Callable[[Path], object]] = {
    API_PRICES: read_api_prices,
    CURRENCIES: read_currencies,
    POWER: read_power,
    REGIONS: read_regions,
}
_EXAMPLE_MODEL, _EXAMPLE_GPUS = "llama-7b", 8


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
    listed = [one for one in dict.fromkeys(_used(table)) if one in sources]
    if listed:
        yield Title(text="Sources")
        yield from (said(f"[{one}] {sources[one]}", indent="") for one in listed)
    if kind in _PROFILES:
        yield Title(text="Meanings")
        words = field_words(_PROFILES[kind])
        given = [name for name in words if "." in name and _is_given(table, name.split("."))]
        yield Pairs(pairs={name: words[name] for name in given})


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
    rows = []
    for key, value in table.items():
        if _is_quantity(value):
            unit = "" if value["unit"] == "1" else f" {value['unit']}"
            rows.append((key, f"{value['value']:g}{unit}", _mark(str(value["source"]), sources)))
        elif not _is_section(value):
            rows.append((key, _words(value), ""))
    if title and rows:
        yield Title(text=title)
    if rows:
        yield grid(("", " ", "  "), rows, words=range(3))
    for key, value in table.items():
        if _is_section(value):
            yield from _sections_blocks(value, sources, f"{title}.{key}".removeprefix("."))


def _is_section(value: Any) -> bool:
    is_choice = isinstance(value, Mapping) and not value.keys().isdisjoint(_CHOICES)
    return isinstance(value, Mapping) and not _is_quantity(value) and not is_choice


def _is_quantity(value: object) -> bool:
    return isinstance(value, Mapping) and "value" in value and "source" in value


def _words(value: object) -> str:
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


def _is_given(table: object, keys: list[str]) -> bool:
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
        rows = [
            [one.contract, _hourly(one.value), one.provider, one.region, one.when or UNDATED]
            for one in offers
        ]
        yield _table(_OFFER, rows)
    if figures := used_figures(gpu, catalogue):
        yield Title(text="To own it")
        yield _table(_FIGURE, [_figure(name, figure) for name, figure in figures.items()])
        for name, figure in figures.items():
            when = f", {figure.date}" if figure.date else ""
            source = "ASSUMED" if figure.source == ASSUMED else figure.source
            yield said(f"[{name}] {source}{when}", indent="")


def _figure(name: str, figure: Figure) -> list[str]:
    scale, unit = _UNITS[DIMENSIONS.get(name, "1")]
    value, low, high = (f"{one / scale:,.6g}" for one in (figure.value, figure.low, figure.high))
    return [name, value, unit, f"{low} to {high}" if figure.low < figure.high else ""]


def _typical(price: Price) -> list[str]:
    rates = map(_hourly, (price.value, price.low, price.high))
    return [price.contract, *rates, text.count(price.offers), price.when or UNDATED]


def _hourly(rate: float) -> str:
    return f"{rate * HOUR:.2f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return grid(heads, rows, words=[n for n, name in enumerate(heads) if name not in _NUMBERS])


def files_to_check(
    targets: Sequence[str], catalogue: Catalogue
) -> list[tuple[SpecKind | None, Path]]:
    """The files that words of the command line mean, each with its kind; None: a table beside them.

    Raises
    ------
    SpecError
        A word is neither a kind nor a file, or nothing says of which kind a file is.
    """
    kind = None
    paths = list(targets)
    if paths and not os.path.isfile(paths[0]) and "/" not in paths[0] and "." not in paths[0]:
        kind = spec_kind(paths.pop(0))
    if paths:
        return [_given(kind, Path(path)) for path in paths]
    return [*_of_kinds((kind,) if kind else KINDS, catalogue)]


def check_files(files: Sequence[tuple[SpecKind | None, Path]], catalogue: Catalogue) -> list[str]:
    """One line per fault, in the order of the files."""
    faults: list[str] = []
    for kind, path in files:
        try:
            _check(kind, path, catalogue)
        except PlannerError as error:
            faults += [_located(path, line) for line in str(error).splitlines()]
    return faults


def _of_kinds(
    kinds: Sequence[SpecKind], catalogue: Catalogue
) -> Iterator[tuple[SpecKind | None, Path]]:
    for kind in kinds:
        for folder in catalogue.folders(kind):
            yield from ((kind, path) for path in sorted(folder.glob("*.toml")))
        if kind is SpecKind.GPUS:
            yield from ((None, path) for path in catalogue.price_files())
            for name in (CURRENCIES, OWNERSHIP, POWER, REGIONS):
                yield from ((None, path) for path in beside_specs(name, catalogue.folder))
        if kind is SpecKind.MODELS:
            yield from ((None, path) for path in api_price_files(catalogue.folder))


def _given(kind: SpecKind | None, path: Path) -> tuple[SpecKind | None, Path]:
    if path.suffix == ".csv" or (kind is None and path.name == POWER):
        return None, path
    if kind is None and path.suffix == ".json":
        kind = SpecKind.MODELS
    if kind is None:
        folder = (Path(os.path.realpath(path)) if os.path.exists(path) else path).parent.name
        kind = _FOLDERS.get(folder) or next((k for k in KINDS if k.value == folder), None)
    if kind is None:
        raise SpecError(
            f"{path}: say of which kind it is: `planner specs validate KIND {path}` "
            f"with {', '.join(KINDS)}."
        )
    return kind, path


def _check(kind: SpecKind | None, path: Path, catalogue: Catalogue) -> None:
    name = str(path.absolute())
    if kind is None:
        _check_table(path, catalogue)
    elif kind is SpecKind.GPUS:
        catalogue.load_gpu(name)
    elif kind is SpecKind.CLUSTERS:
        catalogue.load_gpu(catalogue.load_cluster(name).spec.gpu)
    elif kind is SpecKind.MODELS:
        catalogue.load_model(name)
    elif kind is SpecKind.FRAMEWORKS:
        catalogue.load_framework(name)
    elif kind is SpecKind.ENGINES:
        catalogue.load_engine(name)
    elif kind is SpecKind.RELIABILITY:
        catalogue.load_reliability(name)
    else:
        _check_space(path, catalogue)


def _check_table(path: Path, catalogue: Catalogue) -> None:
    """A table beside the folders of specs, by its name; any other is a price list."""
    if path.name in _READERS:
        _READERS[path.name](path)
    elif path.name == OWNERSHIP:
        if faults := unknown_owned(path, catalogue.folder):
            raise SpecError("\n".join(faults))
    elif faults := unknown_gpus(path, catalogue.folder):
        raise SpecError("\n".join(faults))


def _check_space(path: Path, catalogue: Catalogue) -> None:
    """Expand the space for some model: its parameters and values must be known ones."""
    space = read_spec(SearchSpace, path)
    if space.engine:
        _check_serving_space(space, catalogue)
        return
    profile = catalogue.load_framework(space.framework).spec
    workload = TrainingWorkload(sequence_length=2048, global_batch_size=1024, total_tokens=1e9)
    mesh_of(
        space,
        {},
        num_gpus=[_EXAMPLE_GPUS],
        model=catalogue.load_model(_EXAMPLE_MODEL),
        framework=profile,
        workload=workload,
    )


def _check_serving_space(space: SearchSpace, catalogue: Catalogue) -> None:
    engine = catalogue.load_engine(space.engine).spec
    serving_mesh(
        space, {}, counts=[_EXAMPLE_GPUS], model=catalogue.load_model(_EXAMPLE_MODEL), engine=engine
    )


def _located(path: Path, fault: str) -> str:
    return (
        fault.replace(str(path.absolute()), str(path)) if path.name in fault else f"{path}: {fault}"
    )
