"""From a request to a problem: read the specs, fill in and report the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.enums import AdapterKind, ComputePrecision, Precision
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.ideal import ideal_framework, ideal_hardware
from planner.estimators.machine import Machine
from planner.estimators.parameters import count_parameters
from planner.estimators.share import Setting
from planner.optimize.constraints import constraints
from planner.optimize.objectives import parse_objectives
from planner.optimize.problem import Problem
from planner.optimize.space import mesh
from planner.request import Request
from planner.specs.catalogue import Catalogue, default_cluster
from planner.specs.cluster import ClusterSpec
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.load import check_spec, text_digest
from planner.specs.model import ModelSpec
from planner.specs.multi_token import with_mtp
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.trained import adapter_fields, adapter_kind, mtp_num_layers
from planner.units import HOUR, parse_quantity

DEFAULT_GPU = "a100-sxm-80gb"
_SEQUENCE_LENGTH = 2048
_BATCH_TOKENS = 4 * 2**20
_TOKENS_PER_PARAMETER = 20
_FINE_TUNING_BATCH = 128
_FINE_TUNING_TOKENS = 1e9
_ADAPTER_FRAMEWORK = "hf-trainer"
_FRONT = ("throughput", "memory_headroom")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A problem, and what was chosen for the user.

    ``defaults`` maps a value nobody gave to what it is and where it comes from,
    ``digests`` a spec to the digest of its content; ``assumed`` lists the numbers whose
    source is an assumption or a default of the GPU's class.
    """

    problem: Problem
    space: SearchSpace
    defaults: Mapping[str, str]
    digests: Mapping[str, str]
    assumed: tuple[str, ...]


