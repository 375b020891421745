"""Tables of all specs of a kind, with their key figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from planner.base import text
from planner.base.enums import Precision
from planner.base.units import GIB, GIGA, HOUR, TERA
from planner.errors import PlannerError, SpecError, did_you_mean
from planner.estimators.parameters import count_parameters
from planner.show.page import Block, Column, Pairs, fitted, grid, said
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind

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
# Marks the head of a column of words, which may stand on several lines.
_WORDS = "+"
# What a narrow terminal keeps.
_FIRST = ("GiB", "USD /h", "memory GB/s", "bf16 TFLOP/s", "parameters billion", "GPU", "max GPUs")


def spec_kind(word: str) -> SpecKind:
    """The kind of spec that a word means, in the plural or the singular.

    Raises
    ------
    SpecError
        There is no such kind.
    """
    for kind in KINDS:
        if word.lower() in (kind.value, kind.value.removesuffix("s")):
            return kind
    hint = did_you_mean(word, KINDS)
    raise SpecError(f"Unknown kind of spec {word!r}.{hint} Known: {', '.join(KINDS)}.")


def kinds_blocks(catalogue: Catalogue) -> Iterator[Block]:
    """The kinds of specs, and how many there are."""
    yield Pairs(pairs={str(kind): f"{len(catalogue.names(kind))} specs" for kind in KINDS})
    yield said("`planner specs list KIND` shows those of a kind.", indent="")


def list_blocks(kind: SpecKind, catalogue: Catalogue) -> Iterator[Block]:
    """A table of all specs of a kind; a faulty file says so in its row."""
    words_of, row = _TABLES[kind]
    headers = words_of.split("; ")
    rows = [_cells(row, catalogue, name, len(headers)) for name in catalogue.names(kind)]
    if not any(header.startswith(_WORDS) for header in headers):
        yield from _numbers_blocks(kind, headers, rows)
        return
    words = [at for at, head in enumerate(headers) if at == 0 or head.startswith(_WORDS)]
    heads = (head.lstrip(_WORDS).replace("|", "\n") for head in headers)
    yield grid(heads, rows, words=words)


def _numbers_blocks(
    kind: SpecKind, headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[Block]:
    """A table of names and numbers, of as many whole columns as there is room for."""
    columns = [
        Column(header.replace("|", " "), [cells[number] for cells in rows], numeric=number > 0)
        for number, header in enumerate(headers)
    ]
    late = [column.name for column in columns]
    first = [name for name in _FIRST if name in late]
    order = [late[0], *first, *(name for name in late[1:] if name not in first)]
    alone = f"planner specs show {kind} NAME has them"
    yield fitted(columns, order.index, elsewhere=alone)


def _cells(row: Row, catalogue: Catalogue, name: str, width: int) -> list[str]:
    try:
        return list(row(catalogue, name))
    except PlannerError:
        return [name, *([_UNKNOWN] * (width - 2)), "faulty"]


def _gpu(catalogue: Catalogue, name: str) -> Iterator[str]:
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
    cluster = catalogue.load_cluster(name).spec
    yield name
    yield cluster.gpu
    yield str(cluster.gpus_per_node)
    yield str(cluster.scale_up.domain_size)
    yield _number(cluster.scale_up.bandwidth, GIGA)
    yield _number(cluster.scale_out.bandwidth, GIGA)
    yield _UNKNOWN if cluster.max_gpus is None else text.count(cluster.max_gpus)


def _model(catalogue: Catalogue, name: str) -> Iterator[str]:
    model = catalogue.load_model(name)
    parameters = count_parameters(model)
    yield name
    yield f"{parameters.total / GIGA:,.2f}"
    yield str(model.num_hidden_layers)
    yield text.count(model.hidden_size)
    yield str(max(attention.num_attention_heads for attention in model.attentions))
    yield text.count(model.vocab_size)
    yield str(model.num_experts) if model.num_experts else _UNKNOWN


def _space(catalogue: Catalogue, name: str) -> Iterator[str]:
    space = catalogue.load_space(name).spec
    yield name
    yield space.framework or space.engine
    yield space.description


def _framework(catalogue: Catalogue, name: str) -> Iterator[str]:
    profile = catalogue.load_framework(name).spec
    kinds = ("tensor", "pipeline", "context", "expert")
    yield name
    yield ", ".join(kind for kind in kinds if getattr(profile, f"{kind}_parallel")) or "data only"
    yield ", ".join(str(stage) for stage in profile.zero_stages)
    yield f"{profile.states.weight:g} + {profile.states.gradient:g} + {profile.states.optimizer:g}"


def _engine(catalogue: Catalogue, name: str) -> Iterator[str]:
    engine = catalogue.load_engine(name).spec
    yield name
    scheduler = engine.scheduler
    yield "continuous" if scheduler.continuous else "slots" if scheduler.slots else "static"
    yield text.count(engine.scheduler.max_num_seqs)
    yield text.count(engine.scheduler.max_num_batched_tokens)
    yield ", ".join(engine.quantizations)


def _reliability(catalogue: Catalogue, name: str) -> Iterator[str]:
    spec = catalogue.load_reliability(name).spec
    every = spec.gpu_hours_per_interruption
    yield name
    yield _UNKNOWN if every is None else text.count(every.typical / HOUR)
    yield text.duration(spec.recovery.total) if spec.recovery.total else _UNKNOWN
    yield _number(spec.checkpoints.bandwidth_per_node, GIGA)
    yield f"{spec.spare_share:.0%}"


def _number(given: float | None, scale: float) -> str:
    return _UNKNOWN if given is None else f"{given / scale:,.4g}".replace("e+03", "000")


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
"""By kind the heads of columns, and what makes a row of cells; | is a new line."""
