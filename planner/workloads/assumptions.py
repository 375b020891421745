"""Assumptions of a plan: chosen defaults, their notes, and the plan with other common values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, IndexArray
from planner.base.csv_cells import Row
from planner.base.enums import CacheType, Quantization
from planner.base.formatting import format_limit
from planner.base.records import record
from planner.configurations.configuration_tables import format_value
from planner.optimize.goals import Constraint
from planner.optimize.problem import is_unknown
from planner.optimize.source import Candidates, InputsChange, SearchInputs, Source
from planner.question.names import (
    ATTENTION_DATA_PARALLEL,
    EXPERT_PARALLEL,
    PIPELINE_PARALLEL,
    TENSOR_PARALLEL,
)
from planner.question.request import Request
from planner.question.terms import glossary, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.search_space import SearchSpace

if TYPE_CHECKING:
    from planner.configurations.configuration_tables import (
        PoolConfigurations,
        ServingConfigurations,
    )
    from planner.estimators.inference.batch_share import ServingInputs

FACTORS = (0.5, 2.0)
"""Networks and loads of one class lie within a factor of two of the usual one."""
_GBIT = 8 / 1e9
_DEFAULT_CLUSTER_SUFFIX = "-default"


@record(kw_only=True)
class Assumption:
    """An assumption of a plan: its ``name``, the ``assumed`` value, and the alternatives.

    ``tried`` maps the text of each alternative to the plan evaluated with it. ``of_release``: which
    holds depends on the release of the software that is installed, not on a choice.
    """

    name: str
    assumed: str
    tried: Mapping[str, Candidates]
    of_release: bool = False


@record(kw_only=True)
class EvaluatedChoice:
    """One evaluated configuration with its request and its search space."""

    request: Request
    space: SearchSpace
    candidates: Candidates

    @property
    def source(self) -> Source:
        """The source of the configuration."""
        return self.candidates.source

    def is_open(self, name: str) -> bool:
        """Whether neither the user nor the space sets a parameter."""
        return name not in self.request.settings and name not in self.space.parameters

    def with_setting(self, change: InputsChange) -> Candidates:
        """The configuration, evaluated again in a changed setting."""
        return self.source.changed(change).judged(self.candidates.configurations)

    def with_value(self, name: str, code: float) -> Candidates:
        """Evaluate the configuration again with another value of the parameter ``name``."""
        configurations = self.candidates.configurations
        values = np.full(np.shape(getattr(configurations, name)), code)
        other = replace(configurations, **{name: configurations.cast(name, values)})
        return self.source.judged(other)


def open_network(chosen: EvaluatedChoice) -> list[Assumption]:
    """The assumed network rate between nodes, at half and twice its value.

    Empty if the user names the cluster, or the plan stays in one scale-up domain. Without a named
    cluster the rate is the default of the GPU's class.
    """
    cluster = chosen.source.inputs.machine.cluster
    num_gpus = float(np.max(chosen.candidates.value("num_gpus")))
    replica_gpus = getattr(chosen.candidates.configurations, "replica_gpus", None)
    if replica_gpus is not None and chosen.source.mesh is not None:
        num_gpus = float(np.max(replica_gpus))  # replicas that do all send each other nothing
    if (
        not cluster.name.endswith(_DEFAULT_CLUSTER_SUFFIX)
        or num_gpus <= cluster.scale_up.domain_size
    ):
        return []
    rate = cluster.scale_out.bandwidth

    def with_rate(factor: float, inputs: SearchInputs) -> SearchInputs:
        machine = inputs.machine
        out = replace(machine.cluster.scale_out, bandwidth=factor * rate)
        other = replace(machine.cluster, scale_out=out)
        return replace(inputs, machine=replace(machine, cluster=other))

    alternatives = {
        f"{factor * rate * _GBIT:g}": chosen.with_setting(partial(with_rate, factor))
        for factor in FACTORS
    }
    assumed = f"{rate * _GBIT:g} Gbit/s per GPU"
    return [Assumption(name="network between nodes", assumed=assumed, tried=alternatives)]


def open_parameters(chosen: EvaluatedChoice, names: Sequence[str]) -> list[Assumption]:
    """Each of these parameters that neither user nor space sets, with other common values."""
    parameters = []
    for name in names:
        current = int(np.ravel(getattr(chosen.candidates.configurations, name))[0])
        term = glossary()[name]
        is_open = chosen.is_open(name) or _is_published(
            chosen, name, str(format_value(name, current))
        )
        if not is_open or (name == "precision" and chosen.request.precision):
            continue
        codes = {term.encode(value) for value in term.common_values.split()} - {current}
        alternatives = {
            str(format_value(name, code)): chosen.with_value(name, code) for code in sorted(codes)
        }
        parameters.append(make_assumption(name, str(format_value(name, current)), alternatives))
    return parameters


def _is_published(chosen: EvaluatedChoice, name: str, word: str) -> bool:
    """True if the precision comes from the published run, not from the user or the space."""
    if name != "precision" or name in chosen.request.settings:
        return False
    values = chosen.space.parameters.get(name, word)
    return word not in (map(str, values) if isinstance(values, tuple | list) else (str(values),))


def make_assumption(
    name: str, assumed: str, alternatives: Mapping[str, Candidates], *, of_release: bool = False
) -> Assumption:
    """The assumption of a parameter or option ``name``, which may have underscores."""
    return Assumption(
        name=name.replace("_", " "), assumed=assumed, tried=alternatives, of_release=of_release
    )


class PlanNotes:
    """Collects what a plan reports about the specs of a catalogue, and defaults."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Start without notes; specs are read from the ``catalogue``."""
        self.catalogue = catalogue
        self.defaults: dict[str, str] = {}
        self.tried: dict[str, Sequence[str]] = {}
        self.digests: dict[str, str] = {}
        self.assumed: list[str] = []

    def spec(self, kind: str, name: str, content: str, origins: Mapping[str, str]) -> None:
        """Record the digest ``content`` of a spec file and the names of its assumed fields."""
        self.digests[f"{kind} {name}"] = content
        self.assumed += [
            f"{kind} {key}"
            for key, source in origins.items()
            if source == "assumed" or source.startswith("default (")
        ]

    def copy(self, text: str, name: str) -> None:
        """Note that ``text`` names a copy of the model ``name``."""
        if self.catalogue.copied_from(text):
            self.defaults["model"] = f"{name}: {text} is a copy, judging by its name"


