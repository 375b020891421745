"""The numbers of a spec with units and sources; errors of spec files; prices of a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.base.enums import Precision
from planner.base.formatting import format_count, format_duration, format_large, format_parameter
from planner.base.read_files import JsonObject
from planner.base.units import GIB, GIGA, HOUR, KILOWATT_HOUR, MONTH, TERA, YEAR
from planner.errors import PlannerError, SpecError, did_you_mean
from planner.estimators.ownership_cost import owned_gpu_price, used_figures
from planner.layers.model import count_parameters
from planner.question.terms import terms_about
from planner.show.output_blocks import (
    TOTAL,
    Block,
    Column,
    KeyValues,
    Table,
    Title,
    fit_table,
    make_lines,
    text_table,
)
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import DEFAULT, GpuSpec, with_defaults
from planner.specs.model import ModelSpec
from planner.specs.operating_terms import ReliabilitySpec, read_api_prices, reliability_table
from planner.specs.power import POWER, REGIONS, read_power, read_regions
from planner.specs.price import (
    ASSUMED,
    CONTRACTS,
    CURRENCIES,
    DIMENSIONS,
    OWNERSHIP,
    contracts_of,
    read_currencies,
    unknown_gpus,
)
from planner.specs.search_space import SearchSpace
from planner.specs.software_profile import profile_table
from planner.specs.spec_files import UNDATED, SourcedQuantity, read_spec, read_toml
from planner.specs.spec_paths import API_PRICES, SpecKind, api_price_files, extra_files
from planner.specs.training_workload import TrainingWorkload
from planner.specs.validated import field_words
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.space import serving_mesh
from planner.workloads.training.space import mesh_of

Row = Callable[[Catalogue, str], Iterator[str]]

KINDS = (
    SpecKind.GPUS,
    SpecKind.CLUSTERS,
    SpecKind.MODELS,
    SpecKind.SPACES,
    SpecKind.FRAMEWORKS,
    SpecKind.ENGINES,
    SpecKind.RELIABILITY,
)
_UNKNOWN = "-"
# Marks the head of a text column, which may be folded.
_WORDS = "+"
# Columns that a narrow terminal shows first.
_FIRST = ("GiB", "USD /h", "memory GB/s", "bf16 TFLOP/s", "parameters billion", "GPU", "max GPUs")


def spec_kind(name: str) -> SpecKind:
    """Return the kind of spec with this name, such as ``gpus`` or ``gpu``.

    Raises SpecError if there is no such kind.
    """
    for kind in KINDS:
        if name.lower() in (kind.value, kind.value.removesuffix("s")):
            return kind
    hint = did_you_mean(name, KINDS)
    raise SpecError(f"Unknown kind of spec {name!r}.{hint} Known: {', '.join(KINDS)}.")


def kinds_blocks(catalogue: Catalogue) -> Iterator[Block]:
    """The kinds of specs, and how many there are."""
    yield KeyValues(pairs={str(kind): f"{len(catalogue.names(kind))} specs" for kind in KINDS})
    yield make_lines("`planner specs list KIND` shows the names of a kind.", indent="")


def list_blocks(kind: SpecKind, catalogue: Catalogue) -> Iterator[Block]:
    """Yield a table of all specs of a kind; an invalid file has the word ``faulty``."""
    headers_text, row = _TABLES[kind]
    headers = headers_text.split("; ")
    rows = [_cells(row, catalogue, name, len(headers)) for name in catalogue.names(kind)]
    if not any(header.startswith(_WORDS) for header in headers):
        columns = [
            Column(header.replace("|", " "), [cells[number] for cells in rows], numeric=number > 0)
            for number, header in enumerate(headers)
        ]
        late = [column.name for column in columns]
        first = [name for name in _FIRST if name in late]
        order = [late[0], *first, *(name for name in late[1:] if name not in first)]
        hint = f"planner specs show {kind} NAME shows them"
        yield fit_table(columns, order.index, elsewhere=hint)
        return
    text_columns = [
        index for index, head in enumerate(headers) if index == 0 or head.startswith(_WORDS)
    ]
    heads = (head.lstrip(_WORDS).replace("|", "\n") for head in headers)
    yield text_table(heads, rows, text_columns=text_columns)


def _cells(row: Row, catalogue: Catalogue, name: str, width: int) -> list[str]:
    try:
        return list(row(catalogue, name))
    except PlannerError:
        return [name, *([_UNKNOWN] * (width - 2)), "faulty"]


def _gpu(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of a GPU: GiB, GB/s, TFLOP/s in bf16 and fp8, links, W, USD per hour."""
    gpu = catalogue.load_gpu(name).spec
    price = catalogue.price(gpu.name)
    yield name
    yield f"{gpu.memory_capacity / GIB:.0f}"
    yield _number(gpu.memory_bandwidth, GIGA)
    yield _number(gpu.peak_flops.get(Precision.BF16), TERA)
    yield _number(gpu.peak_flops.get(Precision.FP8), TERA)
    yield str(gpu.scale_up.kind)
    yield _number(gpu.scale_up.bandwidth, GIGA)
    yield _number(gpu.thermal_design_power, 1)
    yield _UNKNOWN if price is None else f"{price.value * HOUR:.2f}"


