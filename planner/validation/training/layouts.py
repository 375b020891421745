"""Possible layouts of a run: one if its row specifies all sizes, else several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

from planner.base.enums import (
    AdapterKind,
    ComputePrecision,
    ContextExchange,
    Fp8Recipe,
    MainPrecision,
    Offload,
    OptimizerKind,
    PipelineSchedule,
    Precision,
    Recompute,
    StatePrecision,
    TokenDispatcher,
)
from planner.base.records import record
from planner.base.software_enums import (
    TENSORS,
    AttentionKernel,
    ExpertCompute,
    KeptTensors,
    LossKernel,
    NameSet,
    RecomputedModules,
    TorchCompile,
)
from planner.base.training_aliases import parse_optimizer
from planner.confidence.error_classes import has_experts
from planner.confidence.profile_rules import FrameworkRule
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.training_rules import has_kernel
from planner.formulas.memory import NF4_BYTES
from planner.layers.model import count_parameters
from planner.question.names import (
    ATTENTION_KERNEL,
    CP_COMM_TYPE,
    EXPERT_COMPUTE,
    PIPELINE_SCHEDULE,
    TORCH_COMPILE,
)
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.validation.run_tables import Run
from planner.validation.spec_library import NotPredicted

LayoutFields: TypeAlias = dict[str, Any]
"""LayoutFields of `Layout` by name."""


def options_of(
    run: Run, profile: FrameworkProfile, rule: FrameworkRule, gpu: GpuSpec, model: ModelSpec
) -> LayoutFields:
    """Return rarely set fields of ``Layout`` from the run, or else the default of its framework.

    Raises NotPredicted if a column has a word that its parameter does not have.
    """
    defaults = TrainingConfigurations.default_codes()
    # A loop up to the year in which its framework left it; a run of no year is of today.
    year, last = run.number("year"), rule.loops_experts_until
    may_loop = profile.execution.expert_loop_time > 0 and model.num_experts > 0
    loops = may_loop and year is not None and last is not None and year <= last
    kernel = AttentionKernel[rule.attention_kernel.upper()]
    usual = {
        CP_COMM_TYPE: profile.cp_comm_type,
        PIPELINE_SCHEDULE: "",
        ATTENTION_KERNEL: (kernel if has_kernel(gpu, kernel) else AttentionKernel.AUTO).word,
        EXPERT_COMPUTE: (ExpertCompute.LOOP if loops else ExpertCompute.AUTO).word,
        TORCH_COMPILE: "",
    }
    words = {name: run.word(name) or word for name, word in usual.items()}
    if not profile.compilation.selectable:
        words["torch_compile"] = ""
    read = {"count": run.count, "flag": run.flag, "number": run.number}
    numbers = {n: read[glossary()[n].type](n) or defaults[n] for n in terms_about("rare_number")}
    numbers["expert_imbalance"] = max(numbers["expert_imbalance"], 1.0)
    chosen = {name: _code(name, word) if word else defaults[name] for name, word in words.items()}
    return {**numbers, **chosen}


def _code(name: str, word: str) -> int:
    """Return the enumeration member of a parameter's word; raises NotPredicted if there is none."""
    codes = {code.word: code for code in glossary()[name].enumeration}
    if word not in codes:
        raise NotPredicted(f"{name} {word!r} is not {', '.join(codes)}")
    return codes[word]


_FORMATS = {
    name: term.codes
    for name, term in terms_of("train", "parameter").items()
    if term.codes in (StatePrecision, MainPrecision)
}


def stated_optimizer(run: Run) -> LayoutFields:
    """Return the optimizer and its number formats that the run states; empty: none stated.

    Raises NotPredicted if a word is unknown.
    """
    states: LayoutFields = {}
    if word := run.word("optimizer"):
        optimizer_codes = parse_optimizer(word)
        if optimizer_codes is None:
            raise NotPredicted(f"the optimizer {word} is not modelled yet")
        states |= optimizer_codes
    for name, kind in _FORMATS.items():
        if word := run.word(name):
            codes = {code.word: code for code in kind}
            if word not in codes:
                raise NotPredicted(f"{name} {word} is not one of {', '.join(codes)}")
            states[name] = codes[word]
    if run.flag("optimizer_in_backward"):
        states["optimizer_in_backward"] = True
    return states