def assumed_limits(workload: str, names: Collection[str]) -> dict[str, float]:
    """The default bound of every limit that has a default, in SI units.

    Empty if the user sets a limit of a time: then the user decides about the other limits, too.
    """
    limits = terms_of(workload, "limit")
    if limits_time(workload, names):
        return {}
    return {name: float(term.default) for name, term in limits.items() if term.default}


def limits_time(workload: str, names: Collection[str]) -> bool:
    """True if one of the limits in ``names`` is of a time."""
    limits = terms_of(workload, "limit")
    return any(limits[name].type == "second" for name in names if name in limits)


def limit_notes(
    limits: Iterable[Constraint], assumed: Mapping[str, float] | None = None
) -> dict[str, str]:
    """Notes on assumed limits, by name; ``assumed``: bounds before limits were relaxed."""
    return {
        limit.name: _format_limit_note(limit, (assumed or {}).get(limit.name))
        for limit in limits
        if limit.assumed
    }


def confidence_notes(
    sources: Sequence[Source], limits: Sequence[Constraint], request: Request
) -> dict[str, str]:
    """A note on limits whose confidence is unknown, as no published run is like the plan."""
    confidence = request.limit_confidence
    limited_terms = [(limit.name, limit.sign) for limit in limits]
    if request.request_rate is not None:
        limited_terms.append(("request_rate", -1))
    unknown = dict.fromkeys(
        source.description
        for source in sources
        if any(is_unknown(source, name, confidence, sign) for name, sign in limited_terms)
    )
    if not unknown:
        return {}
    where = (
        ""
        if len(unknown) == len({source.description for source in sources})
        else _format_examples(unknown)
    )
    return {"limits": f"judged at the prediction: no published runs{where}"}


def _format_examples(names: Collection[str]) -> str:
    first, *others = names
    return f" like {first}" + (f" and {len(others)} others" if others else "")


def tried_notes(tried: Mapping[str, Sequence[str]], row: Row | None = None) -> dict[str, str]:
    """Notes on parameters that the search chooses, by name; ``row``: the chosen values."""
    if row is None:
        return {name: f"{' or '.join(values)} (of the space)" for name, values in tried.items()}
    return {
        name: f"{row[name]} of {', '.join(values)} (all that the space tries)"
        for name, values in tried.items()
    }


def _format_limit_note(limit: Constraint, before: float | None) -> str:
    """Text of an assumed limit: its bound with unit, and ``before`` if the bound was relaxed."""
    bound = f"at {'most' if limit.sign > 0 else 'least'} {format_limit(limit.bound, limit.unit)}"
    if before is None or before == limit.bound:
        return f"{bound} (default)"
    relaxation = f"relaxed from {format_limit(before, limit.unit)}"
    return f"{bound}, {relaxation} (no plan keeps the defaults)"


ComplexityLevel: TypeAlias = tuple[int, IndexArray | BoolArray]
"""The number of levels of a feature, and the level of every plan; 0: the simplest."""


