"""Cases of training: inputs of the estimator from rows; measurements are never read."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.enums import (
    AdapterKind,
    AdapterTargets,
    ComputePrecision,
    Offload,
    Padding,
    Recompute,
)
from planner.base.records import record
from planner.base.software_enums import LossKernel
from planner.base.training_aliases import ExpertAdapters, SavedModules
from planner.base.units import GIB
from planner.confidence.error_classes import scale_class, training_task
from planner.confidence.evidence import (
    Conditions,
    group_of_code,
    layer_kinds,
    training_groups,
)
from planner.confidence.intervals import (
    TRAINING_TABLES,
    MemoryErrors,
    default_fit_confidence,
    memory_errors,
)
from planner.confidence.profile_rules import FrameworkRule, framework_rule
from planner.configurations.configuration_tables import NAMES, TrainingConfigurations
from planner.configurations.training_rules import RULES
from planner.errors import SpecError
from planner.estimators.machine import Machine
from planner.estimators.training.loss_kernels import SHIFTED_BYTES
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.training_estimate import REJECTIONS, Estimate, evaluate
from planner.layers.model import count_parameters
from planner.question.terms import terms_about
from planner.specs.framework import FrameworkProfile
from planner.specs.model import MOST_MODULES, ModelSpec
from planner.specs.serving_workload import with_mtp
from planner.specs.training_workload import USUAL_DEVIATION, TrainingWorkload, layers_of_chunks
from planner.specs.validated import ValidationErrors
from planner.validation.run_tables import MEMORY, Case, MemoryKind, Prediction, Run
from planner.validation.spec_library import Library, NotPredicted, model_of, run_cluster
from planner.validation.training.layouts import ONCE_PER_NODE, Layout, LayoutChoice, layouts, since

_NO_HOST_WAITS = ("full", "sync_free")
_ADAPTERS = {
    "": AdapterKind.NONE,
    "pretrain": AdapterKind.NONE,
    "pretraining": AdapterKind.NONE,
    "full_finetune": AdapterKind.NONE,
    "lora": AdapterKind.LORA,
    "qlora": AdapterKind.QLORA,
}
# Transformers' Trainer or PEFT with DeepSpeed.
_DEEPSPEED_WITH_TRAINER = re.compile(
    r"(?<=peft)\W+deepspeed|(?<=trainer)\W+deepspeed", re.IGNORECASE
)
_FROM_SCRATCH = ("", "pretrain", "pretraining")
# Default of a run: the rank of MLPerf's LoRA task.
_LORA_RANK = 16
_LONGEST_SEQUENCE = 100_000_000
_LOSSES = {code.word: code for code in LossKernel} | {"chunked": LossKernel.LINEAR}
"""Kernels of the loss by word; ``chunked``: the last product is in chunks of tokens, too."""


@record(kw_only=True)
class Samples:
    """Lengths of samples that do not fill their sequences, and the padding."""

    padding: Padding = Padding.PACKED
    mean_length: int = 0
    deviation: int = 0


@record(kw_only=True)
class TrainingCase(Case):
    """A run as input of the estimator: its plausible layouts and everything that they share.

    ``has_fixed_loss``: the run's loss is not that of the profile. ``gpu_class``, ``scale`` and
    ``kind`` select the runs with comparable errors.
    """

    framework: FrameworkProfile
    rule: FrameworkRule
    sequence_length: int
    layouts: tuple[Layout, ...]
    memory_kind: MemoryKind
    has_fixed_loss: bool = False
    adapter: AdapterKind = AdapterKind.NONE
    lora_rank: int = _LORA_RANK
    modules_to_save: SavedModules = SavedModules.NONE
    double_quantization: bool = True
    samples: Samples = Samples()
    pipeline_layout: str = ""
    is_fine_tuning: bool = False

    @property
    def software(self) -> FrameworkRule:
        """The rule of its framework."""
        return self.rule

    @property
    def group(self) -> Hashable:
        """Return the key of cases that one pass can predict."""
        return (
            self.model,
            self.gpu.name,
            self.cluster,
            self.framework,
            self.sequence_length,
            self.adapter,
            self.lora_rank,
            self.rule.lora_targets,
            self.modules_to_save,
            self.double_quantization,
            self.samples,
            self.pipeline_layout,
        )

    @property
    def inputs(self) -> TrainingInputs:
        """Return the inputs that all layouts of the case share."""
        targets = AdapterTargets(self.rule.lora_targets)
        is_wide = self.adapter.is_low_rank and targets is AdapterTargets.ALL_LINEAR
        adapts_experts = is_wide and self.model.num_experts
        return TrainingInputs(
            machine=Machine(gpu=self.gpu, cluster=self.cluster, catalogue=self.catalogue),
            model=self.model,
            framework=self.framework.with_graphs_of(
                scales_groups=self.gpu.scales_groups, has_state=self.model.has_state
            ),
            workload=TrainingWorkload(
                sequence_length=self.sequence_length,
                global_batch_size=1,
                total_tokens=1.0,
                adapter=self.adapter,
                lora_rank=self.lora_rank,
                lora_targets=targets,
                expert_adapters=(
                    self.framework.expert_adapters if adapts_experts else ExpertAdapters.NONE
                ),
                modules_to_save=self.modules_to_save,
                double_quantization=self.double_quantization,
                padding=self.samples.padding,
                mean_sample_length=self.samples.mean_length,
                sample_length_deviation=self.samples.deviation,
                pipeline_layout=self.pipeline_layout,
            ),
        )

    @property
    def num_gpus(self) -> int:
        """GPUs of the run."""
        return self.layouts[0].num_gpus

    @property
    def scale(self) -> str:
        """One GPU, one node, a cluster of up to 512 GPUs, or a larger one."""
        return scale_class(self.num_gpus, self.cluster.gpus_per_node)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Framework, class of GPU, scale, task, dense or a mixture of experts."""
        task = training_task(tunes=self.is_fine_tuning)
        return (self.rule.label, self.gpu_class, self.scale, task, self.kind)

    @cached_property
    def conditions(self) -> Conditions:
        """GPU, task, layout, number format and layers of the run."""
        is_quantized = self.adapter is AdapterKind.QLORA
        groups = training_groups(self.layouts[0], is_quantized=is_quantized)
        layout, number_format, _ = group_of_code(int(groups))
        return Conditions(
            gpu_class=self.gpu_class,
            work=training_task(tunes=self.is_fine_tuning),
            layout=layout,
            number_format=number_format,
            layer_kinds=layer_kinds(self.model),
        )

    @property
    def memory_errors(self) -> MemoryErrors:
        """By framework, dense or experts, scale and task."""
        task = training_task(tunes=self.is_fine_tuning)
        return memory_errors(TRAINING_TABLES, self.rule.label, self.kind, self.scale, task)


