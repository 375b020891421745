"""Time of each step by operator: formulas with their numbers and the sources of these."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property

from planner.base.records import record
from planner.estimators.kernel_work import COMPUTE, HOST, LINK
from planner.formulas import collectives, pipeline, rollout, roofline
from planner.optimize.source import Candidates
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import Plan
from planner.workloads.timed_steps import RepeatedWork, TimedPart, with_ledger
from planner.workloads.workload import Evaluation

_THOUSANDS = ("", "k", "M", "G", "T", "P", "E")


def format_quantity(value: float, unit: str) -> str:
    """Format a value in SI units with three digits and a prefix.

    >>> (format_quantity(3.12e14, "FLOP/s"), format_quantity(313e6, "byte"),
    ... format_quantity(0.78, "1"))
    ('312 TFLOP/s', '313 MB', '0.78')
    """
    if unit == "s":
        return format_seconds(value)
    if unit in ("1", "count"):
        return f"{value:,.0f}" if unit == "count" else f"{value:.3g}"
    short = unit.replace("byte", "B")
    power = min(max(int(math.log10(value) // 3), 0), len(_THOUSANDS) - 1) if value > 0 else 0
    scaled = value / 1000.0**power
    digits = f"{scaled:.0f}" if scaled >= 100 else f"{scaled:.3g}"
    return f"{digits} {_THOUSANDS[power]}{short}"


def format_seconds(value: float) -> str:
    """Format a time in microseconds, milliseconds or seconds.

    >>> format_seconds(6.71e-6), format_seconds(0.00328), format_seconds(4.4926)
    ('6.71 us', '3.28 ms', '4.49 s')
    """
    scales = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"))
    scale, unit = next(((s, u) for limit, s, u in scales if value < limit), (1.0, "s"))
    scaled = value * scale
    return f"{scaled:,.0f} {unit}" if scaled >= 100 else f"{scaled:.3g} {unit}"


def format_product(sizes: Sequence[float]) -> str:
    """``8,192 x 5,504 x 1,024``."""
    return " x ".join(f"{size:,.4g}" if size < 1000 else f"{size:,.0f}" for size in sizes)


WAITING = "waiting"
"""The bound of a part in which a GPU waits for other stages or nodes."""

UNITS: Mapping[str, str] = {
    **dict.fromkeys(("flops", "paid_flops"), "FLOP"),
    **dict.fromkeys(("num_bytes", "volume"), "byte"),
    **dict.fromkeys(("memory_bandwidth", "bandwidth", "peak_bandwidth"), "byte/s"),
    **dict.fromkeys((*terms_about("matrix_product"), "group_size", "ranks_in_domain"), "count"),
    **dict.fromkeys(("compute_fraction", "bandwidth_fraction", "sharpness"), "1"),
    "peak_flops": "FLOP/s",
    "latency": "s",
}
"""The SI unit of each figure."""


@record(kw_only=True)
class Formula:
    """A formula: its ``function``, its ``title``, and a function that writes it with numbers."""

    title: str
    function: Callable[..., object]
    words: Callable[[RepeatedWork], str]

    @property
    def function_path(self) -> str:
        """The dotted name of its function."""
        return f"{self.function.__module__}.{self.function.__name__}"

    @property
    def references(self) -> list[str]:
        """The works that its docstring cites."""
        return cited_references(self.function)


@cache
def cited_references(function: Callable[..., object]) -> list[str]:
    """Return the works that the docstring of a formula cites, one text each."""
    text = inspect.getdoc(function) or ""
    _, heading, listed = text.partition("References\n----------\n")
    if not heading:
        return []
    lines = " ".join(line.strip() for line in listed.splitlines())
    return [entry.partition("] ")[2].strip() for entry in lines.split(".. [") if entry.strip()]


def _format_figures(done: RepeatedWork, *names: str) -> list[str]:
    return [format_quantity(done.figure(name), UNITS[name]) for name in names]


def _roofline(done: RepeatedWork) -> str:
    """Format the roofline formula of a kernel time with its numbers (FLOP, bytes, latency)."""
    paid, peak, e, moved, w, b, t0, q = _format_figures(
        done, "paid_flops", "peak_flops", "compute_fraction", "num_bytes", "memory_bandwidth",
        "bandwidth_fraction", "latency", "sharpness",
    )  # fmt: skip
    joined = f"(({paid}/({peak} x {e}))^{q} + ({moved}/({w} x {b}))^{q})^(1/{q})"
    return f"{_sizes(done)}{t0} + {joined}"


def _table(done: RepeatedWork) -> str:
    flops, peak, moved = _format_figures(done, "flops", "peak_flops", "num_bytes")
    share = done.figure("flops") / (done.figure("peak_flops") * done.once)
    return f"{_sizes(done)}measured; {flops}/({peak} x {share:.3g}); moves {moved}"


def _memory(done: RepeatedWork) -> str:
    moved, w, b, t0 = _format_figures(
        done, "num_bytes", "memory_bandwidth", "bandwidth_fraction", "latency"
    )
    return f"{t0} + {moved}/({w} x {b})"


def _cache(done: RepeatedWork) -> str:
    """Format the formula for the time to read a KV cache with its numbers."""
    moved, w, b, flops, peak, e, t0 = _format_figures(
        done, "num_bytes", "memory_bandwidth", "bandwidth_fraction", "flops", "peak_flops",
        "compute_fraction", "latency",
    )  # fmt: skip
    return f"{t0} + max({moved}/({w} x {b}), {flops}/({peak} x {e}))"


def _collective(done: RepeatedWork) -> str:
    """Format the time of a collective as volume over bandwidth plus start-up and waiting time."""
    size, local = done.figure("group_size"), done.figure("ranks_in_domain")
    if size <= 1:
        return "a group of one"
    volume, bandwidth = _format_figures(done, "volume", "bandwidth")
    waits = format_seconds(max(done.once - done.figure("volume") / done.figure("bandwidth"), 0.0))
    return (
        f"{volume}/({bandwidth}) + {waits} to start and of small messages; "
        f"{size:,.0f} ranks, {local:,.0f} in a domain"
    )


def _message(done: RepeatedWork) -> str:
    volume, bandwidth = _format_figures(done, "volume", "bandwidth")
    waits = format_seconds(max(done.once - done.figure("volume") / done.figure("bandwidth"), 0.0))
    return f"{waits} + {volume}/({bandwidth})"


def _rate(done: RepeatedWork) -> str:
    flops, peak, e = _format_figures(done, "flops", "peak_flops", "compute_fraction")
    return f"{flops}/({peak} x {e})"


def _copy(done: RepeatedWork) -> str:
    moved, bandwidth = _format_figures(done, "num_bytes", "bandwidth")
    start = f"{format_seconds(done.figure('latency'))} + " if "latency" in done.work.figures else ""
    return f"{start}{moved}/({bandwidth})"


def _sizes(done: RepeatedWork) -> str:
    names = [name for name in terms_about("matrix_product") if name in done.work.figures]
    return f"{format_product([done.figure(name) for name in names])}: " if names else ""


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
"""What `planner.estimators.kernel_work.Work.formula` stands for."""


@record(kw_only=True)
class IdlePart:
    """A part of a step without work of its own: its bound and its reason.

    ``keys``: the numbers of the framework's or engine's profile that determine it.
    """

    bounds: str
    reason: str
    function: Callable[..., object] | None = None
    keys: tuple[str, ...] = ()


IDLE_PARTS: Mapping[str, IdlePart] = {
    "pipeline_bubble": IdlePart(
        bounds=WAITING,
        reason="stages wait for the first micro-batches to come and the last to go",
        function=pipeline.bubble_time_1f1b,
    ),
    "flops_efficiency": IdlePart(
        bounds=COMPUTE,
        reason="as long as its FLOPs take at the specified share of the peak",
    ),
    "slow_nodes": IdlePart(
        bounds=WAITING,
        reason="all nodes wait for the slowest, the more the larger the run",
        function=collectives.large_scale_slowdown_time,
    ),
    "untuned": IdlePart(
        bounds=WAITING,
        reason="untuned set-ups were measured to take this much longer (--tuned: without)",
    ),
    "launch_wait": IdlePart(
        bounds=HOST,
        reason="the GPU waits for the host to launch kernels",
        keys=("execution.layer_launch_time", "compilation.layer_launch_time",
              "execution.expert_host_wait",
              "execution.prefill_launch_time", "execution.decode_launch_time",
              "execution.latent_launch_time", "execution.recurrent_launch_time"),
    ),
    "overhead": IdlePart(
        bounds=HOST,
        reason="the host prepares the step",
        keys=("execution.step_overhead", "execution.micro_batch_overhead",
              "execution.sequence_overhead"),
    ),
    "front_end_wait": IdlePart(
        bounds=HOST,
        reason="API servers take requests and stream answers (--api-servers, --stream-interval)",
        keys=("front_end.token_time", "front_end.message_time"),
    ),
    "offload": IdlePart(
        bounds=HOST,
        reason="copies to and from the host that computation does not hide",
        function=collectives.exposed_time,
        keys=("offloading.host_link_fraction", "offloading.hidden"),
    ),
    "transfer_wait": IdlePart(
        bounds=HOST,
        reason="copies of offloaded weights and cache that computation does not hide",
        keys=("execution.host_link_fraction", "execution.hidden_copies"),
    ),
    "switch": IdlePart(
        bounds=HOST,
        reason="states of the trainer go to host memory and come back, the engine sleeps and wakes",
        keys=("offloading.host_link_fraction", "rollouts.sleep_time"),
    ),
    "sync": IdlePart(
        bounds=LINK,
        reason="new weights go to the engine at the rate of published transfers",
        function=rollout.weight_sync_time,
    ),
    "reward": IdlePart(bounds=HOST, reason="rewards that generation does not hide"),
    "wait": IdlePart(
        bounds=HOST,
        reason="the framework's own time of each step",
        keys=("rollouts.step_overhead",),
    ),
}  # fmt: skip
"""The parts of steps in which the GPU waits."""


_DEFAULT_CLUSTER = "links of the GPU; network latency and efficiency as of InfiniBand"
_OF_KERNELS = ("compute_fraction", "bandwidth_fraction", "latency", "sharpness")


@record()
class SpecSources:
    """The specs of a plan of one configuration, with the source of each number."""

    plan: Plan

    def source_of_key(self, key: str) -> str:
        """The source of a number such as ``gpu peak_flops.bf16``; empty: unknown."""
        kind, _, path = key.partition(" ")
        return self._origins.get(kind, {}).get(path, "")

    @property
    def profile_kind(self) -> str:
        """``framework`` or ``engine``."""
        return self.plan.workload.profile_kind

    @cached_property
    def _origins(self) -> Mapping[str, Mapping[str, str]]:
        """Return the provenance of each number of GPU, profile and cluster, by spec and key."""
        catalogue = Catalogue(self.plan.request.specs)
        (source,) = self.plan.problem.sources
        words = self.plan.words
        gpu = words.get("gpu", {}).get(source.gpu, source.gpu)
        profile = words.get(self.profile_kind, {}).get(source.profile, source.profile)
        cluster = self.plan.request.cluster
        return {
            "gpu": catalogue.load_gpu(gpu).provenance,
            self.profile_kind: catalogue.load_profile(self.profile_kind, profile).provenance,
            "cluster": catalogue.load_cluster(cluster).provenance
            if cluster
            else defaultdict(lambda: _DEFAULT_CLUSTER),
        }

    def spec_key(self, done: RepeatedWork, name: str) -> str:
        """Return the spec key of a number in a kernel's time; empty if model and layout set it.

        A fraction of peak rate in the result is the fraction of the spec times factors for clock
        and software.
        """
        gpu = self.plan.problem.inputs.machine.gpu
        if name == "peak_flops":
            peak = done.figure(name)
            matching = [str(key) for key, rate in gpu.peak_flops.items() if rate == peak]
            if not matching:
                return ""
            # Of precisions with the same peak that of the kernel, else the last that is listed.
            nearest = next((name for name in matching if name in done.work.key), matching[-1])
            return f"gpu peak_flops.{nearest}"
        if name == "memory_bandwidth":
            return "gpu memory_bandwidth"
        if name in _OF_KERNELS:
            return f"gpu {done.work.key}.{name}"
        if name in ("bandwidth", "peak_bandwidth"):
            if done.work.formula == "copy":
                return "gpu host.bandwidth"
            is_network = done.terms.get("network", 0.0) > 0
            if self.plan.request.cluster:
                return f"cluster scale_{'out' if is_network else 'up'}.bandwidth"
            return "gpu scale_out_bandwidth" if is_network else "gpu scale_up.bandwidth"
        return ""


OTHER = "other"
"""The bound of a part without recorded work."""


@record(kw_only=True)
class ExplainedPart:
    """An operator or another part of a step, with its bounds.

    Parameters
    ----------
    part : name, module and time of the part
    bounds : seconds by bound; a kernel counts in full for its largest term [s]
    at_peak : seconds at the peaks of GPU and links [s]
    """

    part: TimedPart
    bounds: Mapping[str, float]
    at_peak: float

    @property
    def bound(self) -> str:
        """The bound of most of the part's time."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def roofline_share(self) -> float:
        """Time at the peaks over the time of the part; 0: no peak bounds the part."""
        return self.at_peak / self.part.seconds if self.part.seconds else 0.0

    @property
    def title(self) -> str:
        """Module and name of the part in words."""
        name, module = self.part.name.replace("_", " "), self.part.module.replace("_", " ")
        return name if not module or module in name else f"{module} {name}"

    @property
    def waits(self) -> str:
        """Reason of a part without work, such as a wait; empty: the part has work."""
        wait = IDLE_PARTS.get(self.part.part)
        return wait.reason if wait is not None and not self.part.done else ""


