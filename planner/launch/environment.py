"""What a plan assumes of allocator, CUDA and network, as variables of the environment."""

from __future__ import annotations

from typing import Any

from planner.base.records import record
from planner.launch.job import Job
from planner.launch.target import Process, Target

# What loses less than this share of the activations packs them without gaps. [1]
_PACKED = 0.02
_NOT_PYTORCH = ("maxtext", "llama-server", "llama-cpp")
_SEGMENTS = "expandable_segments:True"
_REASONS = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "in how many queues kernels wait: 1 keeps collectives in the "
    "order in which they were issued, beside the products that hide them",
    "NCCL_CUMEM_ENABLE": "how NCCL allocates what GPUs share",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "buffers of collectives are freed as soon as they are done",
    "NVTE_FLASH_ATTN": "the attention kernel that was predicted",
    "NVTE_FUSED_ATTN": "the attention kernel that was predicted",
    "VLLM_USE_V1": "the scheduler that was predicted",
    "UCX_TLS": "how the cache travels between workers",
}
_OF_TARGET = "as this version needs it"


@record(kw_only=True)
class Assumed:
    """A variable with the reason for its value.

    ``is_shell``: ``text`` is an expression of the shell, worked out where it runs.
    """

    name: str
    text: str
    reason: str
    is_shell: bool = False


def environment_of(target: Target, job: Job, process: Process) -> tuple[Assumed, ...]:
    """The environment that a process was predicted in; what its target says comes first.

    References
    ----------
    .. [1] PyTorch, "CUDA semantics", memory management: segments that grow leave no gaps.
    .. [2] PyTorch, torchrun: OMP_NUM_THREADS is 1 for each of several processes of a node.
    """
    own = [
        Assumed(name=name, text=text, reason=_REASONS.get(name, _OF_TARGET))
        for name, text in process.environment.items()
    ]
    taken = set(process.environment)
    found = [*_allocator(target, job), *_threads(job, process)]
    return (*own, *(one for one in found if one.name not in taken))


def fabric(job: Job) -> tuple[str, ...]:
    """What was assumed of the links between GPUs, as lines that people read."""
    if job.num_gpus == 1:
        return ()
    up, out = job.cluster.scale_up, job.cluster.scale_out
    kind = str(up.kind.value).upper() if up.domain_size > 1 else "no link"
    lines = [
        f"{_rate(up.bandwidth)} per GPU and direction among {up.domain_size} GPUs ({kind})",
    ]
    if job.num_gpus > up.domain_size:
        share = f"of which {100 * out.efficiency:.0f} % are reached"
        lines.append(f"{_rate(out.bandwidth)} per GPU and direction between them, {share}")
        lines.append(
            "nccl-tests' all_reduce_perf measures both; NCCL_SOCKET_IFNAME and NCCL_IB_HCA name "
            "the interfaces where NCCL does not find them"
        )
    return tuple(lines)


def _allocator(target: Target, job: Job) -> list[Assumed]:
    memory: Any = getattr(job.profile, "memory", None)
    if not job.is_training or target.name in _NOT_PYTORCH or memory.fragmentation > _PACKED:
        return []
    share = f"{100 * memory.fragmentation:.0f} % of the activations"
    kind = "HIP" if job.gpu.vendor == "AMD" else "CUDA"
    reason = f"the plan loses {share} to gaps: without it the allocator may lose more"
    return [Assumed(name=f"PYTORCH_{kind}_ALLOC_CONF", text=_SEGMENTS, reason=reason)]


def _threads(job: Job, process: Process) -> list[Assumed]:
    """Threads of the optimizer on the host; launchers give each process one alone. [2]"""
    if not job.is_training or job["offload"] != "optimizer" or not process.gpus_per_node:
        return []
    text = f"${{OMP_NUM_THREADS:-$(($(nproc) / {process.gpus_per_node}))}}"
    reason = "the optimizer runs on all cores of the host; a launcher leaves a process one"
    return [Assumed(name="OMP_NUM_THREADS", text=text, reason=reason, is_shell=True)]


def _rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:,.4g} GB/s"
