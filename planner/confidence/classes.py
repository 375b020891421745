"""How sure a prediction for a plan is, by the classes that errors of published runs are of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from planner.base.enums import LinkKind, Precision
from planner.base.records import record
from planner.base.training_names import TrainingObjective
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    PLACE,
    TRAINING_TABLES,
    TRANSFERRED,
    Confidence,
    MemoryErrors,
    basis_of,
    default_fit_confidence,
    farther,
    interval_of,
    memory_errors,
    runs_at,
)
from planner.confidence.software import (
    framework_rule,
    is_first_run,
    read_table,
    rule_of_profile,
    slower_at_first,
)
from planner.errors import PlannerError
from planner.estimators.training.share import Setting
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec, is_assumed
from planner.specs.model import LayerGroup, ModelSpec
from planner.specs.paths import SpecKind

if TYPE_CHECKING:
    from planner.estimators.inference.setting import ServingSetting


_LARGEST_CLUSTER = 512
_UNMEASURED = "unmeasured"


def gpu_class(gpu: GpuSpec) -> str:
    """Cards on PCIe, NVIDIA's generations of fast fabric, another vendor, or one unmeasured."""
    if gpu.unmeasured:
        return _UNMEASURED
    if gpu.vendor.lower() != "nvidia":
        return gpu.vendor.lower()
    if gpu.scale_up.kind is LinkKind.PCIE or gpu.scale_up.domain_size <= 2:
        return "card"
    for precision, name in (
        (Precision.FP4, "blackwell"),
        (Precision.FP8, "hopper"),
        (Precision.BF16, "ampere"),
    ):
        if precision in gpu.peak_flops:
            return name
    return "volta"


def scale(num_gpus: int, gpus_per_node: int) -> str:
    """One GPU, one node, a cluster of up to 512 GPUs, or a larger one."""
    if num_gpus <= gpus_per_node:
        return "gpu" if num_gpus == 1 else "node"
    return "cluster" if num_gpus <= _LARGEST_CLUSTER else "large"


def training_task(*, tunes: bool) -> str:
    """What is trained: weights from scratch, or (``tunes``) those that are there already."""
    return "finetune" if tunes else "pretrain"


def has_experts(model: ModelSpec) -> bool:
    """Whether any layer is a mixture of experts."""
    return model.num_experts > 0


def architecture_of(model: ModelSpec) -> frozenset[str]:
    """The kinds of layers that a model has, whatever their number and sizes.

    Attention is standard, latent, sparse (latent with an indexer) or keeps a state, and may have
    windows and sinks; experts are whole, or latent where tokens are projected to them.

    >>> from planner.specs.catalogue import Catalogue
    >>> sorted(architecture_of(Catalogue().load_model("gpt-oss-120b")))
    ['experts', 'sinks', 'standard', 'window']
    """
    return frozenset(kind for group in model.layer_groups for kind in _kinds(group))


def _kinds(group: LayerGroup) -> Iterator[str]:
    feed_forward = group.feed_forward
    for attention in group.mixers:
        yield "sparse" if attention.index_topk else str(attention.kind)
        if attention.sliding_window:
            yield "window"
        if attention.sinks:
            yield "sinks"
    if feed_forward is not None and feed_forward.num_experts:
        yield "latent_experts" if feed_forward.moe_latent_size else "experts"


def batching(engine: EngineProfile) -> str:
    """How requests meet on an engine: ``continuous`` where they wait for room, else ``static``."""
    return "continuous" if engine.scheduler.continuous else "static"


RELEASE, ARCHITECTURE = "release", "architecture"
LACKS = RELEASE, ARCHITECTURE, PLACE
RELEASE_NUMBER = re.compile(r"v?\d+\.\d+[\w.+-]*|b\d+")
"""What a release is called: numbers and what follows them, or the build of llama.cpp."""
_FIRST_YEAR = 20
_WORDS = {RELEASE: "a release not measured", ARCHITECTURE: "an architecture not measured"}


@record(kw_only=True)
class Release:
    """A release of an engine; ``tool`` is the target that reads files of it."""

    tool: str
    number: str

    @property
    def parts(self) -> tuple[int, ...]:
        """Its numbers, the first the one that matters most."""
        return release_parts(self.number)

    def profile(self, catalogue: Catalogue, vendor: str | None = None) -> str | None:
        """The engine profile of the latest release that is not after it; None where none is.

        It has kernels for the GPUs of a ``vendor``, where that is known.
        """
        held: list[tuple[tuple[int, ...], str]] = []
        for name in catalogue.names(SpecKind.ENGINES):
            spec = catalogue.load_engine(name).spec
            tool, _, since = spec.since.partition(" ")
            if tool == self.tool and release_parts(since) <= self.parts:
                held += [(release_parts(since), name)] * (vendor is None or vendor in spec.vendors)
        # Of equal ones the first: a copy that was calibrated has a longer name.
        return max(held, key=lambda one: one[0])[1] if held else None

    @property
    def is_measured(self) -> bool:
        """Whether runs were measured with it, or nobody knows with which releases they were."""
        known = _releases().get(self.tool, ())
        return not known or self.parts[:2] in known

    @property
    def unmeasured(self) -> str:
        """That no published run was measured with it, and which is nearest; else empty."""
        if self.is_measured:
            return ""
        release = self.parts[:2]
        known = _releases()[self.tool]
        nearest = min(known, key=lambda one: (abs(_order(one) - _order(release)), one))
        own, other = (".".join(map(str, one)) for one in (release, nearest))
        return f"No run of {own} was measured, the nearest are of {other}."