@record(kw_only=True)
class ExplainedStep:
    """One kind of step with its parts and bounds.

    Parameters
    ----------
    name : kind of step
    seconds : time of the step [s]
    parts : parts, longest first
    software : profile of its efficiencies; empty: that of the plan
    """

    name: str
    seconds: float
    parts: tuple[ExplainedPart, ...]
    software: str = ""

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Return the time of the step by bound (memory, compute, ...) [s], largest first."""
        sums: dict[str, float] = {}
        for part in self.parts:
            for name, seconds in part.bounds.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @property
    def bound(self) -> str:
        """The bound of most of the step's time."""
        return next(iter(self.bounds))

    @property
    def roofline_share(self) -> float:
        """Time at the peaks over the time of the step."""
        return sum(part.at_peak for part in self.parts) / self.seconds

    @cached_property
    def terms(self) -> dict[str, float]:
        """Return the time of the step by term of its formulas [s]."""
        sums: dict[str, float] = {}
        for part in self.parts:
            for name, seconds in part.part.terms.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return sums


def explain_steps(plan: Plan, evaluation: Evaluation) -> list[ExplainedStep]:
    """Predict the plan again with a record of its kernel work; return its steps part by part."""
    timed = plan.workload.timed(evaluate_with_ledger(evaluation))
    parts = {name: [_part(part) for part in step.parts] for name, step in timed.items()}
    return [
        ExplainedStep(
            name=name,
            seconds=step.seconds,
            parts=tuple(
                sorted(_parts_with_bounds(parts, name), key=lambda part: -part.part.seconds)
            ),
            software=step.software,
        )
        for name, step in timed.items()
    ]


