"""What stands above the commands of a launch: the plan, what is left open, the environment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import wrap

from planner.base.records import record
from planner.base.text import chance as percent
from planner.base.text import count, limit, printable
from planner.base.units import DAY, GIB
from planner.base.version import __version__
from planner.launch.job import Job
from planner.launch.option_table import shipped_rows
from planner.launch.target import Argument, Draft, Process, Target, Variable
from planner.optimize.result_columns import fit_probability
from planner.question.terms import plain_values, terms_of

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
    "UCX_TLS": "how the cache is sent between workers",
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
    if not job.is_training or target.name in _NOT_PYTORCH:
        return []
    memory = job.profile.memory
    if memory.fragmentation > _PACKED:
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
    reason = "the optimizer runs on all cores of the host; launchers give each process one"
    return [Assumed(name="OMP_NUM_THREADS", text=text, reason=reason, is_shell=True)]


def _rate(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:,.4g} GB/s"


WRITTEN = "Written by planner"
"""How a line of each file begins that is written here."""

_WIDTH = 96
_MEMORY = "peak_memory"
_PREDICTED = shipped_rows("options/predicted.csv")
"""What a heading tells of the prediction of each workload, in order."""
_SUFFIXES = {"s": "_s", "d": "_days", "GiB": "_gib", "USD": "_usd"}
_SCALES = {"_gib": GIB, "_days": DAY}
GIVEN = frozenset(
    {"NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "PORT", "COPY", "HOST_ADDRESS"}
)
"""Variables that wrappers set themselves."""


def one_line(text: str) -> str:
    """A text that cannot end a comment."""
    return " ".join(printable(text).split())


def comment(lines: Iterable[str]) -> list[str]:
    """Lines of a comment of a shell or of YAML, folded; an empty one stays."""
    found = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" ")))
        folded = wrap(
            one_line(line),
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "  " * bool(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        found += [f"# {part}" for part in folded] or ["#"]
    return found


def heading(
    target: Target,
    job: Job,
    draft: Draft,
    processes: Sequence[Process],
    how: Sequence[str],
    also: Sequence[str] = (),
) -> list[str]:
    """Comment lines: the plan, what was predicted, what is not said here, what the user does.

    ``how`` says how the file is started, ``also`` what else it asks of the user.
    """
    lines = [
        f"{job.model.name} on {count(job.num_gpus)} x {job.gpu.name}, started by {target.title}.",
        f"{WRITTEN} {__version__} for {target.version}; plan.toml beside it is the plan.",
    ]
    lines += _part("Plan", [_settings(job)])
    lines += _part("Predicted, with the interval that holds 90 % of published runs", _numbers(job))
    lines += _part("Links assumed", fabric(job))
    lines += _part(f"{target.title} cannot express", map(str, draft.unexpressed))
    lines += _part("Left to you or the framework", map(str, draft.left))
    notes = (*draft.notes, *(note for process in processes for note in process.notes))
    lines += _part("Notes", dict.fromkeys(notes))
    asked = [
        f"{one.name}: {one.meaning}"
        + ("" if one.default is None else f" ({one.default} by default)")
        for one in variables_of(processes)
    ]
    lines += _part("What you set", [*asked, *also])
    lines += ["", *how] if how else []
    return comment(lines)


def variables_of(processes: Iterable[Process]) -> tuple[Variable, ...]:
    """What only the user knows, each once."""
    found: dict[str, Variable] = {}
    for process in processes:
        for argument in arguments_of(process):
            for word in argument.words:
                if isinstance(word, Variable) and not is_given(word.name):
                    found.setdefault(word.name, word)
    return tuple(found.values())


def arguments_of(process: Process) -> tuple[Argument, ...]:
    """All arguments of a process, its launcher's too."""
    return (*process.launcher_arguments, *process.arguments, *process.follower_arguments)


def is_given(name: str) -> bool:
    """Whether wrappers set a variable: places in the job and addresses of its processes."""
    stem, _, index = name.rpartition("_")
    return name in GIVEN or (index.isdecimal() and stem.endswith(("_URL", "_HOST")))


def _part(title: str, lines: Iterable[str]) -> list[str]:
    inside = [f"  {line}" for line in lines if line]
    return ["", f"{title}:", *inside] if inside else []


def _settings(job: Job) -> str:
    usual = plain_values(job.workload)
    said = (
        f"{name}={_word(value)}"
        for name, value in job.pinned.parameters.items()
        if value is not None and value != usual.get(name)
    )
    return " ".join(said)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(job: Job) -> list[str]:
    terms = terms_of(job.workload, "result")
    found = []
    most = float(job.gpu.allocatable_memory / GIB)
    for name in (row["result"] for row in _PREDICTED if row["workload"] == job.workload):
        term = terms.get(name)
        if term is None:
            continue
        suffix = _SUFFIXES.get(term.unit, "")
        scale = _SCALES.get(suffix, 1.0)
        value, low, high = (job.row.get(f"{name}{end}{suffix}") for end in ("", "_low", "_high"))
        if value is None:
            continue
        words = f"{name}: {limit(float(value) * scale, term.type)}"
        if name == _MEMORY:
            words += f" of {limit(most * GIB, term.type)}"
        if low is not None and high is not None and not (name == _MEMORY and high > most):
            ends = (limit(float(end) * scale, term.type) for end in (low, high))
            words += f" ({' to '.join(ends)})"
        found.append(words)
    chance = fit_probability(job.row)
    if math.isfinite(chance):
        found.append(f"it fits, {percent(chance)} likely")
    return found
