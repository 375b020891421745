"""Where the figures behind a plan come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from planner.base.records import record
from planner.plan.plan import Plan
from planner.specs.catalogue import Catalogue
from planner.workloads.timed import Done

_DEFAULT_CLUSTER = "links of the GPU; network latency and efficiency as of InfiniBand"
_OF_KERNELS = ("compute_fraction", "bandwidth_fraction", "latency", "sharpness")


@record()
class Sources:
    """The specs of a plan of one configuration, with the source of each number."""

    plan: Plan

    def of_key(self, key: str) -> str:
        """The source of a number such as ``gpu peak_flops.bf16``; empty where nobody says."""
        kind, _, path = key.partition(" ")
        return self._origins.get(kind, {}).get(path, "")

    @property
    def profile_kind(self) -> str:
        """``framework`` or ``engine``."""
        return self.plan.workload.profile_kind

    @cached_property
    def _origins(self) -> Mapping[str, Mapping[str, str]]:
        catalogue = Catalogue(self.plan.request.specs)
        (source,) = self.plan.problem.sources
        words = self.plan.words
        gpu = words.get("gpu", {}).get(source.gpu, source.gpu)
        profile = words.get(self.profile_kind, {}).get(source.profile, source.profile)
        cluster = self.plan.request.cluster
        return {
            "gpu": catalogue.load_gpu(gpu).provenance,
            self.profile_kind: catalogue.load_framework(profile).provenance
            if self.profile_kind == "framework"
            else catalogue.load_engine(profile).provenance,
            "cluster": catalogue.load_cluster(cluster).provenance
            if cluster
            else defaultdict(lambda: _DEFAULT_CLUSTER),
        }

    def key_of(self, done: Done, name: str) -> str:
        """The key of a figure in the specs; empty where model and layout make it.

        Reached shares are those of the spec times what the clock of hours and the software leave.
        """
        gpu = self.plan.problem.setting.machine.gpu
        if name == "peak_flops":
            peak = done.figure(name)
            found = [str(key) for key, rate in gpu.peak_flops.items() if rate == peak]
            if not found:
                return ""
            # Of precisions with the same peak that of the kernel, else the last that is listed.
            nearest = next((name for name in found if name in done.work.key), found[-1])
            return f"gpu peak_flops.{nearest}"
        if name == "memory_bandwidth":
            return "gpu memory_bandwidth"
        if name in _OF_KERNELS:
            return f"gpu {done.work.key}.{name}"
        if name in ("bandwidth", "peak_bandwidth"):
            return self._link_key(done)
        return ""

    def _link_key(self, done: Done) -> str:
        if done.work.formula == "copy":
            return "gpu host.bandwidth"
        is_network = done.terms.get("network", 0.0) > 0
        if self.plan.request.cluster:
            return f"cluster scale_{'out' if is_network else 'up'}.bandwidth"
        return "gpu scale_out_bandwidth" if is_network else "gpu scale_up.bandwidth"