def training_case(run: Run, library: Library) -> TrainingCase:
    """Build the case of a published run from its columns, without its measurements.

    Raises NotPredicted if it cannot be predicted; the text says why.
    """
    adapter = _ADAPTERS.get(run.word("workload"))
    if adapter is None:
        raise NotPredicted(f"workload {run.word('workload')} is not modelled yet")
    gpu = library.gpu(run.text("gpu"))
    if gpu is None:
        raise NotPredicted(f"unknown GPU {run.text('gpu') or '(not specified)'}")
    rule = framework_rule(_framework(run))
    length = _length(run, rule)
    model = _trained(run, model_of(run, library), rule, adapter)
    loss, code = _loss(run, rule)
    # The profile of the run; packages that fuse the loss fuse other kernels too.
    if adapter is not AdapterKind.NONE and rule.adapter_profile:
        rule = rule.rule_for_adapter(fused=loss != "eager")
    elif run.count("num_gpus") not in (None, 1):
        rule = replace(rule, profile=rule.sharded_profile)
    shipped = library.framework(rule.profile)
    profile = _as_run(shipped, run, rule, adapter)
    has_fixed_loss = rule.per_logit not in (None, shipped.memory.per_logit)
    cluster = run_cluster(run, gpu)
    context = LayoutChoice(
        run=run,
        rule=rule,
        profile=profile,
        gpu=gpu,
        model=model,
        domain_size=cluster.scale_up.domain_size,
        loss_kernel=code,
    )
    case = TrainingCase(
        model=model,
        gpu=gpu,
        cluster=cluster,
        framework=profile,
        rule=rule,
        sequence_length=length,
        layouts=tuple(layouts(context)),
        memory_kind=memory_kind(run),
        has_fixed_loss=has_fixed_loss or code != LossKernel.AUTO,
        adapter=adapter,
        lora_rank=run.count("lora_rank") or _LORA_RANK,
        modules_to_save=_saved_modules(run, adapter),
        double_quantization=run.flag("double_quantization") is not False,
        samples=_samples(run),
        pipeline_layout=_pipeline_layout(run),
        is_fine_tuning=is_fine_tuning(run),
        catalogue=library.catalogue,
    )
    try:
        _ = case.inputs
    except ValidationErrors as error:  # a number of the run is outside the range of a question
        (name,), text = error.errors[0]
        raise NotPredicted(f"impossible {name}: {text}") from error
    return case