def packed(steps: Sequence[ComplexityLevel]) -> IndexArray:
    """Combine levels into one number that orders plans by the first level, then the second."""
    weight = math.prod(levels for levels, _ in steps)
    weighted = []
    for levels, values in steps:
        weight //= levels
        weighted.append(weight * np.asarray(values, dtype=np.intp))
    # Small arrays first: most depend on a few axes, the memory on all.
    weighted.sort(key=lambda values: values.size)
    return total(weighted)


def total(levels: Iterable[IndexArray | BoolArray]) -> IndexArray:
    """The sum of integer levels or flags, elementwise."""
    summed: IndexArray = sum(
        (np.asarray(level, dtype=np.intp) for level in levels), start=np.zeros((), dtype=np.intp)
    )
    return summed


LONGEST_BATCH = 600.0
"""Duration [s] above which a batch counts as unusual."""
HIGHEST_LOAD = 0.9
"""Utilization of prefill workers above which queues of random arrivals grow fast."""
_KINDS: Mapping[str, int] = {
    TENSOR_PARALLEL: 1,
    PIPELINE_PARALLEL: 5,
    EXPERT_PARALLEL: 2,
    ATTENTION_DATA_PARALLEL: 2,
}


def replica_complexity(
    inputs: ServingInputs, c: ServingConfigurations, num_gpus: FloatArray
) -> IndexArray:
    """The complexity of replicas on ``num_gpus`` GPUs; 0: the simplest."""
    default = inputs.engine.scheduler.default_step_tokens(c.attention_data_parallel)
    of_engine = c.max_num_batched_tokens != default
    return packed([*_common_levels(inputs, c, num_gpus), (2, of_engine)])


def batch_complexity(
    inputs: ServingInputs, c: ServingConfigurations, latency: FloatArray
) -> IndexArray:
    """The complexity of static batches with this ``latency`` [s]; 0: the simplest."""
    offload, *others = _common_levels(inputs, c, c.num_gpus)
    default = inputs.engine.scheduler.default_step_tokens(c.attention_data_parallel)
    of_engine = c.max_num_batched_tokens != default
    return packed([offload, (2, latency > LONGEST_BATCH), *others, (2, of_engine)])


def pool_complexity(
    prefill_setting: ServingInputs,
    inputs: ServingInputs,
    c: PoolConfigurations,
    num_gpus: FloatArray,
    load: FloatArray,
) -> IndexArray:
    """The complexity of pools, above that of all replicas, from features of both kinds of workers.

    ``load``: utilization of the prefill workers.
    """
    prefill = _common_levels(prefill_setting, c.prefill, num_gpus)
    decode = _common_levels(inputs, c.decode, num_gpus)
    levels_of_both = [
        (2 * levels - 1, prefill_level.astype(np.intp) + decode_level)
        for (levels, prefill_level), (_, decode_level) in zip(prefill, decode, strict=True)
    ]
    offload, *others = levels_of_both
    return packed([offload, (2, load > HIGHEST_LOAD), *others]) + _LARGEST_OF_REPLICAS


def _common_levels(
    inputs: ServingInputs, c: ServingConfigurations, num_gpus: FloatArray
) -> list[ComplexityLevel]:
    """The levels of complexity that all serving modes share, the most important first."""
    node = inputs.machine.cluster.gpus_per_node
    across = (c.replica_gpus > node).astype(np.intp) + (c.tensor_parallel > node)
    kinds = [weight * (getattr(c, name) > 1) for name, weight in _KINDS.items()]
    return [
        (2, (c.weight_offload > 0) | (c.kv_offload > 0)),
        (3, across),
        (sum(_KINDS.values()) + 1, total(kinds)),
        (2, ~_fills_nodes(c.replica_gpus, node) | ~_fills_nodes(num_gpus, node)),
        (2, _is_converted(inputs, c)),
        (2, c.kv_cache != CacheType.BF16),
    ]


def _fills_nodes(gpus: FloatArray, node: int) -> BoolArray:
    """True where a number of GPUs is a multiple of a node, or divides a node."""
    return np.asarray((gpus % node == 0) | (node % gpus == 0))


def _is_converted(inputs: ServingInputs, c: ServingConfigurations) -> BoolArray:
    """True where weights have another number format than the published checkpoint."""
    model = inputs.model
    published = Quantization[(model.quantization or Quantization.W16A16.word).upper()]
    expert_format = model.expert_quantization or published.word
    experts = Quantization[expert_format.upper()]
    other = c.expert_quantization != experts if model.num_experts else np.zeros((), np.bool_)
    return np.asarray((c.quantization != published) | other)


_LARGEST_OF_REPLICAS = 2 * 3 * (sum(_KINDS.values()) + 1) * 2**4
