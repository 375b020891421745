"""Times of single operators, as in estimates: seconds, rates, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.csv_cells import Value
from planner.base.enums import AttentionKernels, ComputePrecision, Fp8Recipe
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.decide.explain.step_breakdown import FORMULAS, main_bound_of_work
from planner.errors import SearchSpaceError
from planner.estimators.attention_core import fused_work, masked_work
from planner.estimators.kernel_work import KernelWork, Ledger, rates
from planner.estimators.machine import CommunicationGroup, Machine
from planner.formulas.attention import mean_keys_per_query
from planner.question.names import (
    ALGORITHM_BANDWIDTH_GB_PER_S,
    BANDWIDTH_GB_PER_S,
    BOUND,
    BUS_BANDWIDTH_GB_PER_S,
    CLUSTER,
    COLUMNS,
    FRAMEWORK,
    GPU,
    NUM_BYTES,
    NUM_GPUS,
    OF_PEAK,
    OF_ROOFLINE,
    OPERATOR,
    ROWS,
    TENSORS,
    TFLOPS,
    TIME,
)
from planner.question.parse_values import (
    parse_choice,
    parse_int,
    parse_value,
    parse_values,
    split_items,
)
from planner.question.request import ALL, Answers
from planner.question.terms import glossary, terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.framework import FrameworkProfile
from planner.specs.quantization import training_format
from planner.workloads.assumptions import PlanNotes
from planner.workloads.priced_hardware import hardware, powers_of_two_counts
from planner.workloads.timed_steps import RepeatedWork

_NUMBER_BYTES = 2.0
FRAMEWORK_DEFAULT_KERNEL = AttentionKernel.AUTO.word
"""The word for the attention kernels, or the recipe of fp8, that a framework or the GPU has."""

# As many as query heads; those of a node.
_OPEN = ("key_value_heads", "num_gpus")
_FORMATS = ("precision", "fp8_recipe")


@record(kw_only=True)
class OperatorSizes:
    """Operators of a kind that differ only in sizes: equally long arrays by name, and choices.

    ``framework``: framework of the kernels; None: kernels of the GPU's efficiencies.
    """

    machine: Machine
    sizes: Mapping[str, FloatArray]
    choices: Mapping[str, str] = field(default_factory=dict)
    framework: FrameworkProfile | None = None

    def __getitem__(self, name: str) -> FloatArray:
        return self.sizes[name]

    @property
    def format(self) -> CodeArray:
        """Return the number format of matrix products, a code of ``TRAINING_FORMATS``."""
        precision = ComputePrecision[self.choices["precision"].upper()]
        recipe = Fp8Recipe[self.choices["fp8_recipe"].upper()]
        if precision is not ComputePrecision.FP8:
            return np.asarray(precision)
        if recipe is Fp8Recipe.AUTO and self.framework is not None:
            recipe = self.framework.recipe_on(scales_groups=self.machine.gpu.scales_groups)
        if recipe is Fp8Recipe.AUTO:
            return np.asarray(precision)
        return training_format(np.asarray(precision), np.asarray(recipe))


@record()
class OperatorKind:
    """A kind of operator: function of its time [s], and names of its sizes and choices.

    ``sizes`` are required if the table of terms has no default, ``choices`` are the parameters
    that choose its kernel. ``crosses``: it goes between GPUs, of a group of ``num_gpus`` if it
    ``is_group``.
    """

    seconds: Callable[[OperatorSizes], FloatArray]
    sizes: tuple[str, ...]
    choices: tuple[str, ...] = ()
    crosses: bool = False
    is_group: bool = False

    @property
    def required(self) -> list[str]:
        """The sizes that have no default."""
        return [name for name in self.sizes if not glossary()[name].default and name not in _OPEN]


def _gemm(case: OperatorSizes) -> FloatArray:
    rows, depth = case["rows"], case["depth"]
    product = case.machine.gemm_time(rows, case["columns"], depth, case.format)
    return product + case.machine.cast_time(rows * depth, case.format)


def _grouped_gemm(case: OperatorSizes) -> FloatArray:
    """Return the time of the grouped matrix products of local experts, with casts to 8 bit [s]."""
    pairs, depth, width = case["rows"], case["depth"], case["columns"]
    products = case.machine.grouped_gemm_time(
        pairs, case["local_experts"], depth, width, case["matrices"], case.format
    )
    return products + case.machine.expert_cast_time(pairs * (depth + width), case.format)


def _attention(case: OperatorSizes) -> FloatArray:
    """Return the time of a fused attention kernel for each combination of sizes [s]."""
    length, sequences = case["sequence_length"], case["sequences"]
    head_dim = int(case["head_dim"][0])
    attention_kernels = (
        case.framework.execution.attention_kernels if case.framework else AttentionKernels.NATIVE
    )
    kernel = AttentionKernel[case.choices["attention_kernel"].upper()]
    rate, _ = rates(case.machine.gpu.efficiency, np.asarray(kernel), attention_kernels)
    flops, moved = fused_work(
        tokens=sequences * length,
        keys=mean_keys_per_query(
            sequence_length=length,
            sliding_window=length,
            causal=kernel is not AttentionKernel.MASKED,
        ),
        heads=case["heads"],
        key_value_heads=case["key_value_heads"],
        qk_dim=head_dim,
        v_dim=head_dim,
    )
    if kernel is AttentionKernel.MASKED:
        pairs = sequences * length * length * case["heads"]
        flops, moved, head_dim = masked_work(flops, moved, pairs, head_dim=head_dim)
    return case.machine.kernels.attention(
        flops, moved, sequences, case["heads"], length, head_dim, rate=rate
    )


def _elementwise(case: OperatorSizes) -> FloatArray:
    passes = case.framework.execution.elementwise_passes if case.framework else 1.0
    numbers = case["rows"] * case["columns"]
    return case.machine.memory_time(numbers * (_NUMBER_BYTES * case["tensors"] * passes))


def _collective(name: str) -> Callable[[OperatorSizes], FloatArray]:
    """Return a function that predicts the time of this collective for the sizes of a case [s]."""

    def seconds(case: OperatorSizes) -> FloatArray:
        group = CommunicationGroup(size=case["num_gpus"], stride=case["stride"])
        return case.machine.collective(name, case["num_bytes"], group)

    return seconds


def _host_copy(case: OperatorSizes) -> FloatArray:
    share = case.framework.offloading.host_link_fraction if case.framework else None
    return case.machine.single_copy_time(case["num_bytes"], share)


def _host_memory(case: OperatorSizes) -> FloatArray:
    share = case.framework.offloading.host_memory_fraction if case.framework else 1.0
    return case.machine.host_memory_time(case["num_bytes"], share)


_GROUP = terms_about("message")
_BYTES = (NUM_BYTES,)
_MATRICES = (*terms_about("matrix_product"), "local_experts", "matrices")
KINDS: Mapping[str, OperatorKind] = {
    "gemm": OperatorKind(_gemm, terms_about("matrix_product"), choices=_FORMATS),
    "grouped-gemm": OperatorKind(_grouped_gemm, _MATRICES, choices=_FORMATS),
    "attention": OperatorKind(_attention, terms_about("attention"), choices=("attention_kernel",)),
    "elementwise": OperatorKind(_elementwise, (ROWS, COLUMNS, TENSORS)),
    **{
        name: OperatorKind(_collective(name.replace("-", "_")), _GROUP, crosses=True, is_group=True)
        for name in ("all-reduce", "custom-all-reduce", "all-gather", "reduce-scatter",
                     "all-to-all")
    },
    "send": OperatorKind(
        lambda case: case.machine.send_time(case["num_bytes"], case["distance"]),
        ("num_bytes", "distance"), crosses=True,
    ),
    "device-copy": OperatorKind(
        lambda case: case.machine.memory_time(2 * case["num_bytes"]), _BYTES
    ),
    "host-copy": OperatorKind(_host_copy, _BYTES),
    "host-memory": OperatorKind(_host_memory, _BYTES),
    "drive-copy": OperatorKind(
        lambda case: case.machine.drive_copy_time(case["num_bytes"]), _BYTES
    ),
}  # fmt: skip
"""Every kind by the word that users say.