def _length(run: Run, rule: FrameworkRule) -> int:
    """Return the sequence length [tokens]; if fine-tuning does not state it, the usual one."""
    length = run.count("sequence_length")
    if length is None and is_fine_tuning(run):
        return rule.sample_length
    if length is None or length > _LONGEST_SEQUENCE:
        raise NotPredicted("the sequence length is not specified, or out of range")
    return length


def _saved_modules(run: Run, adapter: AdapterKind) -> SavedModules:
    """Return the modules that a run trains in full in addition to its adapter (LoRA)."""
    word = run.word("modules_to_save")
    if adapter is AdapterKind.NONE or not word:
        return SavedModules.NONE
    if word not in [*SavedModules]:
        raise NotPredicted(f"modules_to_save of {word} is not modelled: none or embeddings are")
    return SavedModules(word)


def _samples(run: Run) -> Samples:
    """Return padding and lengths [tokens] of the samples; packed if no mean length is stated."""
    word, mean = run.word("padding"), run.number("mean_sample_length")
    if word and word not in [*Padding]:
        raise NotPredicted(f"padding of {word} is not modelled: packed, longest, full, none are")
    if not mean or word in ("", Padding.PACKED):
        return Samples()
    deviation = run.number("sample_length_deviation")
    deviation = USUAL_DEVIATION * mean if deviation is None else deviation
    return Samples(padding=Padding(word), mean_length=round(mean), deviation=round(deviation))


def is_fine_tuning(run: Run) -> bool:
    """Whether weights that are there already are trained on."""
    return run.word("workload") not in _FROM_SCRATCH


def _pipeline_layout(run: Run) -> str:
    """Return the pipeline layout that the run states; raises NotPredicted if invalid."""
    layout = run.text("pipeline_layout")
    if layout:
        try:
            layers_of_chunks(layout)
        except SpecError as error:
            raise NotPredicted(str(error)) from error
    return layout


def _trained(run: Run, model: ModelSpec, rule: FrameworkRule, adapter: AdapterKind) -> ModelSpec:
    """Return the model with the multi-token prediction modules that the run trains."""
    num_modules = run.number("mtp_num_layers")
    if num_modules is not None:
        if num_modules > MOST_MODULES:
            raise NotPredicted("the number of multi-token prediction modules is out of range")
        return with_mtp(model, int(num_modules))
    if not rule.trains_mtp or adapter is not AdapterKind.NONE:
        return model
    return with_mtp(model, model.num_nextn_predict_layers)