def lacks_of(profile: str, release: str, model: ModelSpec) -> tuple[str, ...]:
    """Of an engine ``profile`` in a ``release`` (empty: not said) what no run was measured with.

    An architecture is measured where some model of a run on the engine has all its kinds of
    layers. Of an engine without runs neither is told: their absence is what the basis says.

    >>> from planner.specs.catalogue import Catalogue
    >>> lacks_of("vllm-0.17", "0.27.1", Catalogue().load_model("deepseek-v3.2"))
    ('release', 'architecture')
    """
    found = []
    if release and not Release(tool=tool_of(profile, _releases()), number=release).is_measured:
        found.append(RELEASE)
    known = _architectures().get(tool_of(profile, _architectures()), ())
    own = architecture_of(model)
    if known and not any(own <= other for other in known):
        found.append(ARCHITECTURE)
    return tuple(found)


def stated_release(version: str) -> str:
    """The release in what a run calls its version; empty where it says none.

    Containers count by year and month.

    >>> stated_release("0.6.3.post1"), stated_release("nightly-dev"), stated_release("25.12")
    ('0.6.3.post1', '', '')
    """
    is_release = RELEASE_NUMBER.fullmatch(version) and (
        version.startswith("b") or release_parts(version)[0] < _FIRST_YEAR
    )
    return version if is_release else ""


def basis_words(basis: str, lacks: tuple[str, ...]) -> str:
    """How near measured runs are, and what of a prediction none was measured with."""
    if not lacks:
        return basis
    return f"{farther(basis, TRANSFERRED)}, {' and '.join(_WORDS[name] for name in lacks)}"


def tool_of(profile: str, known: Mapping[str, object]) -> str:
    """The engine that a profile is of, among those that are known; empty where it is of none.

    >>> tool_of("vllm-v0-ports", {"vllm": 1, "sglang": 1}), tool_of("tgi", {"vllm": 1})
    ('vllm', '')
    """
    return max((name for name in known if _is_of(profile, name)), key=len, default="")


def release_parts(number: str) -> tuple[int, ...]:
    """The numbers of a release.

    >>> release_parts("0.6.3.post1")
    (0, 6, 3, 1)
    """
    return tuple(map(int, re.findall(r"\d+", number)))


def _is_of(profile: str, name: str) -> bool:
    return profile == name or profile.startswith(f"{name}-")


def _order(release: tuple[int, ...]) -> float:
    return release[0] * 100 + release[1]