``device-copy`` is within a GPU, ``send`` between two; ``host-copy`` goes over the link of a GPU to
its host, ``host-memory`` is the host's own reading and writing, ``drive-copy`` reads or writes
drives of the node.
"""


OptionNamer = Callable[[str], str]


@record(kw_only=True)
class OperatorQuestion:
    """Requested operators, sizes and GPUs; unspecified ones are None or missing.

    ``sizes`` are numbers in SI units by term, ``choices`` are values of parameters that choose
    kernels. Each may have several values: every combination is timed.
    """

    kinds: Sequence[str]
    sizes: Mapping[str, Sequence[float]]
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gpus: Sequence[str] = ()
    cluster: str | None = None
    frameworks: Sequence[str] = ()


def read_question(
    operator: object, values: Answers, option_name: OptionNamer = str
) -> OperatorQuestion:
    """Parse the question about operators from texts or numbers; None: not specified.

    Raises SearchSpaceError if a value is invalid, missing or has no effect.
    """
    specified = {name: value for name, value in values.items() if value is not None}
    kinds = [
        parse_choice(operator_name, "an operator", KINDS)
        for operator_name in split_items(operator, "an operator")
    ]
    sizes: dict[str, Sequence[float]] = {}
    choices: dict[str, Sequence[str]] = {}
    for name in [name for name in specified if name not in terms_about("spec")]:
        if not any(name in (*kind.sizes, *kind.choices) for kind in KINDS.values()):
            raise SearchSpaceError(f"Operators have no {name}.")
        if name == "num_gpus":
            sizes[name] = _parse_gpu_counts(specified[name], option_name(name))
        elif (codes := glossary()[name].codes) is not None:
            usual = codes.usual() if specified[name] in (ALL, [ALL], (ALL,)) else specified[name]
            choices[name] = [*map(str, parse_values(glossary()[name], usual, option_name(name)))]
        else:
            sizes[name] = [
                *map(float, parse_values(glossary()[name], specified[name], option_name(name)))
            ]
            if min(sizes[name]) <= 0:
                raise SearchSpaceError(f"{option_name(name)} is more than 0.")
    gpus, frameworks = (
        [*map(str, parse_values(glossary()[name], specified[name], option_name(name)))]
        if name in specified
        else []
        for name in ("gpu", "framework")
    )
    cluster = None
    if "cluster" in specified:
        cluster = str(
            parse_value(glossary()[CLUSTER], specified["cluster"], option_name("cluster"))
        )
    if gpus == [ALL] and cluster is not None:
        raise SearchSpaceError(
            f"{option_name('gpu')} all compares GPUs on their own links: leave out "
            f"{option_name('cluster')}."
        )
    question = OperatorQuestion(
        kinds=list(dict.fromkeys(kinds)),
        sizes=sizes,
        choices=choices,
        gpus=gpus,
        cluster=cluster,
        frameworks=frameworks,
    )
    _check_question(question, option_name)
    return question


def _parse_gpu_counts(counts: object, option_name: str) -> list[float]:
    """Numbers of GPUs; ``all``: powers of two above one."""
    if counts in (ALL, [ALL], (ALL,)):
        return [float(count) for count in powers_of_two_counts(None)[1:]]
    return [float(parse_int(value, option_name, 1)) for value in split_items(counts, option_name)]


def _check_question(question: OperatorQuestion, option_name: OptionNamer) -> None:
    """Raise SearchSpaceError if an operator lacks a size, or no operator uses a size."""
    used = {name for kind in question.kinds for name in (*KINDS[kind].sizes, *KINDS[kind].choices)}
    for name in (*question.sizes, *question.choices):
        if name not in used:
            takers = [k for k, kind in KINDS.items() if name in (*kind.sizes, *kind.choices)]
            raise SearchSpaceError(
                f"{option_name(name)} says nothing about {' and '.join(question.kinds)}: it is for "
                f"{', '.join(takers)}."
            )
    for kind in question.kinds:
        missing = [option_name(name) for name in KINDS[kind].required if name not in question.sizes]
        if missing:
            raise SearchSpaceError(f"{kind} needs {', '.join(missing)}.")
        if KINDS[kind].is_group and min(question.sizes.get("num_gpus", [2])) < 2:
            raise SearchSpaceError(
                f"{kind} is of two GPUs or more: {option_name('num_gpus')} is not 1."
            )
    if "eager" in question.choices.get("attention_kernel", ()):
        raise SearchSpaceError(
            "eager attention is several operators: ask for gemm and elementwise instead."
        )
    pairs = (question.sizes.get(name, [1]) for name in ("heads", "key_value_heads"))
    heads, of_keys = pairs
    if max(of_keys) > min(heads):
        raise SearchSpaceError(
            f"{option_name('key_value_heads')} is at most {option_name('heads')}: "
            f"{max(of_keys):g} is not."
        )


_MOST_ROWS = 100_000
_UNSAID = (None, FRAMEWORK_DEFAULT_KERNEL)
_GIGA, _TERA = 1e9, 1e12
_USUAL = {"precision": ComputePrecision.BF16.word}


@record(kw_only=True)
class OperatorTimes:
    """Times of operators, one row for each.

    Parameters
    ----------
    columns : equally long columns by name; times in seconds, rates in TFLOP/s and GB/s
    works : FLOPs, bytes and bounds of each row
    assumed : assumptions in sentences
    """

    columns: Mapping[str, Sequence[Value]]
    works: Sequence[tuple[RepeatedWork, ...]]
    assumed: Sequence[str]

    def __len__(self) -> int:
        return len(self.works)


def time_operators(question: OperatorQuestion, catalogue: Catalogue) -> OperatorTimes:
    """Predict the time of each operator for each combination of sizes, GPU and framework [s].

    Raises SpecError or SearchSpaceError if a name is unknown, there are too many operators, or none
    on these GPUs.
    """
    assumed: list[str] = []
    defaults: dict[str, dict[str, None]] = {}
    rows: list[tuple[dict[str, Value], tuple[RepeatedWork, ...]]] = []
    crosses = any(KINDS[kind].crosses for kind in question.kinds)
    gpus: Sequence[str | None] = question.gpus or [None]
    if list(gpus) == [ALL]:
        gpus = catalogue.names("gpus")
    for gpu, profile in product(gpus, _profiles(question, catalogue)):
        notes = PlanNotes(catalogue)
        counts = [int(n) for n in question.sizes.get("num_gpus", ())]
        strides = [int(n) for n in question.sizes.get("stride", (1,))]
        distances = [int(n) + 1 for n in question.sizes.get("distance", ())]
        max_gpus = [(max(counts) - 1) * max(strides) + 1] if counts else []
        spec, cluster = hardware(gpu, question.cluster, [*max_gpus, *distances], notes)
        machine = Machine(gpu=spec, cluster=cluster, catalogue=notes.catalogue, ledger=Ledger())
        for name, text in notes.defaults.items():
            if name != "cluster" or crosses:
                defaults.setdefault(f"{name} {text}", {})[machine.gpu.name] = None
        for kind in question.kinds:
            rows += _time_kind(question, kind, machine, profile, assumed)
            if len(rows) > _MOST_ROWS:
                raise SearchSpaceError(f"That is more than {_MOST_ROWS:,} operators: give fewer.")
    if not rows:
        raise SearchSpaceError(" ".join(dict.fromkeys(assumed)))
    default_texts = [
        text if len(gpu_names) == len(gpus) else f"{text}: {', '.join(gpu_names)}"
        for text, gpu_names in defaults.items()
    ]
    names = [name for name in rows[0][0] if any(row[name] not in _UNSAID for row, _ in rows)]
    return OperatorTimes(
        columns={name: [row[name] for row, _ in rows] for name in names},
        works=[works for _, works in rows],
        assumed=[*dict.fromkeys((*default_texts, *assumed))],
    )


def _profiles(
    question: OperatorQuestion, catalogue: Catalogue
) -> Sequence[FrameworkProfile | None]:
    """Load the profiles of the named frameworks; ``[None]`` if the question names no framework."""
    names = question.frameworks
    if list(names) == [ALL]:
        names = catalogue.names("frameworks")
    return [catalogue.load_framework(name).spec for name in names] or [None]


def _time_kind(
    question: OperatorQuestion,
    name: str,
    machine: Machine,
    framework: FrameworkProfile | None,
    assumed: list[str],
) -> Iterator[tuple[dict[str, Value], tuple[RepeatedWork, ...]]]:
    """Yield rows of one kind of operator; notes, also why there are none, go to ``assumed``."""
    kind = KINDS[name]
    if name == "custom-all-reduce" and not machine.has_collective("custom_all_reduce"):
        assumed.append(f"{machine.gpu.name} has no measured custom all-reduce: left out.")
        return
    sizes = _size_combinations(question, kind, machine, assumed)
    if name == "drive-copy" and machine.cluster.drive_bandwidth is None:
        assumed.append(f"drives {machine.drive_bandwidth / _GIGA:g} GB/s per GPU")
    for choices in _choice_combinations(question, kind):
        for case in _split_by_head_size(machine, sizes, choices, framework):
            machine.ledger.drain()  # type: ignore[union-attr]
            seconds = kind.seconds(case)
            works = machine.ledger.drain()  # type: ignore[union-attr]
            if not np.all(np.isfinite(seconds)):
                precision = choices.get("precision")
                missing = f"known {name} rate" if precision is None else f"products in {precision}"
                assumed.append(f"{machine.gpu.name} has no {missing}: left out.")
                continue
            yield from _rows(name, case, np.asarray(seconds), works)


def _size_combinations(
    question: OperatorQuestion, kind: OperatorKind, machine: Machine, assumed: list[str]
) -> dict[str, FloatArray]:
    """Return every combination of the sizes of a kind of operator, as equally long arrays."""
    size_values: dict[str, Sequence[float]] = {}
    for name in kind.sizes:
        term = glossary().get(name)
        if name in question.sizes:
            size_values[name] = question.sizes[name]
        elif name == "num_gpus":
            size_values[name] = [machine.cluster.gpus_per_node]
            assumed.append(f"gpus {machine.cluster.gpus_per_node} (one node)")
        elif term is not None and term.default:
            size_values[name] = [float(term.default)]
    total = float(np.prod([float(len(values)) for values in size_values.values()]))
    if total > _MOST_ROWS:
        raise SearchSpaceError(f"That is {total:,.0f} operators: give {_MOST_ROWS:,} at most.")
    mesh = np.meshgrid(*(np.asarray(v, np.float64) for v in size_values.values()), indexing="ij")
    sizes = {name: values.ravel() for name, values in zip(size_values, mesh, strict=True)}
    if "key_value_heads" in kind.sizes:
        sizes.setdefault("key_value_heads", sizes["heads"])
    return {name: sizes[name] for name in kind.sizes}


def _choice_combinations(
    question: OperatorQuestion, kind: OperatorKind
) -> Iterator[dict[str, str]]:
    """Yield each combination of choices (kernel, ...) as choice name to value; unset: default."""
    values = [
        question.choices.get(name) or [_USUAL.get(name, glossary()[name].default)]
        for name in kind.choices
    ]
    for combination in product(*values):
        yield dict(zip(kind.choices, combination, strict=True))


def _split_by_head_size(
    machine: Machine,
    sizes: dict[str, FloatArray],
    choices: dict[str, str],
    framework: FrameworkProfile | None,
) -> Iterator[OperatorSizes]:
    """Yield the sizes once per attention head size, since each head size has another kernel."""
    case = OperatorSizes(machine=machine, sizes=sizes, choices=choices, framework=framework)
    if "head_dim" not in sizes:
        yield case
        return
    for head_dim in np.unique(sizes["head_dim"]):
        chosen = sizes["head_dim"] == head_dim
        yield replace(case, sizes={name: values[chosen] for name, values in sizes.items()})


def _rows(
    kind: str, case: OperatorSizes, seconds: FloatArray, works: Sequence[KernelWork]
) -> Iterator[tuple[dict[str, Value], tuple[RepeatedWork, ...]]]:
    """Yield a result row per combination of sizes, with the kernel work behind its time."""
    number = next(iter(case.sizes.values())).size
    all_seconds = np.broadcast_to(seconds, (number,))
    for index in range(number):
        done = tuple(
            RepeatedWork(work=_single_work(work, index, number), times=1.0) for work in works
        )
        yield _row(kind, case, index, float(all_seconds[index]), done), done


def _single_work(work: KernelWork, index: int, number: int) -> KernelWork:
    """Return the kernel work of the combination ``index`` out of ``number``."""

    def value(values: Numeric) -> FloatArray:
        return np.broadcast_to(np.asarray(values, np.float64), (number,))[index, ...]

    return replace(
        work,
        time=value(work.time),
        at_peak=value(work.at_peak),
        terms={name: value(term) for name, term in work.terms.items()},
        figures={name: value(figure) for name, figure in work.figures.items()},
    )


def _row(
    kind: str, case: OperatorSizes, index: int, time: float, done: Sequence[RepeatedWork]
) -> dict[str, Value]:
    """Return the output row of one operator: sizes, time [s], rates, share of peak, bound."""
    sizes = {name: values[index] for name, values in case.sizes.items()}
    names = dict.fromkeys(n for each in KINDS.values() for n in (*each.choices, *each.sizes))
    shown_values = {
        n: case.choices.get(n) or _as_int(sizes.get(n)) for n in names if n != "num_gpus"
    }
    first = done[0]
    flops = _figure(first, "flops")
    moved = _figure(first, "num_bytes")
    volume = _figure(first, "volume")
    of_roofline = sum(each.at_peak for each in done) / time
    peak = _figure(first, "peak_flops")
    software = None if case.framework is None else case.framework.name
    num_gpus = int(sizes.get("num_gpus", 2 if kind == "send" else 1))
    results: dict[str, Value] = {
        TIME: time,
        TFLOPS: None if flops is None else flops / time / _TERA,
        BANDWIDTH_GB_PER_S: None if moved is None else moved / time / _GIGA,
        ALGORITHM_BANDWIDTH_GB_PER_S: None
        if volume is None
        else float(sizes["num_bytes"]) / time / _GIGA,
        BUS_BANDWIDTH_GB_PER_S: None if volume is None else volume / time / _GIGA,
        OF_PEAK: of_roofline if not flops or not peak else flops / time / peak,
        OF_ROOFLINE: of_roofline,
        BOUND: main_bound(done),
    }
    return {
        OPERATOR: kind,
        GPU: case.machine.gpu.name,
        FRAMEWORK: software,
        NUM_GPUS: num_gpus,
        **shown_values,
        **{glossary()[name].column: value for name, value in results.items()},
    }


def _figure(done: RepeatedWork, name: str) -> float | None:
    return done.figure(name) if name in done.work.figures else None


def _as_int(value: float | None) -> int | None:
    return None if value is None else int(value)


def main_bound(works: Sequence[RepeatedWork]) -> str:
    """Return the bound (memory, compute, ...) that limits most of the time of several kernels."""
    seconds: dict[str, float] = {}
    for work in works:
        name = main_bound_of_work(work)
        seconds[name] = seconds.get(name, 0.0) + work.once
    return max(seconds, key=lambda name: seconds[name])


def work_dict(done: RepeatedWork) -> dict[str, object]:
    """Return the kernel work as a dictionary for JSON: formula and times [s]."""
    formula = FORMULAS[done.work.formula]
    return {
        "kind": formula.title,
        "formula": formula.function_path,
        "words": formula.words(done),
        "time_s": done.once,
        "at_peak_s": done.at_peak,
        "terms_s": done.terms,
    }