def _cluster(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of a cluster: GPU, GPUs per node and domain, GB/s, and most GPUs."""
    cluster = catalogue.load_cluster(name).spec
    yield name
    yield cluster.gpu
    yield str(cluster.gpus_per_node)
    yield str(cluster.scale_up.domain_size)
    yield _number(cluster.scale_up.bandwidth, GIGA)
    yield _number(cluster.scale_out.bandwidth, GIGA)
    yield _UNKNOWN if cluster.max_gpus is None else format_count(cluster.max_gpus)


def _model(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of a model: billions of parameters, layers, widths, experts."""
    model = catalogue.load_model(name)
    parameters = count_parameters(model)
    yield name
    yield f"{parameters.total / GIGA:,.2f}"
    yield str(model.num_hidden_layers)
    yield format_count(model.hidden_size)
    yield str(max(attention.num_attention_heads for attention in model.attentions))
    yield format_count(model.vocab_size)
    yield str(model.num_experts) if model.num_experts else _UNKNOWN


def _space(catalogue: Catalogue, name: str) -> Iterator[str]:
    space = catalogue.load_space(name).spec
    yield name
    yield space.framework or space.engine
    yield space.description


def _framework(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of a framework: parallelism, ZeRO stages, bytes of training states."""
    profile = catalogue.load_framework(name).spec
    kinds = ("tensor", "pipeline", "context", "expert")
    yield name
    yield ", ".join(kind for kind in kinds if getattr(profile, f"{kind}_parallel")) or "data only"
    yield ", ".join(str(stage) for stage in profile.zero_stages)
    yield f"{profile.states.weight:g} + {profile.states.gradient:g} + {profile.states.optimizer:g}"


def _engine(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of an engine: batching, most sequences and tokens, quantizations."""
    engine = catalogue.load_engine(name).spec
    yield name
    scheduler = engine.scheduler
    yield "continuous" if scheduler.continuous else "slots" if scheduler.slots else "static"
    yield format_count(engine.scheduler.max_num_seqs)
    yield format_count(engine.scheduler.max_num_batched_tokens)
    yield ", ".join(engine.quantizations)


def _reliability(catalogue: Catalogue, name: str) -> Iterator[str]:
    """Yield the cells of a reliability spec: GPU-hours per failure, recovery, and spares."""
    spec = catalogue.load_reliability(name).spec
    interval = spec.gpu_hours_per_interruption
    yield name
    yield _UNKNOWN if interval is None else format_count(interval.typical / HOUR)
    yield format_duration(spec.recovery.total) if spec.recovery.total else _UNKNOWN
    yield _number(spec.checkpoints.bandwidth_per_node, GIGA)
    yield f"{spec.spare_share:.0%}"


def _number(value: float | None, scale: float) -> str:
    return _UNKNOWN if value is None else f"{value / scale:,.4g}".replace("e+03", "000")


_TABLES: Mapping[SpecKind, tuple[str, Row]] = {
    SpecKind.GPUS: (
        "GPU; GiB; memory|GB/s; bf16|TFLOP/s; fp8|TFLOP/s; link; link|GB/s; power|W; USD|/h", _gpu
    ),
    SpecKind.CLUSTERS: (
        "cluster; GPU; GPUs|per node; domain|GPUs; scale-up|GB/s; scale-out|GB/s; max|GPUs",
        _cluster,
    ),
    SpecKind.MODELS: (
        "model; parameters|billion; layers; hidden|size; heads; vocabulary; experts", _model
    ),
    SpecKind.SPACES: ("space; +framework or engine; +description", _space),
    SpecKind.FRAMEWORKS: (
        "framework; +parallel besides data; +ZeRO; "
        "+bytes per parameter: weight, gradient, optimizer",
        _framework,
    ),
    SpecKind.ENGINES: (
        "engine; +batching; sequences|at most; tokens of|a step; +quantizations", _engine
    ),
    SpecKind.RELIABILITY: (
        "reliability; GPU-hours per|interruption; recovery; checkpoints|GB/s per node; spare|nodes",
        _reliability,
    ),
}  # fmt: skip
"""Heads of columns and the function of a row by kind; | is a line break."""


_PROFILES = {
    SpecKind.FRAMEWORKS: FrameworkProfile,
    SpecKind.ENGINES: EngineProfile,
    SpecKind.RELIABILITY: ReliabilitySpec,
}
_TYPICAL = ("contract", "typical", "from", "to", "offers", "newest")
_OFFER = ("contract", "USD /h", *terms_about("price_offer"), "date")
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
    """Yield the numbers of a spec by section with their sources; assumed ones are marked.

    Raises SpecError if the spec is unknown, or its file has errors.
    """
    if kind is SpecKind.MODELS:
        yield from _model_blocks(catalogue.load_model(name))
        return
    path = catalogue.find(kind, name)
    if errors := check_files([(kind, path)], catalogue):
        raise SpecError("\n".join(errors))
    table, others = spec_table(kind, path, catalogue)
    sources = table.pop("sources", {})
    yield make_lines(f"{kind.singular} {table.get('name', path.stem)}", mark=TOTAL, indent="")
    yield make_lines(str(path), indent="")
    for other in others:
        yield make_lines(f"extends {other}", indent="")
    yield from _sections_blocks(table, sources)
    if kind is SpecKind.GPUS:
        yield from prices_blocks(catalogue.load_gpu(str(path)).spec, catalogue)
    cited = [key for key in dict.fromkeys(_used_sources(table)) if key in sources]
    if cited:
        yield Title(text="Sources")
        yield from (make_lines(f"[{key}] {sources[key]}", indent="") for key in cited)
    if kind in _PROFILES:
        yield Title(text="Meanings")
        meanings = field_words(_PROFILES[kind])
        specified = [name for name in meanings if "." in name and _has_key(table, name.split("."))]
        yield KeyValues(pairs={name: meanings[name] for name in specified})


def spec_table(
    kind: SpecKind, path: Path, catalogue: Catalogue
) -> tuple[JsonObject, tuple[Path, ...]]:
    """Return the nested table of a spec, and the files of the profiles that it extends."""
    if kind is SpecKind.RELIABILITY:
        return reliability_table(path, catalogue.folder)
    if kind in _PROFILES:
        return profile_table(kind, path, catalogue.folder)
    table = read_toml(path)
    if kind is SpecKind.GPUS:
        table, _ = with_defaults(table, str(path), catalogue.folder)
    return table, ()


def _model_blocks(model: ModelSpec) -> Iterator[Block]:
    """Yield the facts of a model, then the fields of each group of layers."""
    parameters = count_parameters(model)
    yield make_lines(f"model {model.name}", mark=TOTAL, indent="")
    facts = {
        "parameters": f"{parameters.total:,.0f}",
        **{name: format_parameter(value) for name, value in scalar_fields(model)},
        "source": model.source,
    }
    if model.published_parameters is not None:
        facts["published parameters"] = (
            f"{model.published_parameters:,.0f} ({model.published_parameters_source})"
        )
    yield KeyValues(pairs=facts)
    for number, group in enumerate(model.layer_groups, start=1):
        yield Title(text=f"Layers, group {number} of {len(model.layer_groups)}")
        blocks = [block for block in (*group.mixers, group.feed_forward) if block is not None]
        fields = [field for spec in (group, *blocks) for field in scalar_fields(spec)]
        yield KeyValues(pairs={name: format_parameter(value) for name, value in fields})
    if model.training is not None:
        yield Title(text="Published training")
        yield KeyValues(
            pairs={
                n: format_large(g) if isinstance(g, float) else format_parameter(g)
                for n, g in scalar_fields(model.training)
            }
        )


def scalar_fields(spec: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each nonzero scalar field of a model or of a part."""
    for name in type(spec).__dataclass_fields__:
        value = getattr(spec, name)
        if name in ("name", "source") and hasattr(spec, "hidden_size"):
            continue
        if name.startswith("published_") or (value == 0 and not isinstance(value, bool)):
            continue
        if isinstance(value, bool | int | float | str) and value != "":
            yield name, value


def _sections_blocks(
    table: JsonObject, sources: Mapping[str, str], title: str = ""
) -> Iterator[Block]:
    """Yield a table for each section of a spec, with the source of every number."""
    rows = []
    for key, value in table.items():
        if _is_quantity(value):
            unit = "" if value["unit"] == "1" else f" {value['unit']}"
            rows.append((key, f"{value['value']:g}{unit}", _mark(str(value["source"]), sources)))
        elif not _is_section(value):
            rows.append((key, _format_entry(value), ""))
    if title and rows:
        yield Title(text=title)
    if rows:
        yield text_table(("", " ", "  "), rows, text_columns=range(3))
    for key, value in table.items():
        if _is_section(value):
            yield from _sections_blocks(value, sources, f"{title}.{key}".removeprefix("."))


def _is_section(value: object) -> bool:
    is_choice = isinstance(value, Mapping) and not value.keys().isdisjoint(_CHOICES)
    return isinstance(value, Mapping) and not _is_quantity(value) and not is_choice


def _is_quantity(value: object) -> bool:
    return isinstance(value, Mapping) and "value" in value and "source" in value


def _format_entry(value: object) -> str:
    """Return the value of a spec's key as text; lists and tables are joined by commas."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {part}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(format_parameter(item) for item in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return format_parameter(value)


def _mark(source: str, sources: Mapping[str, str]) -> str:
    """Return the mark of a source: its key in brackets, ``ASSUMED``, or a class default."""
    origin = sources.get(source, source)
    if origin == "assumed":
        return "ASSUMED"
    if origin.startswith(DEFAULT):
        return f"CLASS DEFAULT [{source}]"
    return f"[{source}]"


def _has_key(table: object, keys: list[str]) -> bool:
    """Whether a nested table has a value at this path of keys; False for a section."""
    for key in keys:
        if not isinstance(table, Mapping) or key not in table:
            return False
        table = table[key]
    return not _is_section(table)


def _used_sources(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the source of every number in a nested table of a spec."""
    for value in table.values():
        if _is_quantity(value):
            yield value["source"]
        elif isinstance(value, Mapping):
            yield from _used_sources(value)


def prices_blocks(gpu: GpuSpec, catalogue: Catalogue) -> Iterator[Block]:
    """Yield the prices of a GPU: a row per contract, then a row per offer, newest first."""
    yield Title(text="Prices, USD per GPU-hour")
    contracts = contracts_of(gpu.name, catalogue.folder)
    prices = [catalogue.price(gpu.name, contract) for contract in contracts]
    rows = [
        [
            price.contract, *map(_hourly, (price.value, price.low, price.high)),
            format_count(price.offers), price.when or UNDATED,
        ]
        for price in (*prices, owned_gpu_price(gpu, catalogue))
        if price is not None
    ]  # fmt: skip
    offers = sorted(catalogue.offers(gpu.name), key=lambda offer: offer.provider)
    if rows:
        yield _table(_TYPICAL, rows)
    if not offers:
        yield make_lines("No rental offers are known.", indent="")
    else:
        yield Title(text="Offers")
        offers.sort(key=lambda offer: offer.date, reverse=True)
        offers.sort(key=lambda offer: (CONTRACTS.index(offer.contract), offer.is_old))
        rows = [
            [
                offer.contract,
                _hourly(offer.value),
                offer.provider,
                offer.region,
                offer.when or UNDATED,
            ]
            for offer in offers
        ]
        yield _table(_OFFER, rows)
    if figures := used_figures(gpu, catalogue):
        yield Title(text="Ownership")
        yield _table(_FIGURE, [_figure_cells(name, figure) for name, figure in figures.items()])
        for name, figure in figures.items():
            when = f", {figure.date}" if figure.date else ""
            source = "ASSUMED" if figure.source == ASSUMED else figure.source
            yield make_lines(f"[{name}] {source}{when}", indent="")


def _figure_cells(name: str, figure: SourcedQuantity) -> list[str]:
    """Return name, value, unit and range of a figure; the range is "" if it has none."""
    scale, unit = _UNITS[DIMENSIONS.get(name, "1")]
    value, low, high = (
        f"{number / scale:,.6g}" for number in (figure.value, figure.low, figure.high)
    )
    return [name, value, unit, f"{low} to {high}" if figure.low < figure.high else ""]


def _hourly(rate: float) -> str:
    return f"{rate * HOUR:.2f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return text_table(
        heads, rows, text_columns=[n for n, name in enumerate(heads) if name not in _NUMBERS]
    )


def files_of_arguments(
    targets: Sequence[str], catalogue: Catalogue
) -> list[tuple[SpecKind | None, Path]]:
    """Return the files that command-line arguments name with their kinds; None for tables.

    Raises SpecError if an argument is neither a kind nor a file, or the kind of a file is unknown.
    """
    kind = None
    paths = list(targets)
    if paths and not os.path.isfile(paths[0]) and "/" not in paths[0] and "." not in paths[0]:
        kind = spec_kind(paths.pop(0))
    if paths:
        return [_kind_and_path(kind, Path(path)) for path in paths]
    return [*_files_of_kinds((kind,) if kind else KINDS, catalogue)]


def check_files(files: Sequence[tuple[SpecKind | None, Path]], catalogue: Catalogue) -> list[str]:
    """Return one line per error in spec files, in the order of the files."""
    errors: list[str] = []
    for kind, path in files:
        try:
            _check(kind, path, catalogue)
        except PlannerError as error:
            errors += [
                line.replace(str(path.absolute()), str(path))
                if path.name in line
                else f"{path}: {line}"
                for line in str(error).splitlines()
            ]
    return errors


def _files_of_kinds(
    kinds: Sequence[SpecKind], catalogue: Catalogue
) -> Iterator[tuple[SpecKind | None, Path]]:
    """Yield every file of these kinds of specs; the kind is None for tables of prices etc."""
    for kind in kinds:
        for folder in catalogue.folders(kind):
            yield from ((kind, path) for path in sorted(folder.glob("*.toml")))
        if kind is SpecKind.GPUS:
            yield from ((None, path) for path in catalogue.price_files())
            for name in (CURRENCIES, OWNERSHIP, POWER, REGIONS):
                yield from ((None, path) for path in extra_files(name, catalogue.folder))
        if kind is SpecKind.MODELS:
            yield from ((None, path) for path in api_price_files(catalogue.folder))


def _kind_and_path(kind: SpecKind | None, path: Path) -> tuple[SpecKind | None, Path]:
    """Return the kind of a spec file and its path; the kind of a table is None.

    Raises SpecError if neither the name nor the folder shows the kind.
    """
    if path.suffix == ".csv" or (kind is None and path.name == POWER):
        return None, path
    if kind is None and path.suffix == ".json":
        kind = SpecKind.MODELS
    if kind is None:
        folder = (Path(os.path.realpath(path)) if os.path.exists(path) else path).parent.name
        kind = _FOLDERS.get(folder) or next((k for k in KINDS if k.value == folder), None)
    if kind is None:
        raise SpecError(
            f"{path}: the kind is unknown: name it with `planner specs validate KIND {path}`, "
            f"where KIND is one of {', '.join(KINDS)}."
        )
    return kind, path


def _check(kind: SpecKind | None, path: Path, catalogue: Catalogue) -> None:
    """Read a spec file or, if the kind is None, a table; raises SpecError if it is invalid."""
    if kind is None:
        # Tables have fixed names; any other file is a price list.
        if path.name in _READERS:
            _READERS[path.name](path)
        elif errors := unknown_gpus(path, catalogue.folder):
            raise SpecError("\n".join(errors))
    elif kind is SpecKind.SPACES:
        _check_space(path, catalogue)
    else:
        loaded = getattr(catalogue, f"load_{kind.singular.lower()}")(str(path.absolute()))
        if kind is SpecKind.CLUSTERS:
            catalogue.load_gpu(loaded.spec.gpu)


def _check_space(path: Path, catalogue: Catalogue) -> None:
    """Expand a search space for an example model; raises an error if a value is unknown."""
    space = read_spec(SearchSpace, path)
    model = catalogue.load_model(_EXAMPLE_MODEL)
    if space.engine:
        engine = catalogue.load_engine(space.engine).spec
        serving_mesh(space, {}, counts=[_EXAMPLE_GPUS], model=model, engine=engine)
        return
    profile = catalogue.load_framework(space.framework).spec
    if profile.rollouts is not None:
        lengths = {"output_tokens": 128, "output_cap": 512}
        answers = {"workload": "rl", "model": _EXAMPLE_MODEL, "num_gpus": _EXAMPLE_GPUS, **lengths}
        make_plan(make_request({**answers, "space": path, "specs": catalogue.folder}))
        return
    workload = TrainingWorkload(sequence_length=2048, global_batch_size=1024, total_tokens=1e9)
    counts = [_EXAMPLE_GPUS]
    mesh_of(space, {}, num_gpus=counts, model=model, framework=profile, workload=workload)