YEAR = 2025
"""Assumed year of a run without a year."""
_FP8_FROM = 2024
_PRECISIONS = {
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-ds": "fp8",
    "float8": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "bf16-mixed": "bf16",
    # How a frozen model is stored; it is multiplied in 16 bits.
    **dict.fromkeys(("nf4", "int4"), "bf16"),
}


def precisions(run: Run, gpu: GpuSpec) -> list[ComputePrecision]:
    """Return the compute formats to try: stated by the run, else 16 bit, and fp8 from 2024 on."""
    words = run.word("precision") or run.word("likely_precision")
    if not words:
        bf16 = Precision.BF16 in gpu.peak_flops
        sixteen_bit = ComputePrecision.BF16 if bf16 else ComputePrecision.FP16
        has_fp8 = Precision.FP8 in gpu.peak_flops and (run.number("year") or YEAR) >= _FP8_FROM
        return [sixteen_bit, ComputePrecision.FP8] if has_fp8 else [sixteen_bit]
    return [_precision(word, gpu) for word in words.split("/")]


def recipe_of(run: Run, precision: ComputePrecision) -> Fp8Recipe:
    """Return the scaling of 8-bit products: of the run, else by its precision; AUTO without fp8.

    In tables with mxfp8 runs, fp8 means one factor per tensor.
    """
    if precision is not ComputePrecision.FP8:
        return Fp8Recipe.AUTO
    words = run.word("precision").split("/")
    word = run.word("fp8_recipe") or ("mxfp8" if "mxfp8" in words else "delayed")
    codes = {code.word: code for code in Fp8Recipe}
    code = codes.get(Fp8Recipe.canonical_word(word))
    if code is None:
        raise NotPredicted(f"fp8_recipe {word!r} is not one of {', '.join(codes)}")
    return code


def _precision(word: str, gpu: GpuSpec) -> ComputePrecision:
    """Return the compute format of a word; raises NotPredicted if the GPU lacks the format."""
    codes = {code.word: code for code in ComputePrecision if code is not ComputePrecision.INT8}
    code = codes.get(_PRECISIONS.get(word, word))
    if code is None:
        raise NotPredicted(f"training in {word} is not modelled yet")
    if Precision(code.word) not in gpu.peak_flops:
        raise NotPredicted(f"{gpu.name} lacks {code.word}")
    return code


_MOST_TENSOR_PARALLEL = 8
_MOST_CONTEXT_PARALLEL = 8
_MOST_MICRO_BATCH = 16
_MOST_VIRTUAL = 12
_MICRO_BATCHES_PER_STAGE = 4
_WEIGHT_BYTES = 2.0
ONCE_PER_NODE = ("deepep", "hybridep", "hybrid-ep")
"""Exchanges of tokens between experts that send one once to a node."""
_RECOMPUTE = {code.word: code for code in Recompute}
# Kinds of offload that a cell joins by +, in the words of sources.
_OFFLOADED = {
    **dict.fromkeys(("optimizer", "optimizer_cpu", "optim"), "optimizer"),
    **dict.fromkeys(("params", "param", "weights", "params_cpu", "weights_cpu"), "weights"),
    **dict.fromkeys(("activations", "activations_cpu", "residual"), "activations"),
    "nvme": "nvme",
}
# In the order in which the words of codes join them.
_OFFLOAD_PARTS = ("optimizer", "weights", "activations", "nvme")
_NO_OFFLOAD = ("", "no", "0", "none")
# Sources where ZeRO or FSDP offloads to the host, without the offloaded tensors.
_CPU_OFFLOAD = ("cpu", "cpu_offload", "zero_cpu_offload", "1")