def _parts_with_bounds(
    kinds: Mapping[str, Sequence[ExplainedPart]], kind: str
) -> Iterator[ExplainedPart]:
    """Yield the parts of a kind of step; a part like another step takes the bounds of that step."""
    for part in kinds[kind]:
        direct_parts = [each for each in kinds.get(part.part.like, ()) if not each.part.like]
        total = sum(each.part.seconds for each in direct_parts)
        bounds: dict[str, float] = {}
        for name, seconds in (item for each in direct_parts for item in each.bounds.items()):
            bounds[name] = bounds.get(name, 0.0) + part.part.seconds * seconds / total
        yield replace(part, bounds=bounds or part.bounds)


def evaluate_with_ledger(evaluation: Evaluation) -> Candidates:
    """The candidates of an evaluation, judged again with a ledger."""
    source = evaluation.source.changed(with_ledger)
    return source.judged(evaluation.candidates.configurations)


def _part(part: TimedPart) -> ExplainedPart:
    """Sum the time of a part of a step by bound [s] and its time at hardware peaks [s]."""
    bounds: dict[str, float] = {}
    for done in part.done:
        name = main_bound_of_work(done)
        bounds[name] = bounds.get(name, 0.0) + done.times * done.once
    if not bounds:
        wait = IDLE_PARTS.get(part.part)
        bounds = {wait.bounds if wait else OTHER: part.seconds}
    at_peak = sum(done.times * done.at_peak for done in part.done)
    return ExplainedPart(part=part, bounds=bounds, at_peak=at_peak)