def _as_run(
    shipped: FrameworkProfile, run: Run, rule: FrameworkRule, adapter: AdapterKind
) -> FrameworkProfile:
    """Return the framework profile with the loss, dispatch and memory options of the run.

    Changes the loss; 8-bit activation inputs in fine-tuning; DeepEP and Hybrid-EP, which send a
    token once per node, not once per expert; and no host waits for experts if CUDA graphs or counts
    on the GPU avoid these.
    """
    memory, execution = shipped.memory, shipped.execution
    per_logit = rule.per_logit
    if adapter is AdapterKind.QLORA and rule.quantized_per_logit is not None:
        per_logit = rule.quantized_per_logit
    if per_logit is not None:
        memory = replace(memory, per_logit=per_logit, loss_room=0.0)
    elif _copies_logits(run, rule) and memory.per_logit > memory.per_logit_fused:
        memory = replace(memory, per_logit=memory.per_logit + SHIFTED_BYTES)
    if adapter is not AdapterKind.NONE and run.flag("fp8_activation_inputs"):
        memory = replace(memory, fp8_activation_inputs=True)
    if dispatcher := run.word("token_dispatcher"):
        execution = replace(execution, deduplicated_dispatch=dispatcher in ONCE_PER_NODE)
    if run.word("cuda_graphs") in _NO_HOST_WAITS:
        execution = replace(execution, expert_host_wait=0.0)
    if memory is shipped.memory and execution is shipped.execution:
        return shipped
    return replace(shipped, memory=memory, execution=execution)


def _copies_logits(run: Run, rule: FrameworkRule) -> bool:
    """Return whether the run's loss shifted a copy of the logits, not the labels."""
    year, last = run.number("year"), rule.copies_logits_until
    return year is not None and last is not None and year <= last


def _loss(run: Run, rule: FrameworkRule) -> tuple[str, LossKernel]:
    """Return name and kernel of the loss: stated by the run, or usual for framework and year."""
    fused = since(rule.fused_loss_from, run.number("year"))
    word = run.word("loss") or ("fused" if fused else "eager")
    if word not in _LOSSES:
        raise NotPredicted(f"loss {word!r} is not {', '.join(_LOSSES)}")
    if not run.word("loss") and word == "fused":
        return word, LossKernel.AUTO
    return word, _LOSSES[rule.fused_loss if word == "fused" else word]


def memory_kind(run: Run) -> MemoryKind:
    """Return what the measured memory includes: stated, or as the framework prints it."""
    if run.word("memory_kind"):
        try:
            return MemoryKind(run.word("memory_kind"))
        except ValueError:
            return MemoryKind.DEVICE
    return MemoryKind(framework_rule(_framework(run)).memory_kind or MemoryKind.DEVICE)


def _software(run: Run) -> str:
    """Return the framework, without DeepSpeed if that would shard and offload nothing."""
    name = run.text("framework")
    offloads = run.word("offload") not in ("", "none")
    idle = run.count("num_gpus") == 1 and not (run.text("zero_stage") or offloads)
    return _DEEPSPEED_WITH_TRAINER.sub("", name) if idle and is_fine_tuning(run) else name


def _framework(run: Run) -> str:
    """Return framework, version, GPU, options and year as one text, to match the rules."""
    graphs = "by layer graphs" if run.word("cuda_graphs") == "layers" else ""
    overlap = "tp-comm-overlap" if run.flag("tp_comm_overlap") else ""
    version_and_gpu = (run.text(name) for name in ("framework_version", "gpu"))
    bits = "8-bit" if "fp8" in run.word("precision") else ""
    parts = (_software(run), *version_and_gpu, graphs, overlap, bits, run.text("year"))
    return " ".join(part for part in parts if part)


_SIXTEEN_BIT, _FOUR_BIT = 2.0, 0.5


def impossible_training_layouts(_: Sequence[Run], cases: Sequence[TrainingCase]) -> list[str]:
    """The reason why all layouts of each run are impossible; empty if one is possible."""
    return [next(_errors(case), "") for case in cases]