@record(kw_only=True)
class Layout:
    """One configuration, in the words of ``TrainingConfigurations``."""

    num_gpus: int
    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    virtual_pipeline: int
    layer_split: bool
    expert_parallel: int
    micro_batch_size: int
    global_batch_size: float
    zero_stage: int
    data_parallel_replicas: int
    recompute: Recompute
    recompute_num_layers: int
    offload: Offload
    precision: ComputePrecision
    sequence_parallel: bool
    flash_attention: bool
    fp8_attention: bool
    fp8_recipe: Fp8Recipe
    attention_kernel: AttentionKernel = AttentionKernel.AUTO
    expert_compute: ExpertCompute = ExpertCompute.AUTO
    torch_compile: TorchCompile = TorchCompile.AUTO
    loss_kernel: LossKernel = LossKernel.AUTO
    loss_chunks: int = 0
    recompute_modules: int = 0
    saved_tensors: int = 0
    offloaded_tensors: int = 0
    optimizer: OptimizerKind = OptimizerKind.ADAM
    optimizer_state_precision: StatePrecision = StatePrecision.FRAMEWORK
    main_params_precision: MainPrecision = MainPrecision.FRAMEWORK
    main_grads_precision: MainPrecision = MainPrecision.FRAMEWORK
    optimizer_in_backward: bool = False
    paged_optimizer: bool = False
    reduce_bucket_size: int = 0
    sub_group_size: int = 0
    stage3_max_live_parameters: int = 0
    zero3_init: bool = True
    eval_batch_size: int = 0
    norm_input_bits: int = 0
    fc1_input_bits: int = 0
    activation_input_bits: int = 0
    fc2_input_bits: int = 0
    expert_tensor_parallel: int = 1
    overlap_expert_parallel: bool = False
    token_dispatcher: TokenDispatcher = TokenDispatcher.AUTO
    expert_capacity_factor: float = 0.0
    expert_imbalance: float = 1.0
    cp_comm_type: ContextExchange = ContextExchange.P2P
    tp_comm_overlap: bool = False
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD

    @property
    def data_parallel(self) -> float:
        """Copies of the model; a fraction where the numbers do not fit."""
        return self.num_gpus / (
            self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        )


@record(kw_only=True)
class LayoutChoice:
    """Run, specs and rules that determine the possible layouts."""

    run: Run
    rule: FrameworkRule
    profile: FrameworkProfile
    gpu: GpuSpec
    model: ModelSpec
    domain_size: int
    loss_kernel: LossKernel = LossKernel.AUTO


def layouts(context: LayoutChoice) -> list[Layout]:
    """Return every plausible layout of a run, in a fixed order.

    Raises NotPredicted if its precision or its memory management is not modelled, or nothing fits
    its GPUs.
    """
    run = context.run
    possible: list[LayoutFields] = [
        {"precision": precision, "fp8_recipe": recipe_of(run, precision)}
        for precision in precisions(run, context.gpu)
    ]
    all_layouts = [
        batched(**formats)
        for parallel in _parallel(context)
        for batched in _batches(context, parallel)
        for formats in possible
    ]
    if not all_layouts:
        raise NotPredicted("no layout of these parallel sizes fits the number of GPUs and batch")
    return all_layouts


