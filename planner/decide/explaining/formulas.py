"""The formulas behind times: where they stand, what they cite, and how they read in numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from planner.base.records import record
from planner.estimators.ledger import HOST
from planner.formulas import collectives, overlap, pipeline, roofline
from planner.question.terms import terms_about
from planner.workloads.timed import Done

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")


def quantity(value: float, unit: str) -> str:
    """A value in SI units with three digits and a prefix.

    >>> quantity(3.12e14, "FLOP/s"), quantity(313e6, "byte"), quantity(0.78, "1")
    ('312 TFLOP/s', '313 MB', '0.78')
    """
    if unit == "s":
        return seconds(value)
    if unit in ("1", "count"):
        return f"{value:,.0f}" if unit == "count" else f"{value:.3g}"
    short = unit.replace("byte", "B")
    power = min(max(int(math.log10(value) // 3), 0), len(_THOUSANDS) - 1) if value > 0 else 0
    scaled = value / 1000.0**power
    digits = f"{scaled:.0f}" if scaled >= 100 else f"{scaled:.3g}"
    return f"{digits} {_THOUSANDS[power]}{short}"


def seconds(value: float) -> str:
    """A time from microseconds to seconds.

    >>> seconds(6.71e-6), seconds(0.00328), seconds(4.4926)
    ('6.71 us', '3.28 ms', '4.49 s')
    """
    scales = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"))
    scale, unit = next(((s, u) for limit, s, u in scales if value < limit), (1.0, "s"))
    scaled = value * scale
    return f"{scaled:,.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"


def product_of(sizes: Sequence[float]) -> str:
    """``8,192 x 5,504 x 1,024``."""
    return " x ".join(f"{size:,.4g}" if size < 1000 else f"{size:,.0f}" for size in sizes)


WAITING = "waiting"
"""What bounds a part in which a GPU waits for other stages or nodes."""

UNITS: Mapping[str, str] = {
    **dict.fromkeys(("flops", "paid_flops"), "FLOP"),
    **dict.fromkeys(("num_bytes", "volume"), "byte"),
    **dict.fromkeys(("memory_bandwidth", "bandwidth", "peak_bandwidth"), "byte/s"),
    **dict.fromkeys((*terms_about("product"), "group_size", "ranks_in_domain"), "count"),
    **dict.fromkeys(("compute_fraction", "bandwidth_fraction", "sharpness"), "1"),
    "peak_flops": "FLOP/s",
    "latency": "s",
}
"""The SI unit of each figure."""


@record(kw_only=True)
class Formula:
    """A formula: the ``function`` that has it, its ``title``, and how it reads with numbers."""

    title: str
    function: Callable[..., object]
    words: Callable[[Done], str]

    @property
    def place(self) -> str:
        """The dotted name of its function."""
        return f"{self.function.__module__}.{self.function.__name__}"

    @property
    def references(self) -> list[str]:
        """The works that its docstring cites."""
        return references_of(self.function)


@cache
def references_of(function: Callable[..., object]) -> list[str]:
    """The works that the docstring of a formula cites, one text each."""
    text = inspect.getdoc(function) or ""
    _, found, listed = text.partition("References\n----------\n")
    if not found:
        return []
    lines = " ".join(line.strip() for line in listed.splitlines())
    return [words.partition("] ")[2].strip() for words in lines.split(".. [") if words.strip()]


def _told(done: Done, *names: str) -> list[str]:
    return [quantity(done.figure(name), UNITS[name]) for name in names]


def _roofline(done: Done) -> str:
    paid, peak, e, moved, w, b, t0, q = _told(
        done, "paid_flops", "peak_flops", "compute_fraction", "num_bytes", "memory_bandwidth",
        "bandwidth_fraction", "latency", "sharpness",
    )  # fmt: skip
    joined = f"(({paid}/({peak} x {e}))^{q} + ({moved}/({w} x {b}))^{q})^(1/{q})"
    return f"{_sizes(done)}{t0} + {joined}"


def _table(done: Done) -> str:
    flops, peak, moved = _told(done, "flops", "peak_flops", "num_bytes")
    share = done.figure("flops") / (done.figure("peak_flops") * done.once)
    return f"{_sizes(done)}measured; {flops}/({peak} x {share:.3g}); moves {moved}"


def _memory(done: Done) -> str:
    moved, w, b, t0 = _told(done, "num_bytes", "memory_bandwidth", "bandwidth_fraction", "latency")
    return f"{t0} + {moved}/({w} x {b})"


def _cache(done: Done) -> str:
    moved, w, b, flops, peak, e, t0 = _told(
        done, "num_bytes", "memory_bandwidth", "bandwidth_fraction", "flops", "peak_flops",
        "compute_fraction", "latency",
    )  # fmt: skip
    return f"{t0} + max({moved}/({w} x {b}), {flops}/({peak} x {e}))"


def _collective(done: Done) -> str:
    size, local = done.figure("group_size"), done.figure("ranks_in_domain")
    if size <= 1:
        return "a group of one"
    volume, bandwidth = _told(done, "volume", "bandwidth")
    waits = seconds(max(done.once - done.figure("volume") / done.figure("bandwidth"), 0.0))
    return (
        f"{volume}/({bandwidth}) + {waits} to start and of small messages; "
        f"{size:,.0f} ranks, {local:,.0f} in a domain"
    )


def _message(done: Done) -> str:
    volume, bandwidth = _told(done, "volume", "bandwidth")
    waits = seconds(max(done.once - done.figure("volume") / done.figure("bandwidth"), 0.0))
    return f"{waits} + {volume}/({bandwidth})"


def _rate(done: Done) -> str:
    flops, peak, e = _told(done, "flops", "peak_flops", "compute_fraction")
    return f"{flops}/({peak} x {e})"


def _copy(done: Done) -> str:
    moved, bandwidth = _told(done, "num_bytes", "bandwidth")
    return f"{moved}/({bandwidth})"


def _sizes(done: Done) -> str:
    names = [name for name in terms_about("product") if name in done.work.figures]
    return f"{product_of([done.figure(name) for name in names])}: " if names else ""


FORMULAS: Mapping[str, Formula] = {
    "product": Formula(title="matrix product", function=roofline.roofline_time, words=_roofline),
    "table": Formula(
        title="measured matrix product", function=roofline.roofline_time, words=_table
    ),
    "experts": Formula(
        title="products of experts", function=roofline.roofline_time, words=_roofline
    ),
    "attention": Formula(title="fused attention", function=roofline.roofline_time, words=_roofline),
    "memory": Formula(
        title="memory-bound kernel", function=roofline.memory_bound_time, words=_memory
    ),
    "cache": Formula(
        title="attention over the cache", function=roofline.roofline_time, words=_cache
    ),
    "collective": Formula(
        title="collective", function=collectives.collective_time, words=_collective
    ),
    "message": Formula(title="message", function=collectives.point_to_point_time, words=_message),
    "rate": Formula(title="FLOPs at a rate", function=roofline.gemm_flops, words=_rate),
    "copy": Formula(
        title="copy to or from the host", function=collectives.point_to_point_time, words=_copy
    ),
}
"""What `planner.estimators.ledger.Work.formula` stands for."""


@record(kw_only=True)
class Wait:
    """A part of a step without work of its own: what ``bounds`` it, why it is there.

    ``keys``: the numbers of the framework's or engine's profile that make it.
    """

    bounds: str
    words: str
    function: Callable[..., object] | None = None
    keys: tuple[str, ...] = ()


WAITS: Mapping[str, Wait] = {
    "pipeline_bubble": Wait(
        bounds=WAITING,
        words="stages wait for the first micro-batches to come and the last to go",
        function=pipeline.bubble_time,
    ),
    "slow_nodes": Wait(
        bounds=WAITING,
        words="all nodes wait for the slowest, the more the larger the run",
        function=collectives.large_scale_wait,
    ),
    "launch_wait": Wait(
        bounds=HOST,
        words="the GPU waits for the host to launch kernels",
        keys=("execution.layer_launch_time", "compilation.layer_launch_time",
              "execution.expert_host_wait",
              "execution.prefill_launch_time", "execution.decode_launch_time",
              "execution.latent_launch_time", "execution.recurrent_launch_time"),
    ),
    "overhead": Wait(
        bounds=HOST,
        words="the host prepares the step",
        keys=("execution.step_overhead", "execution.micro_batch_overhead",
              "execution.sequence_overhead"),
    ),
    "offload": Wait(
        bounds=HOST,
        words="copies to and from the host that computation does not hide",
        function=overlap.exposed_time,
        keys=("offloading.host_link_fraction", "offloading.hidden"),
    ),
    "transfer_wait": Wait(
        bounds=HOST,
        words="copies of offloaded weights and cache that computation does not hide",
        keys=("execution.host_link_fraction", "execution.hidden_copies"),
    ),
}  # fmt: skip
"""The parts of steps in which the GPU waits."""
