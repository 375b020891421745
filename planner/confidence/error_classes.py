"""How sure a prediction for a plan is, by the classes that errors of published runs are of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from planner.base.enums import LinkKind, Precision
from planner.base.records import record
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
    """Return the error class of a GPU: PCIe card, NVIDIA generation, other vendor or unmeasured."""
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
    """``pretrain``: weights from scratch, or ``finetune`` (``tunes``): existing weights."""
    return "finetune" if tunes else "pretrain"


def has_experts(model: ModelSpec) -> bool:
    """Whether any layer is a mixture of experts."""
    return model.num_experts > 0


def architecture(model: ModelSpec) -> frozenset[str]:
    """Return the kinds of layers in a model, regardless of their number and size.

    Attention is standard, latent, sparse (latent with an indexer) or keeps a state, and may have
    windows and sinks; experts are whole, or latent where tokens are projected to them.

    >>> from planner.specs.catalogue import Catalogue
    >>> sorted(architecture(Catalogue().load_model("gpt-oss-120b")))
    ['experts', 'sinks', 'standard', 'window']
    """
    return frozenset(kind for group in model.layer_groups for kind in _kinds(group))


def _kinds(group: LayerGroup) -> Iterator[str]:
    """Yield the error classes of a layer group, such as "sparse", "window" or "experts"."""
    feed_forward = group.feed_forward
    for attention in group.mixers:
        yield "sparse" if attention.index_topk else str(attention.kind)
        if attention.sliding_window:
            yield "window"
        if attention.sinks:
            yield "sinks"
    if feed_forward is not None and feed_forward.num_experts:
        yield "latent_experts" if feed_forward.moe_latent_size else "experts"


def batching_kind(engine: EngineProfile) -> str:
    """How requests meet on an engine: ``continuous`` where they wait for room, else ``static``."""
    return "continuous" if engine.scheduler.continuous else "static"


RELEASE_NUMBER = re.compile(r"v?\d+\.\d+[\w.+-]*|b\d+")
"""Release number: numbers and suffixes, or the build of llama.cpp."""
_FIRST_YEAR = 20


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
        """Return the latest engine profile that is not newer than the release; None if none is.

        It has kernels for the GPUs of a ``vendor``, where that is known.
        """
        candidates: list[tuple[tuple[int, ...], str]] = []
        for name in catalogue.names(SpecKind.ENGINES):
            spec = catalogue.load_engine(name).spec
            tool, _, since = spec.since.partition(" ")
            if tool == self.tool and release_parts(since) <= self.parts:
                candidates += [(release_parts(since), name)] * (
                    vendor is None or not spec.vendors or vendor in spec.vendors
                )
        # Of equal ones the first: a copy that was calibrated has a longer name.
        return max(candidates, key=lambda candidate: candidate[0])[1] if candidates else None

    @property
    def is_measured(self) -> bool:
        """Whether runs were measured with it, or releases of measured runs are unknown."""
        measured_releases = _releases().get(self.tool, ())
        return not measured_releases or self.parts[:2] in measured_releases

    @property
    def unmeasured_message(self) -> str:
        """Return a message if no published run used the release; "" if one did."""
        if self.is_measured:
            return ""
        release = self.parts[:2]
        measured_releases = _releases()[self.tool]
        nearest = min(
            measured_releases,
            key=lambda measured: (
                abs(_release_order(measured) - _release_order(release)),
                measured,
            ),
        )
        current, other = (".".join(map(str, numbers)) for numbers in (release, nearest))
        return f"No run of {current} is published; the nearest runs are of {other}."


def stated_release(version: str) -> str:
    """Return the release in a run's version text; empty if there is none.

    Containers count by year and month.

    >>> stated_release("0.6.3.post1"), stated_release("nightly-dev"), stated_release("25.12")
    ('0.6.3.post1', '', '')
    """
    is_release = RELEASE_NUMBER.fullmatch(version) and (
        version.startswith("b") or release_parts(version)[0] < _FIRST_YEAR
    )
    return version if is_release else ""


def find_measured_tool(profile: str) -> str:
    """The engine of a profile whose measured releases are known; "" if there is none."""
    return find_tool(profile, _releases())


def find_tool(profile: str, tools: Iterable[str]) -> str:
    """Return the known engine of a profile; "" if none matches.

    >>> find_tool("vllm-v0-ports", ("vllm", "sglang")), find_tool("tgi", ("vllm",))
    ('vllm', '')
    """
    matching = (name for name in tools if profile == name or profile.startswith(f"{name}-"))
    return max(matching, key=len, default="")


def _release_order(release: tuple[int, ...]) -> float:
    return release[0] * 100 + release[1]


@cache
def _releases() -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """Return the measured releases of each engine."""
    releases_by_tool: dict[str, list[tuple[int, ...]]] = {}
    for row in read_table("measured_releases.csv"):
        releases_by_tool.setdefault(row["tool"], []).append(release_parts(row["release"]))
    return {tool: tuple(releases) for tool, releases in releases_by_tool.items()}