@cache
def _releases() -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """The releases of each engine that published runs were measured with."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for row in read_table("measured_releases.csv"):
        found.setdefault(row["tool"], []).append(release_parts(row["release"]))
    return {tool: tuple(releases) for tool, releases in found.items()}


@cache
def _architectures() -> Mapping[str, tuple[frozenset[str], ...]]:
    """The architectures of the models that published runs of each engine served."""
    found: dict[str, list[frozenset[str]]] = {}
    for row in read_table("measured_architectures.csv"):
        found.setdefault(row["tool"], []).append(frozenset(row["architecture"].split("+")))
    return {tool: tuple(known) for tool, known in found.items()}


TRAINING, INFERENCE = "training", "inference"
# Profiles that were fitted to runs whose tensor parallelism goes over nodes.
_MEASURED_OVER_NODES = ("fastertransformer",)


def errors_of_memory(setting: Setting | ServingSetting, num_gpus: int) -> MemoryErrors:
    """How needed over predicted memory of a setting on so many GPUs is distributed."""
    if isinstance(setting, Setting):
        rule = framework_rule(setting.framework.name)
        kind = "moe" if has_experts(setting.model) else "dense"
        size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
        return memory_errors(TRAINING_TABLES, rule.label, kind, size)
    engine = rule_of_profile(setting.engine, setting.machine.gpu.name)
    return memory_errors(INFERENCE_TABLES, engine.label, batching(setting.engine), "")


def sure_share(setting: Setting | ServingSetting, num_gpus: int, confidence: float | None) -> float:
    """The share of the usable memory that a prediction may reach to fit this surely.

    None: as surely as makes both wrong verdicts on published runs as rare.
    """
    tables = TRAINING_TABLES if isinstance(setting, Setting) else INFERENCE_TABLES
    surely = default_fit_confidence(tables) if confidence is None else confidence
    return errors_of_memory(setting, num_gpus).share(surely)


def confidence(
    published: str, setting: object, num_gpus: int, *, spans_nodes: bool = False
) -> Confidence:
    """The confidence in predictions of a setting on so many GPUs.

    ``spans_nodes``: the GPUs that share a layer are of several nodes, of which few runs are.

    ``published`` is what runs of its kind are called: ``training``, or the mode of a run of
    inference (`planner.validation.inference.cases.Mode`).
    """
    if isinstance(setting, Setting):
        return _of_training(setting, num_gpus)
    # A training search does without what serves.
    from planner.estimators.inference.setting import ServingSetting

    if not isinstance(setting, ServingSetting):
        raise TypeError(f"There are no published runs of {setting!r}.")
    return _of_inference(setting, published, spans_nodes=spans_nodes)


def _of_training(setting: Setting, num_gpus: int) -> Confidence:
    """By framework, GPU, number of GPUs, task, dense or experts."""
    rule = framework_rule(setting.framework.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    size = scale(num_gpus, setting.machine.cluster.gpus_per_node)
    work = setting.workload
    tunes = work.is_frozen or work.training_objective is not TrainingObjective.PRETRAIN
    keys = (rule.label, silicon, size, training_task(tunes=tunes), kind)
    quantities = terms_about("measured", "train")
    known = basis_of(rule, silicon, kind, TRAINING_TABLES)
    basis = basis_of(rule, silicon, kind, TRAINING_TABLES, is_assumed=_is_assumed(setting))
    if work.training_objective.needs_rollouts:  # no published run is an update of this kind
        basis, runs = farther(basis, TRANSFERRED), 0
    else:
        runs = runs_at(rule, setting.machine.gpu.name, TRAINING_TABLES, keys[-2])
    lacks = () if runs else (PLACE,)
    factors = {
        name: interval_of(name, keys, TRAINING_TABLES, known, rule.profile)
        if name == "peak_memory"
        else interval_of(name, keys, TRAINING_TABLES, basis, rule.profile, lacks)
        for name in quantities
    }
    basis, slower = farther(basis, TRANSFERRED) if lacks else basis, slower_at_first(rule.label)
    if slower > 1 and is_first_run(work.tuned, work.training_objective):
        low, high = factors["step_time"]
        factors["step_time"] = low, high * slower
        basis += ", first run" + (" (--tuned otherwise)" if work.tuned is None else "")
    return Confidence(
        factors=factors,
        layout=interval_of("layout", keys, TRAINING_TABLES)[1],
        basis=basis,
        runs=runs,
    )


def _is_assumed(setting: Setting | ServingSetting) -> bool:
    """Whether no publication says what products reach on a setting's GPU."""
    machine = setting.machine
    try:
        provenance = machine.catalogue.load_gpu(machine.gpu.name).provenance
    except PlannerError:
        return False
    return is_assumed(provenance, "gemm.bf16.compute_fraction")


def _of_inference(setting: ServingSetting, mode: str, *, spans_nodes: bool) -> Confidence:
    """By engine, GPU, mode, dense or experts; ``throughput`` is that of rates."""
    rule = rule_of_profile(setting.engine, setting.machine.gpu.name)
    silicon = gpu_class(setting.machine.gpu)
    kind = "moe" if has_experts(setting.model) else "dense"
    keys = (rule.label, silicon, mode, kind)
    quantities = terms_about("measured", "serve")
    known = basis_of(rule, silicon, kind, INFERENCE_TABLES)
    basis = basis_of(rule, silicon, kind, INFERENCE_TABLES, is_assumed=_is_assumed(setting))
    if spans_nodes and rule.profile not in _MEASURED_OVER_NODES:
        basis = farther(basis, TRANSFERRED)
    lacks = () if rule.nearest else lacks_of(rule.profile, setting.engine_version, setting.model)
    runs = runs_at(rule, setting.machine.gpu.name, INFERENCE_TABLES, mode)
    of_speed = lacks if runs else (*lacks, PLACE)
    ends = {
        name: interval_of(name, keys, INFERENCE_TABLES, known, rule.profile, lacks)
        if name == "peak_memory"
        else interval_of(name, keys, INFERENCE_TABLES, basis, rule.profile, of_speed)
        for name in (*quantities, "throughput")
    }
    slow = ends.pop("throughput")
    rates = 1 / slow[1], 1 / slow[0] if slow[0] else math.inf
    return Confidence(
        factors={**ends, "throughput": rates},
        layout=interval_of("layout", keys, INFERENCE_TABLES)[1],
        basis=basis_words(basis if runs else farther(basis, TRANSFERRED), lacks),
        runs=runs,
    )