class Notes:
    """Collects what a plan reports about the specs of a catalogue, and defaults."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.defaults: dict[str, str] = {}
        self.digests: dict[str, str] = {}
        self.assumed: list[str] = []

    def spec(self, kind: str, name: str, content: str, origins: Mapping[str, str]) -> None:
        self.digests[f"{kind} {name}"] = content
        self.assumed += [
            f"{kind} {key}"
            for key, source in origins.items()
            if source == "assumed" or source.startswith("default (")
        ]


def make_plan(request: Request) -> Plan:
    """Read the specs that a request names and state its search problem.

    Raises
    ------
    SpecError, SearchSpaceError
        Something it names is unknown, faulty or impossible.
    """
    catalogue = Catalogue(request.specs)
    notes = Notes(catalogue)
    counts = gpu_counts(request.num_gpus)
    model = catalogue.load_model(request.model)
    notes.digests[f"model {model.name}"] = text_digest(repr(model))
    if isinstance(request.gpu, tuple):
        raise SearchSpaceError("Training is planned on one GPU at a time: give one --gpu.")
    gpu, cluster = hardware(request.gpu, request.cluster, counts, notes)
    workload = _workload(request, model, notes)
    model = with_mtp(model, mtp_num_layers(request, model, notes.defaults))
    space = _space(request, model, notes)
    framework = _framework(request, space, notes)
    if request.ideal:
        gpu, cluster = ideal_hardware(gpu, cluster)
        framework = ideal_framework(framework)
    machine = Machine(
        gpu=gpu,
        cluster=cluster,
        ideal=request.ideal,
        memory_efficiency=share_of_peak(
            request.memory_efficiency, "byte/s", gpu.memory_bandwidth, "memory_efficiency"
        ),
        catalogue=catalogue,
    )
    space_mesh = mesh(
        space,
        request.settings,
        num_gpus=counts,
        model=model,
        framework=framework,
        workload=workload,
    )
    problem = Problem(
        setting=Setting(machine=machine, model=model, framework=framework, workload=workload),
        mesh=space_mesh,
        objectives=parse_objectives(request.objectives or _FRONT),
        constraints=constraints(request.constraints),
        price_per_gpu_second=price_per_gpu_second(
            request.price,
            gpu,
            "cost" in (*request.objectives, *request.constraints),
            notes,
        ),
        flops_efficiency=_flops_efficiency(request, gpu, space_mesh.values["precision"]),
    )
    return Plan(
        problem=problem,
        space=space,
        defaults=notes.defaults,
        digests=notes.digests,
        assumed=tuple(notes.assumed),
    )


def gpu_counts(num_gpus: Any) -> list[int]:
    """One or several numbers of GPUs as a list.

    Raises
    ------
    SearchSpaceError
        Something is not a number of GPUs, or there is none.
    """
    counts = list(num_gpus) if isinstance(num_gpus, tuple | list) else [num_gpus]
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10**7:
            raise SearchSpaceError(
                f"The number of GPUs is a whole number from 1 to 10,000,000, not {count!r}."
            )
    if not counts:
        raise SearchSpaceError("Give at least one number of GPUs.")
    return counts


def hardware(
    gpu_name: str | None, cluster_name: str | None, counts: list[int], notes: Notes
) -> tuple[GpuSpec, ClusterSpec]:
    """The GPU and its cluster; what nobody named goes into ``notes``.

    Raises
    ------
    SpecError
        One of them is unknown or faulty, or the cluster has other GPUs or fewer.
    """
    cluster = None
    if cluster_name is not None:
        loaded = notes.catalogue.load_cluster(cluster_name)
        cluster = loaded.spec
        notes.spec("cluster", cluster.name, loaded.digest, loaded.provenance)
    elif gpu_name is None:
        notes.defaults["gpu"] = f"{DEFAULT_GPU} (default)"
    name = gpu_name or (cluster.gpu if cluster is not None else DEFAULT_GPU)
    gpu = notes.catalogue.load_gpu(name)
    notes.spec("gpu", gpu.spec.name, gpu.digest, gpu.provenance)
    if cluster is None:
        cluster = default_cluster(gpu.spec)
        notes.defaults["cluster"] = (
            f"nodes of {cluster.gpus_per_node}, {cluster.scale_out.bandwidth * 8 / 1e9:g} Gbit/s "
            "per GPU between them (the GPU's own links)"
        )
    elif gpu.spec.name != cluster.gpu and notes.catalogue.find("gpus", cluster.gpu) != gpu.path:
        raise SpecError(
            f"Cluster {cluster.name} is of {cluster.gpu}, not of {gpu.spec.name}: "
            "leave out --gpu or --cluster, or give a file of such a cluster."
        )
    elif cluster.max_gpus is not None and max(counts, default=0) > cluster.max_gpus:
        raise SpecError(
            f"Cluster {cluster.name} ends at {cluster.max_gpus} GPUs, not {max(counts)}: "
            "choose another --cluster, or --gpu for a cluster of any size."
        )
    return gpu.spec, cluster


def _workload(request: Request, model: ModelSpec, notes: Notes) -> TrainingWorkload:
    published = model.training
    s = request.sequence_length
    if s is None:
        limit = model.max_position_embeddings or _SEQUENCE_LENGTH
        s = published.sequence_length if published else min(_SEQUENCE_LENGTH, limit)
        notes.defaults["sequence_length"] = f"{s:,} ({_origin(model, published is not None)})"
    batch = request.global_batch_size
    if batch is None:
        # An impossible length is refused below, with all other faults of the workload.
        batch, origin = _default_batch(request, model, max(s, 1))
        notes.defaults["global_batch_size"] = f"{batch:,} sequences ({origin})"
    tokens = request.total_tokens
    if tokens is None:
        tokens, origin = _default_tokens(request, model)
        notes.defaults["total_tokens"] = f"{tokens / 1e9:,.0f} billion ({origin})"
    _check_length(model, s)
    values = {"sequence_length": s, "global_batch_size": batch, "total_tokens": tokens}
    adapter = adapter_fields(request, notes.defaults)
    return check_spec(
        TrainingWorkload, {**values, "dropout": request.dropout, **adapter}, where="the workload"
    )


def _default_batch(request: Request, model: ModelSpec, sequence_length: int) -> tuple[int, str]:
    """Sequences of a step where the user gives none, and where they come from."""
    if adapter_kind(request) is not AdapterKind.NONE:
        return _FINE_TUNING_BATCH, "default of fine-tuning"
    given = model.training.global_batch_tokens if model.training else None
    batch = _sequences((given or _BATCH_TOKENS) / sequence_length)
    return batch, _origin(model, given is not None)


def _default_tokens(request: Request, model: ModelSpec) -> tuple[float, str]:
    """Tokens of a run where the user gives none, and where they come from."""
    if adapter_kind(request) is not AdapterKind.NONE:
        return _FINE_TUNING_TOKENS, "default of fine-tuning"
    given = model.training.total_tokens if model.training else None
    if given is not None:
        return given, _origin(model, True)
    tokens = float(_TOKENS_PER_PARAMETER * count_parameters(model).total)
    return tokens, "20 per parameter, arXiv:2203.15556"


def _sequences(tokens_over_length: float) -> int:
    """A batch of about so many sequences that many layouts divide.

    A whole number is what was run. Else the paper rounded its tokens, "4M" say: the
    nearest power of two or three times one.
    """
    if tokens_over_length >= 1 and tokens_over_length == int(tokens_over_length):
        return int(tokens_over_length)
    candidates = sorted(factor << power for factor in (1, 3) for power in range(30))
    return min(candidates, key=lambda count: abs(count - tokens_over_length))


def _origin(model: ModelSpec, published: bool) -> str:
    return f"published run of {model.name}" if published else "default"


def _check_length(model: ModelSpec, sequence_length: int) -> None:
    limit = model.max_position_embeddings
    if limit is not None and isinstance(sequence_length, int) and sequence_length > limit:
        raise SpecError(
            f"{model.name} has positions for {limit:,} tokens, not {sequence_length:,}: "
            "give a shorter --sequence-length, or a model file with more max_position_embeddings."
        )


def _space(request: Request, model: ModelSpec, notes: Notes) -> SearchSpace:
    name = request.space
    if name is None:
        name = "pretrain_moe" if model.num_experts else "pretrain_dense"
        if adapter_kind(request) is not AdapterKind.NONE:
            name = "fine_tune"
        notes.defaults["space"] = f"{name} (default)"
    return read_space(name, "framework", notes)


def read_space(name: str, names: str, notes: Notes) -> SearchSpace:
    """A search space by name or path that names a ``framework`` or an ``engine``.

    Raises
    ------
    SearchSpaceError
        It is unknown or faulty, or names the other.
    """
    try:
        found = notes.catalogue.load_space(name)
    except SpecError as error:
        raise SearchSpaceError(str(error)) from error
    space = found.spec
    if not getattr(space, names):
        other = "serve" if space.engine else "train"
        raise SearchSpaceError(f"The space {space.name} is one of --workload {other}.")
    notes.digests[f"space {space.name}"] = found.digest
    return space


def _framework(request: Request, space: SearchSpace, notes: Notes) -> FrameworkProfile:
    name = request.framework or space.framework
    if request.framework is None:
        origin = "of the space"
        if adapter_kind(request) is not AdapterKind.NONE and space.name == "single":
            name, origin = _ADAPTER_FRAMEWORK, "default of adapters"
        notes.defaults["framework"] = f"{name} ({origin})"
    found = notes.catalogue.load_framework(name)
    notes.spec("framework", found.spec.name, found.digest, found.provenance)
    return found.spec


def price_per_gpu_second(
    given: float | None, gpu: GpuSpec, wanted: bool, notes: Notes
) -> float | None:
    """USD per GPU-second: as ``given`` per hour, or of the price list; None if unknown.

    Raises
    ------
    SearchSpaceError
        The price is impossible, or ``wanted`` and unknown.
    """
    if given is not None:
        if not 0 <= given < 1e6:
            raise SearchSpaceError(f"The price is USD per GPU-hour, not {given}.")
        return given / HOUR
    price = notes.catalogue.price_per_gpu_hour(gpu.name)
    if price is None:
        if wanted:
            raise SearchSpaceError(f"No list has a price of {gpu.name}: give --price.")
        return None
    when = f", {price.date}" if price.date else ""
    notes.defaults["price"] = f"{price.value * HOUR:.2f} USD per GPU-hour ({price.source}{when})"
    return price.value


def _flops_efficiency(
    request: Request, gpu: GpuSpec, precisions: Sequence[int]
) -> float | tuple[float, ...] | None:
    """One share of every peak, or of an achieved rate the share of each precision's peak.

    A precision that the GPU lacks has none: a rule rejects it.
    """
    given, name = request.flops_efficiency, "flops_efficiency"
    if given is None or _is_number(given):
        return share_of_peak(given, "flop/s", float("nan"), name)
    shares = [float("nan")] * len(ComputePrecision)
    for code in precisions:
        word = ComputePrecision(code).word
        peak = gpu.peak_flops.get(Precision(word))
        if peak is not None:
            shares[code] = share_of_peak(given, "flop/s", peak, f"{name} in {word}") or 0.0
    return tuple(shares)


def _is_number(text: float | str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def share_of_peak(
    given: float | str | None, dimension: str, peak: float, name: str
) -> float | None:
    """A share of a peak, given as a fraction or as an achieved rate with its unit.

    Raises
    ------
    SearchSpaceError
        It is neither, or not in (0, 1].
    """
    if given is None:
        return None
    try:
        share = float(given)
    except ValueError:
        try:
            share = parse_quantity(str(given), dimension) / peak
        except ValueError as error:
            raise SearchSpaceError(f"{name}: {error}.") from error
    if not 0 < share <= 1:
        raise SearchSpaceError(
            f"{name} = {given} is {share:.4g} of the peak; it must be above 0 and at most 1."
        )
    return share