def _parallel(context: LayoutChoice) -> Iterator[Layout]:
    """Yield layouts without batch: with the sizes of the run, or all possible ones if unstated."""
    run = context.run
    num_gpus = run.count("num_gpus")
    if num_gpus is None:
        raise NotPredicted("the number of GPUs is not specified")
    splits = product(_tensor(context), _pipeline(context), _context(context))
    unsplit = _unsplit(context, num_gpus)
    for tensor, pipeline, ring in splits:
        layout = replace(
            unsplit, tensor_parallel=tensor, pipeline_parallel=pipeline, context_parallel=ring
        )
        if _fits_gpus(layout, run) and not _must_spread(context):
            for ranks in _expert_ranks(context, num_gpus // pipeline):
                for split in _expert_splits(context, layout, ranks):
                    shared = replace(layout, expert_parallel=ranks, expert_tensor_parallel=split)
                    yield from _switched(context, shared)
    if num_gpus > 1 and (run.flag("layer_split") or _may_spread(context)):
        spread = replace(unsplit, pipeline_parallel=num_gpus, layer_split=True)
        yield from _switched(context, spread)


def _expert_ranks(context: LayoutChoice, num_ranks: int) -> list[int]:
    """Return expert-parallel sizes to try: that of the run, else 1; more than 1 with DeepEP."""
    expert_parallel = context.run.count("expert_parallel")
    if expert_parallel or context.run.word("token_dispatcher") not in ONCE_PER_NODE:
        return [expert_parallel or 1]
    several = _powers_of_two(min(num_ranks, context.model.num_experts))[1:]
    fit = [e for e in several if num_ranks % e == context.model.num_experts % e == 0]
    return fit or [1]


def _expert_splits(context: LayoutChoice, layout: Layout, ranks: int) -> list[int]:
    """Return expert tensor-parallel sizes to try: of the run, else 1 and Megatron's default.

    This default is the tensor parallelism of the rest: NVIDIA/Megatron-LM core_v0.14.0,
    ``megatron/core/model_parallel_config.py``, ``expert_tensor_parallel_size``.
    """
    expert_tensor, tensor = context.run.count("expert_tensor_parallel"), layout.tensor_parallel
    feeds = [group.feed_forward for group in context.model.layer_groups if group.feed_forward]
    widths = [width for feed in feeds if (width := feed.moe_intermediate_size)]
    num_ranks = layout.num_gpus // layout.pipeline_parallel
    is_possible = num_ranks % (ranks * tensor) == 0 and all(w % tensor == 0 for w in widths)
    if expert_tensor or not widths or not context.profile.expert_tensor_parallel or not is_possible:
        return [expert_tensor or 1]
    return sorted({1, tensor})


def _must_spread(context: LayoutChoice) -> bool:
    """Return True if layers must be spread over GPUs: the run says so, or one GPU is too small."""
    if context.run.flag("layer_split"):
        return True
    quantized = context.run.word("workload") == AdapterKind.QLORA
    width = NF4_BYTES if quantized else _WEIGHT_BYTES
    weight_bytes = width * count_parameters(context.model).total
    return _may_spread(context) and weight_bytes > context.gpu.memory_capacity


def _may_spread(context: LayoutChoice) -> bool:
    """Return True if layers may be spread over GPUs, as Trainer does if nothing is sharded.

    Trainer copies the model if its user starts a process per GPU, or else spreads the layers.
    """
    run, sharded = context.run, ("deepspeed", "fsdp", "zero")
    has_data_parallel = (
        run.text("zero_stage") or run.text("data_parallel") or run.flag("layer_split") is False
    )
    names_sharding = any(word in run.word("framework") for word in sharded)
    several = (run.count("num_gpus") or 1) > 1
    return several and context.profile.layer_split and not (has_data_parallel or names_sharding)


def _unsplit(context: LayoutChoice, num_gpus: int) -> Layout:
    """Build the layout of a run with all parallel sizes and batches 1, with its other fields."""
    year = int(context.run.number("year") or YEAR)
    flash = context.run.flag("flash_attention")
    return Layout(
        num_gpus=num_gpus,
        tensor_parallel=1,
        context_parallel=1,
        pipeline_parallel=1,
        virtual_pipeline=1,
        layer_split=False,
        expert_parallel=context.run.count("expert_parallel") or 1,
        micro_batch_size=1,
        global_batch_size=1,
        zero_stage=0,
        data_parallel_replicas=1,
        recompute=Recompute.NONE,
        recompute_num_layers=0,
        recompute_modules=_stated_set(context.run, RecomputedModules) or 0,
        saved_tensors=_stated_set(context.run, KeptTensors) or 0,
        offload=_offload(context.run),
        offloaded_tensors=KeptTensors[_parts_of_layers(context.run).upper() or "NONE"],
        precision=ComputePrecision.BF16,
        sequence_parallel=False,
        flash_attention=since(context.rule.flash_attention_from, year) if flash is None else flash,
        fp8_attention=bool(context.run.flag("fp8_attention")),
        fp8_recipe=Fp8Recipe.AUTO,
        loss_kernel=context.loss_kernel,
        **stated_optimizer(context.run),
        **options_of(context.run, context.profile, context.rule, context.gpu, context.model),
    )


def _fits_gpus(layout: Layout, run: Run) -> bool:
    """Return True if the data-parallel size is whole and that of the run, if the run states it."""
    ranks = layout.data_parallel
    if ranks < 1 or ranks != int(ranks):
        return False
    data_parallel = run.count("data_parallel")
    is_fully_specified = run.count("tensor_parallel") and run.count("pipeline_parallel")
    return bool(is_fully_specified) or data_parallel is None or data_parallel == ranks


def _switched(context: LayoutChoice, layout: Layout) -> Iterator[Layout]:
    """Yield the layout with each mode of recomputation and sequence parallelism, and ZeRO stage."""
    zero_stage = _zero_stage(context, layout)
    replicas = context.run.count("data_parallel_replicas") if zero_stage else None
    layout = replace(layout, zero_stage=zero_stage, data_parallel_replicas=replicas or 1)
    for recompute, split in product(_recompute(context), _sequence_parallel(context, layout)):
        part = context.run.count("recompute_num_layers") if recompute is Recompute.FULL else None
        yield replace(
            layout, recompute=recompute, recompute_num_layers=part or 0, sequence_parallel=split
        )


def _batches(context: LayoutChoice, layout: Layout) -> Iterator[Callable[..., Layout]]:
    """Yield functions that set each plausible micro-batch, global batch and number of chunks."""
    global_batch = context.run.number("global_batch_size")
    micro_batch = context.run.count("micro_batch_size")
    per_rank = None if global_batch is None else global_batch / layout.data_parallel
    sizes = [micro_batch or 1]
    if per_rank is not None and not micro_batch:
        sizes = [n for n in _powers_of_two(_MOST_MICRO_BATCH) if per_rank % n == 0] or [1]
    if shared := context.run.number("gpus_per_sequence"):
        split = layout.num_gpus / layout.data_parallel
        sizes = [size for size in sizes if size * shared == split]
    for size in sizes:
        accumulated = _MICRO_BATCHES_PER_STAGE * layout.pipeline_parallel
        steps = accumulated if layout.pipeline_parallel > 1 else 1
        batch = global_batch or layout.data_parallel * size * steps
        if batch < layout.data_parallel * size:
            continue
        for chunks in _virtual(context, layout, batch / (layout.data_parallel * size)):
            yield partial(
                replace,
                layout,
                micro_batch_size=size,
                global_batch_size=batch,
                virtual_pipeline=chunks,
            )


def _virtual(context: LayoutChoice, layout: Layout, micro_batches: float) -> list[int]:
    """Return the numbers of model chunks per pipeline stage to try; [1] without interleaving."""
    chunks = context.run.count("virtual_pipeline") or context.rule.virtual_pipeline
    p = layout.pipeline_parallel
    if p == 1 or not context.profile.interleaved_schedule:
        return [1]
    if chunks:
        return [chunks]
    layers = context.model.num_hidden_layers
    if micro_batches % p:
        return [1]
    return [1, *(v for v in range(2, _MOST_VIRTUAL + 1) if layers % (p * v) == 0)]


def _tensor(context: LayoutChoice) -> list[int]:
    tensor_parallel = context.run.count("tensor_parallel")
    if tensor_parallel or not context.profile.tensor_parallel:
        return [tensor_parallel or 1]
    return _powers_of_two(min(_MOST_TENSOR_PARALLEL, context.domain_size))


def _pipeline(context: LayoutChoice) -> list[int]:
    """Return the pipeline sizes to try: that of the run, or all that the layers allow."""
    pipeline_parallel = context.run.count("pipeline_parallel")
    if pipeline_parallel or not context.profile.pipeline_parallel:
        return [pipeline_parallel or 1]
    layers, num_gpus = context.model.num_hidden_layers, context.run.count("num_gpus") or 1
    even = (size for size in range(1, layers + 1) if layers % size == num_gpus % size == 0)
    return sorted({*_powers_of_two(layers), *even})


def _context(context: LayoutChoice) -> list[int]:
    """Return context-parallel sizes to try: of the run, else 1; more if GPUs share a sequence."""
    context_parallel = context.run.count("context_parallel")
    shared = context.run.number("gpus_per_sequence")
    if context_parallel or not shared or not context.profile.context_parallel:
        return [context_parallel or 1]
    return _powers_of_two(_MOST_CONTEXT_PARALLEL)


def _zero_stage(context: LayoutChoice, layout: Layout) -> int:
    """Return the ZeRO stage: of the run or by default; 0 without data parallelism."""
    if layout.data_parallel * layout.context_parallel == 1:
        return 0
    stage = context.run.number("zero_stage")
    if layout.layer_split or (stage is None and _may_spread(context)):
        return 0
    return context.profile.default_zero_stage if stage is None else int(stage)


def _recompute(context: LayoutChoice) -> list[Recompute]:
    """Return the recomputation modes to try: the stated or usual mode, or else all three."""
    single_gpu, _, sharded = (context.rule.recompute or "").partition("/")
    several = (context.run.count("num_gpus") or 1) > 1
    word = context.run.word("recompute") or (several and sharded) or single_gpu
    if word in _RECOMPUTE:
        return [_RECOMPUTE[word]]
    if _stated_set(context.run, KeptTensors) is not None:
        return [Recompute.FULL]
    if _stated_set(context.run, RecomputedModules) is not None:
        return [Recompute.SELECTIVE]
    if word:
        raise NotPredicted(
            f"recompute {word!r} is not none, selective, feed_forward, full, recomputed modules, "
            "saved tensors or a policy of MaxText"
        )
    return [Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL]


def _stated_set(run: Run, sets: type[NameSet]) -> int | None:
    """Return the tensors or modules that the run names in ``recompute``, as bits; else None."""
    word = sets.canonical_word(run.word("recompute")).upper()
    if not word or word.lower() in _RECOMPUTE:
        return None
    try:
        return int(sets[word])
    except KeyError:
        return None


def _parts_of_layers(run: Run) -> str:
    """The tensors of layers that a run offloads, joined to one word."""
    return str(
        KeptTensors.canonical_word("+".join(part for part in _offloads(run) if part in TENSORS))
    )


def _offloads(run: Run) -> list[str]:
    """Parts that a run offloads, by word."""
    word = KeptTensors.aliases().get(run.word("offload"), run.word("offload"))
    return [part.strip() for part in word.split("+")]


def _offload(run: Run) -> Offload:
    """Return what the run offloads to the host; raises NotPredicted for an unknown word."""
    word = run.word("offload")
    if (parts_of_layers := _parts_of_layers(run)) and len(parts_of_layers.split("+")) == len(
        _offloads(run)
    ):
        return Offload.NONE
    if word in _CPU_OFFLOAD:
        return Offload.OPTIMIZER_WEIGHTS if run.word("zero_stage") == "3" else Offload.OPTIMIZER
    if word in _NO_OFFLOAD:
        return Offload.NONE
    codes = {code.word: code for code in Offload}
    parts = {_OFFLOADED.get(part.strip(), part) for part in word.split("+")}
    if "weights" in parts or "nvme" in parts:
        # Weights are offloaded with the optimizer that updates them.
        parts.add("optimizer")
    joined = "_".join(part for part in _OFFLOAD_PARTS if part in parts)
    code = codes.get(word, codes.get(joined))
    if code is None or not (word in codes or parts <= set(_OFFLOAD_PARTS)):
        raise NotPredicted(f"offload of {word} is not modelled yet")
    return code


def _sequence_parallel(context: LayoutChoice, layout: Layout) -> list[bool]:
    """Return whether to try sequence parallelism: stated or by year, [False] without TP."""
    if layout.tensor_parallel == 1:
        return [False]
    sequence_parallel = context.run.flag("sequence_parallel")
    if sequence_parallel is not None:
        return [sequence_parallel]
    first = context.rule.sequence_parallel_from
    if first is None or (context.run.number("year") or YEAR) < first:
        return [False]
    return [True] if has_experts(context.model) else [False, True]


def since(first: int | None, year: float | None) -> bool:
    """Whether a feature that came into use in a year is on in a run; of now if it has no year."""
    return first is not None and (year or YEAR) >= first


def _powers_of_two(limit: int) -> list[int]:
    return [2**exponent for exponent in range(max(limit, 1).bit_length())]