def main_bound_of_work(done: RepeatedWork) -> str:
    """The bound of a piece of work."""
    terms = done.terms
    return max(terms, key=lambda name: terms[name]) if terms else OTHER


def step_dict(step: ExplainedStep, sources: SpecSources) -> dict[str, object]:
    """Return the step as a dictionary for JSON; times in seconds."""
    return {
        "step": step.name,
        "time_s": step.seconds,
        "of_roofline": step.roofline_share,
        "bounds_s": step.bounds,
        "terms_s": step.terms,
        "operators": [_part_dict(part, step, sources) for part in step.parts],
    }


def _part_dict(part: ExplainedPart, step: ExplainedStep, sources: SpecSources) -> dict[str, object]:
    """Return a part of a step as a dictionary for JSON; times in seconds, shares of the step."""
    wait = IDLE_PARTS.get(part.part.part) if part.waits else None
    return {
        "operator": part.part.name,
        "module": part.part.module,
        "part": part.part.part,
        "time_s": part.part.seconds,
        "share": part.part.seconds / step.seconds,
        "bound": part.bound,
        "bounds_s": dict(part.bounds),
        "of_roofline": part.roofline_share,
        "terms_s": dict(part.part.terms),
        "waits": part.waits,
        "waits_of": [*_profile_keys(wait.keys, sources)] if wait else [],
        "formula": wait.function.__name__ if wait and wait.function else "",
        "references": cited_references(wait.function) if wait and wait.function else [],
        "work": [_work_dict(done, sources) for done in part.part.done],
    }


