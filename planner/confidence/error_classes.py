"""How sure a prediction for a plan is, by the classes that errors of published runs are of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from planner.base.enums import LinkKind, Precision
from planner.base.records import record
from planner.confidence.intervals import PLACE, TRANSFERRED, farther_basis
from planner.confidence.profile_rules import read_table
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import LayerGroup, ModelSpec
from planner.specs.software_profile import release_parts
from planner.specs.spec_paths import SpecKind

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


def scale_class(num_gpus: int, gpus_per_node: int) -> str:
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


def unmeasured_features(profile: str, release: str, model: ModelSpec) -> tuple[str, ...]:
    """Of an engine ``profile`` in a ``release`` (empty: not said) what no run was measured with.

    An architecture is measured where some model of a run on the engine has all its kinds of
    layers. Of an engine without runs neither is told: their absence is what the basis says.

    >>> from planner.specs.catalogue import Catalogue
    >>> unmeasured_features("vllm-0.17", "0.27.1", Catalogue().load_model("deepseek-v3.2"))
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


def format_basis(basis: str, lacks: tuple[str, ...]) -> str:
    """How near measured runs are, and what of a prediction none was measured with."""
    if not lacks:
        return basis
    return f"{farther_basis(basis, TRANSFERRED)}, {' and '.join(_WORDS[name] for name in lacks)}"


def tool_of(profile: str, known: Mapping[str, object]) -> str:
    """The engine that a profile is of, among those that are known; empty where it is of none.

    >>> tool_of("vllm-v0-ports", {"vllm": 1, "sglang": 1}), tool_of("tgi", {"vllm": 1})
    ('vllm', '')
    """
    alike = (name for name in known if profile == name or profile.startswith(f"{name}-"))
    return max(alike, key=len, default="")


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
    architectures: dict[str, list[frozenset[str]]] = {}
    for row in read_table("measured_architectures.csv"):
        architectures.setdefault(row["tool"], []).append(frozenset(row["architecture"].split("+")))
    return {tool: tuple(known) for tool, known in architectures.items()}