def _errors(case: TrainingCase) -> Iterator[str]:
    """Yield why a run is impossible: heads do not divide, or weights exceed the GPU's memory."""
    sizes = {layout.tensor_parallel for layout in case.layouts}
    heads = [attention.split_heads[0] for attention in case.model.attentions]
    if sizes and all(number % size for size in sizes for number in heads):
        yield f"tensor_parallel {min(sizes)} does not divide {heads[0]} heads"
    if any(layout.offload is not Offload.NONE for layout in case.layouts):
        return
    each = _FOUR_BIT if case.adapter is AdapterKind.QLORA else _SIXTEEN_BIT
    least = each * count_parameters(case.model).total / case.num_gpus
    if least > case.gpu.allocatable_memory:
        have = case.gpu.allocatable_memory
        yield f"weights of {least / GIB:,.0f} GiB on a GPU of {have / GIB:,.0f} GiB"


# Sizes of a layout; 1 without a value in the row is the default, not an assumption.
_SIZES = terms_about("layout_size")


def training_choices(run: Run, case: TrainingCase) -> Iterator[str]:
    """Yield each assumption about a training run because the run does not state it."""
    if not run.text("workload"):
        yield "workload pretrain"
    if not run.text("sequence_length"):
        yield f"sequence_length {case.sequence_length}, usual for fine-tuning with it"
    yield from _layout(run, case.layouts)
    if not run.text("year"):
        yield "year: features as of now"
    num_gpus, per_node = case.layouts[0].num_gpus, case.cluster.gpus_per_node
    if num_gpus > 1 and not run.text("gpus_per_node"):
        yield f"gpus_per_node {per_node}"
    if num_gpus > per_node and not run.text("scale_out_gbit_per_s"):
        yield f"network as usual for {case.gpu.name}"
    if run.text("measured_peak_memory_gib") and not run.text("memory_kind"):
        yield f"memory_kind {case.memory_kind}"


def _layout(run: Run, layouts: tuple[Layout, ...]) -> Iterator[str]:
    """Yield each layout parameter that is assumed because the run does not state it."""
    for name in (*_SIZES, *terms_about("layout_choice")):
        values = sorted({getattr(layout, name) for layout in layouts})
        absent = name in _SIZES and values == [1]
        first = layouts[0]
        is_idle = (name == "zero_stage" and first.data_parallel * first.context_parallel == 1) or (
            name == "sequence_parallel" and first.tensor_parallel == 1
        )
        if len(values) == 1 and (run.text(name) or absent or is_idle):
            continue
        yield f"{name} {' or '.join(map(_word, values))}"


def _word(value: float) -> str:
    if isinstance(value, Recompute | ComputePrecision):
        return value.word
    return f"{value:g}"


# Of layouts a source leaves open, those that are fast are the likelier: it published its best.
# A layout 10 % slower than another counts half as much.
PREFERENCE = 7.0

_OUTSIDE: dict[MemoryKind, tuple[str, ...]] = {
    MemoryKind.DEVICE: (),
    MemoryKind.RESERVED: ("reserved", "communication_buffers"),
    MemoryKind.ALLOCATED: ("reserved", "communication_buffers", "fragmentation"),
}
LIKELY_SHARE = 0.945
"""Layouts that are predicted to fill more of the memory are believed in only where all do."""

# Rules that show contradictions within a row; its framework need not follow the other rules.
_IMPOSSIBLE = ("gpu_count", "precision", "num_hidden_layers", "pipeline_layout")


def predict_training_group(cases: Sequence[TrainingCase]) -> Iterable[Prediction]:
    """Yield the prediction of each case of one group, in order."""
    every = [layout for case in cases for layout in case.layouts]
    configurations = TrainingConfigurations.of(
        **{name: [getattr(layout, name) for layout in every] for name in NAMES}
    )
    estimate = evaluate(cases[0].inputs, configurations, usable_share=LIKELY_SHARE)
    table = _Columns.of(estimate, len(every))
    start = 0
    for case in cases:
        stop = start + len(case.layouts)
        yield _summed_up(case, table.rows(slice(start, stop)))
        start = stop