def _profile_keys(keys: Iterable[str], sources: SpecSources) -> Iterator[str]:
    """Keys of the specs of the numbers that the profile has."""
    return (
        named for key in keys if sources.source_of_key(named := f"{sources.profile_kind} {key}")
    )


def spec_numbers(steps: Iterable[ExplainedStep], sources: SpecSources) -> dict[str, str]:
    """Return the key of each spec number that determines the steps, with its source."""
    sources_by_key: dict[str, str] = {}
    for part in (part for step in steps for part in step.parts):
        for done in part.part.done:
            keys = (sources.spec_key(done, name) for name in done.work.figures)
            sources_by_key |= {key: sources.source_of_key(key) for key in keys if key}
        if part.waits:
            profile_keys = _profile_keys(IDLE_PARTS[part.part.part].keys, sources)
            sources_by_key |= {key: sources.source_of_key(key) for key in profile_keys}
    return sources_by_key


def _work_dict(done: RepeatedWork, sources: SpecSources) -> dict[str, object]:
    """Return one piece of work as a dictionary for JSON: formula, time [s], bound and figures."""
    formula = FORMULAS[done.work.formula]
    figures = []
    for name in done.work.figures:
        key = sources.spec_key(done, name)
        figures.append(
            {"figure": name, "value": done.figure(name), "unit": UNITS[name], "key": key}
        )
    return {
        "kind": formula.title,
        "formula": formula.function_path,
        "references": formula.references,
        "words": formula.words(done),
        "time_s": done.once,
        "times": done.times,
        "at_peak_s": done.at_peak,
        "bound": main_bound_of_work(done),
        "terms_s": done.terms,
        "figures": figures,
    }