class _Columns(NamedTuple):
    """The used quantities of an estimate, a row per layout; ``memory`` by kind of measurement."""

    step_time: FloatArray
    tokens_per_second: FloatArray
    rejected_by: CodeArray
    repeats_all: BoolArray
    memory: Mapping[MemoryKind, FloatArray]

    @classmethod
    def of(cls, estimate: Estimate, size: int) -> _Columns:
        """Return the quantities of an estimate as arrays of ``size`` layouts."""
        fullest, peak, shape = estimate.memory.fullest, estimate.peak_memory, (size,)
        return cls(
            step_time=np.broadcast_to(estimate.step_time, shape),
            tokens_per_second=np.broadcast_to(estimate.tokens_per_second, shape),
            rejected_by=np.broadcast_to(estimate.rejected_by, shape),
            repeats_all=np.broadcast_to(
                np.equal(estimate.configurations.recompute, Recompute.FULL), shape
            ),
            memory={
                kind: np.broadcast_to(peak - sum(getattr(fullest, part) for part in parts), shape)
                for kind, parts in _OUTSIDE.items()
            },
        )

    def rows(self, part: slice) -> _Columns:
        """Return the rows of some layouts."""
        return _Columns(
            step_time=self.step_time[part],
            tokens_per_second=self.tokens_per_second[part],
            rejected_by=self.rejected_by[part],
            repeats_all=self.repeats_all[part],
            memory={kind: values[part] for kind, values in self.memory.items()},
        )


def _summed_up(case: TrainingCase, rows: _Columns) -> Prediction:
    """Return the weighted geometric mean of the predictions of all plausible layouts."""
    usable, reason = _usable(rows)
    if reason:
        return Prediction(case=case, reason=reason)
    speed = rows.tokens_per_second[usable]
    weights = (speed / speed.max()) ** PREFERENCE
    weights /= weights.sum()

    def mean(values: FloatArray) -> float:
        return float(np.exp(np.sum(weights * np.log(values[usable]))))

    device, capacity = mean(rows.memory[MemoryKind.DEVICE]), case.gpu.allocatable_memory
    tokens = mean(rows.tokens_per_second)
    chance = float(case.memory_errors.fit_probability(predicted=device, usable=capacity))
    return Prediction(
        case=case,
        values={
            "step_time_s": mean(rows.step_time),
            "tokens_per_s": tokens,
            "tokens_per_s_per_gpu": tokens / case.num_gpus,
            MEMORY: mean(rows.memory[case.memory_kind]) / GIB,
        },
        device_memory=device,
        needed_memory=device,
        capacity=capacity,
        fit_probability=chance,
        fits=chance >= default_fit_confidence(TRAINING_TABLES),
    )


def _usable(rows: _Columns) -> tuple[BoolArray, str]:
    """Return True for each most plausible layout (those that fit, if any), and a reason if none.

    Full recomputation counts only if selective recomputation does not fit, as Megatron Bridge's
    guide to activation recomputation recommends.
    """
    code, time, device = rows.rejected_by, rows.step_time, rows.memory[MemoryKind.DEVICE]
    finite = np.isfinite(time) & (time > 0) & np.isfinite(device) & (device > 0)
    impossible = [REJECTIONS.index(name) + 1 for name in _IMPOSSIBLE]
    possible = finite & ~np.isin(code, impossible)
    out_of_memory = code == len(REJECTIONS)
    for choice in (possible & (code == 0), possible & out_of_memory, possible):
        if choice.any():
            less = choice & ~rows.repeats_all
            return less if less.any() else choice, ""
    first = int(code[0])
    if 0 < first <= len(RULES):
        return possible, f"impossible layout: {RULES[first - 1].description}"
    return possible, "the numbers of the row are too large to be computed"
