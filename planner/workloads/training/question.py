"""The question of a training run: trained weights, objective, samples, length, and defaults."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from planner.base.csv_cells import Value
from planner.base.enums import AdapterKind, AdapterTargets, ComputePrecision, Padding, Precision
from planner.base.formatting import format_large
from planner.base.training_aliases import (
    ExpertAdapters,
    SavedModules,
    TrainingObjective,
    is_one_end,
    names_feed_forward,
    parse_adapter_targets,
    parse_objective,
    saved_modules,
)
from planner.configurations.enumerate import global_batch_of
from planner.errors import PlannerError, SearchSpaceError, SpecError, did_you_mean
from planner.estimators.training.micro_batch_share import tokens_of_sample
from planner.layers.model import count_parameters
from planner.question.names import (
    DOUBLE_QUANTIZATION,
    MEAN_SAMPLE_LENGTH,
    MODULES_TO_SAVE,
    PADDING,
    QUANTIZATION_BITS,
    SAMPLE_LENGTH_DEVIATION,
    SEQUENCE_LENGTH,
    TOTAL_TOKENS,
    VIRTUAL_TOKENS,
)
from planner.question.parse_values import parse_int
from planner.question.request import ALL, Request
from planner.question.terms import glossary, terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.framework import FrameworkProfile
from planner.specs.gpu import GpuSpec
from planner.specs.model import MOST_MODULES, ModelSpec
from planner.specs.serving_workload import with_mtp
from planner.specs.spec_files import check_spec, text_digest
from planner.specs.training_workload import (
    USUAL_DEVIATION,
    AdapterSetup,
    TrainingWorkload,
    layers_of_chunks,
)
from planner.workloads.assumptions import PlanNotes
from planner.workloads.image_inputs import image_fields
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.workload import WorkloadQuestion

# Defaults and maxima: the rank of MLPerf's task, the tokens of PEFT's examples.
_BITS = (4, 8)
_COUNTS = {"lora_rank": (16, 100_000), VIRTUAL_TOKENS: (20, 100_000)}

# Further accepted values: names of modules (`planner.base.training_aliases`).
_ALSO = {
    "lora_targets": ("names of modules such as q_proj,v_proj",),
    MODULES_TO_SAVE: ("names of modules such as embed_tokens,lm_head",),
}

_Words = TypeVar("_Words", bound=StrEnum)
_Adapted = TypeVar("_Adapted", bound=AdapterSetup)


def adapter_kind(request: Request) -> AdapterKind:
    """The kind of adapter of a request (LoRA, QLoRA, ...; ``none``: all weights are trained).

    Raises SearchSpaceError if the kind is unknown.
    """
    return parse_member("adapter", str(request.adapter), AdapterKind)


def adapter_fields(request: Request, defaults: MutableMapping[str, str]) -> dict[str, object]:
    """The adapter (LoRA) fields of a workload, checked; assumed values go into ``defaults``.

    Raises SearchSpaceError if an option is unknown, impossible, or useless without an adapter.
    """
    kind = adapter_kind(request)
    _refuse_unused_options(request, kind)
    if kind is AdapterKind.NONE:
        return {"adapter": kind}
    saved = parse_member("modules_to_save", saved_modules(request.modules_to_save), SavedModules)
    if is_one_end(request.modules_to_save):
        named = f"{request.modules_to_save} alone is not predicted"
        defaults["modules_to_save"] = f"embedding and logits ({named}: both are counted)"
    fields: dict[str, object] = {"adapter": kind, MODULES_TO_SAVE: saved}
    if not kind.is_low_rank:
        return fields | {
            "lora_targets": AdapterTargets.QUERY_VALUE,
            VIRTUAL_TOKENS: _parse_count("virtual_tokens", request.virtual_tokens, defaults),
        }
    if kind is AdapterKind.QLORA:
        fields["double_quantization"] = request.double_quantization
        bits = request.quantization_bits or _BITS[0]
        if bits not in _BITS:
            raise SearchSpaceError(f"quantization_bits is 4 or 8, not {bits}.")
        fields["quantization_bits"] = bits
    targets = request.lora_targets
    if targets is None:
        targets = AdapterTargets.ATTENTION
        defaults["lora_targets"] = f"{targets} (default)"
    return fields | {
        "lora_rank": _parse_count("lora_rank", request.lora_rank, defaults),
        "lora_targets": parse_member(
            "lora_targets", parse_adapter_targets(targets), AdapterTargets
        ),
    }


def with_framework_adapters(
    work: _Adapted, request: Request, model: ModelSpec, profile: FrameworkProfile
) -> _Adapted:
    """The workload with its LoRA targets and adapters of routed experts; default: the framework's.

    Raises SearchSpaceError if the value is unknown, or there are no experts to adapt.
    """
    if work.adapter.is_low_rank and request.lora_targets is None:
        work = replace(work, lora_targets=profile.lora_targets)
    requested = request.expert_adapters
    is_wide = work.adapter.is_low_rank and work.lora_targets is AdapterTargets.ALL_LINEAR
    if requested is not None:
        adapters = parse_member("expert_adapters", requested, ExpertAdapters)
        if adapters is not ExpertAdapters.NONE and not (is_wide and model.num_experts):
            raise SearchSpaceError(
                "expert_adapters needs lora_targets all_linear and a model with routed experts."
            )
        return replace(work, expert_adapters=adapters)
    if not (is_wide and model.num_experts):
        return work
    default = profile.expert_adapters
    if default is ExpertAdapters.NONE and names_feed_forward(request.lora_targets or ""):
        default = ExpertAdapters.EACH
    return replace(work, expert_adapters=default)


def format_expert_adapters(work: AdapterSetup) -> str:
    """Text on which LoRA adapters the routed experts have."""
    return {
        ExpertAdapters.NONE: "none on routed experts",
        ExpertAdapters.SHARED: "one for all routed experts of a rank",
        ExpertAdapters.EACH: "one on each routed expert",
    }[work.expert_adapters]


def adapter_answers(work: AdapterSetup) -> dict[str, Value]:
    """The adapter (LoRA) answers of a plan by question, without the kind and defaults."""
    answers: dict[str, Value] = {VIRTUAL_TOKENS: work.virtual_tokens}
    if work.adapter.is_low_rank:
        answers = {"lora_rank": work.lora_rank, "lora_targets": str(work.lora_targets)}
    if work.saves_ends:
        answers["modules_to_save"] = str(work.modules_to_save)
    if not work.double_quantization:
        answers["double_quantization"] = False
    if work.quantization_bits != _BITS[0]:
        answers["quantization_bits"] = work.quantization_bits
    return answers


def format_adapter(work: AdapterSetup) -> str:
    """Text on the trained part of a frozen model: LoRA rank and targets, or virtual tokens."""
    text = f"{work.adapter} tuning of {work.virtual_tokens} virtual tokens"
    if work.adapter.is_low_rank:
        text = f"{work.adapter_name} of rank {work.lora_rank} on {work.lora_targets}"
    return f"{text}, embedding and logits" if work.saves_ends else text


def sample_fields(
    request: Request, sequence_length: int, defaults: MutableMapping[str, str]
) -> dict[str, object]:
    """The fields of padded samples of a workload, checked; assumed values go into ``defaults``.

    Raises SearchSpaceError if an option is unknown, impossible or useless.
    """
    padding = parse_member("padding", request.padding or Padding.PACKED, Padding)
    mean, deviation = request.mean_sample_length, request.sample_length_deviation
    if padding is Padding.PACKED:
        counted = request.num_samples is not None and deviation is None
        if (mean is not None and not counted) or deviation is not None:
            option = "sample_length_deviation" if mean is None else "mean_sample_length"
            raise SearchSpaceError(
                f"Samples that are packed fill their sequences: {option} needs padding "
                "longest, full or none, or num_samples."
            )
        return {}
    if mean is None or not _is_int_between(mean, 1, sequence_length):
        raise SearchSpaceError(
            f"padding {padding} needs mean_sample_length, a whole number of tokens from 1 to "
            f"those of a sequence, {sequence_length:,}."
        )
    if deviation is None:
        deviation = round(USUAL_DEVIATION * mean)
        defaults["sample_length_deviation"] = f"{deviation:,} (default: 0.8 of the mean)"
    return {PADDING: padding, MEAN_SAMPLE_LENGTH: mean, SAMPLE_LENGTH_DEVIATION: deviation}


def sample_answers(work: TrainingWorkload) -> dict[str, Value]:
    """The answers on padded samples by question; empty if samples are packed."""
    if work.padding is Padding.PACKED:
        return {}
    answers = {name: getattr(work, name) for name in terms_about("sample_padding")}
    return answers | {PADDING: str(work.padding)}


def _refuse_unused_options(request: Request, kind: AdapterKind) -> None:
    """Refuse adapter options that this kind of adapter does not use."""
    has_virtual = kind in (AdapterKind.PROMPT, AdapterKind.PREFIX)
    may_save = kind is not AdapterKind.NONE or request.modules_to_save == "none"
    is_qlora = kind is AdapterKind.QLORA
    needed: dict[str, tuple[bool, str]] = {
        MODULES_TO_SAVE: (may_save, ""),
        VIRTUAL_TOKENS: (has_virtual, ": prompt or prefix"),
        DOUBLE_QUANTIZATION: (is_qlora, ": qlora"),
        QUANTIZATION_BITS: (is_qlora, ": qlora"),
    }
    low_rank = dict.fromkeys(terms_about("low_rank"), (kind.is_low_rank, ": lora or qlora"))
    for name, (suits, which) in (low_rank | needed).items():
        answer = getattr(request, name)
        if not suits and answer not in (None, getattr(Request, name)):
            raise SearchSpaceError(f"{name} needs an adapter{which}.")


def _parse_count(name: str, count: int | None, defaults: MutableMapping[str, str]) -> int:
    """The checked adapter number ``name``, such as the LoRA rank; a default is noted."""
    default, maximum = _COUNTS[name]
    if count is None:
        defaults[name] = f"{default} (default)"
        return default
    if not _is_int_between(count, 1, maximum):
        raise SearchSpaceError(f"{name} is a whole number from 1 to {maximum:,}, not {count!r}.")
    return count


def mtp_num_layers(request: Request, model: ModelSpec, defaults: MutableMapping[str, str]) -> int:
    """The number of trained multi-token prediction modules; default: as published.

    Raises SearchSpaceError if the number is impossible, or set together with an adapter.
    """
    num_layers = request.mtp_num_layers
    is_frozen = adapter_kind(request) is not AdapterKind.NONE or request.trained_layers > 0
    if num_layers is None:
        published = 0 if is_frozen else model.num_nextn_predict_layers
        if published:
            defaults["mtp_num_layers"] = f"{published} (published run of {model.name})"
        return published
    if not _is_int_between(num_layers, 0, MOST_MODULES):
        raise SearchSpaceError(
            f"mtp_num_layers is a whole number from 0 to {MOST_MODULES}, not {num_layers!r}."
        )
    if num_layers and is_frozen:
        raise SearchSpaceError(
            "mtp_num_layers trains whole modules, an adapter or trained_layers none: leave one of "
            "them out."
        )
    return num_layers


def _is_int_between(value: object, minimum: int, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def parse_member(name: str, word: str, kind: type[_Words]) -> _Words:
    """The member of the enumeration ``kind`` that ``word`` names.

    Raises SearchSpaceError if the word is unknown.
    """
    text = str(word).strip().lower().replace("-", "_")
    if text not in list(kind):
        hint = did_you_mean(text, list(kind))
        choices = ", ".join((*kind, *_ALSO.get(name, ())))
        raise SearchSpaceError(f"{name} {word!r} is unknown.{hint} Known: {choices}.")
    return kind(text)


LENGTHS = {name: glossary()[name].option_name for name in terms_about("run_length")}
"""The terms that set the length of a run, with their options; one of them is enough."""
UNKNOWN_TOKENS = 1e9
"""Tokens for time and cost of a fine-tuning run of unspecified length."""
_TOKENS_PER_PARAMETER = 20
_MOST = 1e18
# A product that is divided again may come out one rounding above a whole number of steps.
_ROUNDING = 1e-12


def with_tokens(
    work: TrainingWorkload, request: Request, model: ModelSpec, notes: PlanNotes
) -> TrainingWorkload:
    """The workload with the number of tokens of its run; notes a derived or assumed number.

    Unchanged if the request sets ``total_tokens``.

    Raises SpecError if several options set the length of the run, or the epochs are not positive.
    """
    run_lengths = {name: value for name in LENGTHS if (value := getattr(request, name)) is not None}
    if len(run_lengths) > 1:
        options = " and ".join(LENGTHS[name] for name in run_lengths)
        raise SpecError(f"Each of {options} sets the length of the run: give one of them.")
    epochs = 1.0 if request.epochs is None else request.epochs
    if not epochs > 0:
        raise SpecError(f"epochs is a number above 0, not {epochs:g}.")
    if request.total_tokens is not None:
        return work
    if request.max_steps is not None:
        steps = parse_int(request.max_steps, "max_steps", 1)
        tokens = steps * work.global_batch_size * tokens_of_sample(work) * (1 - _ROUNDING)
        origin = f"{steps:,} steps"
    elif request.num_samples is not None:
        samples = parse_int(request.num_samples, "num_samples", 1)
        tokens_per_sample, text = _tokens_per_sample(work, request)
        tokens = epochs * samples * tokens_per_sample
        origin = f"{epochs:g} x {samples:,} samples of {text}"
    else:
        tokens, origin = _assumed_tokens(work.training_objective, model)
    if not 0 < tokens < _MOST:
        raise SpecError(f"A run of {origin} has {tokens:g} tokens: no run has {_MOST:g} or more.")
    text = f"{tokens / 1e9:,.0f} billion" if tokens >= 1e9 else format_large(tokens)
    notes.defaults["total_tokens"] = f"{text} ({origin})"
    if work.training_objective is not TrainingObjective.PRETRAIN and not run_lengths:
        notes.defaults["total_tokens"] = (
            f"{text}, assumed for time and cost: set the length of the run with --samples N "
            f"--epochs E ({origin})"
        )
    return replace(work, total_tokens=tokens)


def _tokens_per_sample(work: TrainingWorkload, request: Request) -> tuple[float, str]:
    """Mean tokens of a training sample, and a text on them."""
    mean = request.mean_sample_length
    if mean is not None and not work.mean_sample_length:  # packed: none is cut off or padded
        return float(mean * work.sequences_per_sample), f"{mean:,} tokens"
    tokens = tokens_of_sample(work)
    full = "" if work.mean_sample_length else ", assuming that each fills its sequence"
    return tokens, f"{tokens:,.0f} tokens{full}"


def _assumed_tokens(objective: TrainingObjective, model: ModelSpec) -> tuple[float, str]:
    """The default number of tokens of a run, and a text on its source."""
    if objective is not TrainingObjective.PRETRAIN:
        return UNKNOWN_TOKENS, "default of fine-tuning"
    published_tokens = model.training.total_tokens if model.training else None
    if published_tokens is not None:
        return published_tokens, f"published run of {model.name}"
    tokens = float(_TOKENS_PER_PARAMETER * count_parameters(model).total)
    return tokens, "20 per parameter, arXiv:2203.15556"


def objective_of(request: Request, *, is_frozen: bool) -> TrainingObjective:
    """The training objective of a request; default: SFT with an adapter, else pretraining.

    Raises SpecError if the objective is unknown, or contradicts another option.
    """
    default = TrainingObjective.SFT if is_frozen else TrainingObjective.PRETRAIN
    requested = request.training_objective
    objective = default if requested is None else parse_objective(requested)
    can_precompute = objective.has_reference and not objective.needs_rollouts
    if request.precompute_ref_log_probs and not can_precompute:
        raise SpecError("precompute_ref_log_probs needs training_objective dpo or kto.")
    if request.mtp_num_layers and objective.is_preference:
        raise SpecError(
            f"{objective} trains no modules of multi-token prediction: leave out mtp_num_layers."
        )
    return objective


def objective_answers(work: TrainingWorkload) -> dict[str, Value]:
    """The answers on training objective and tuning, by question; defaults are left out."""
    default = TrainingObjective.SFT if work.is_frozen else TrainingObjective.PRETRAIN
    answers: dict[str, Value] = {}
    if work.training_objective is not default:
        answers["training_objective"] = str(work.training_objective)
    if work.tuned is not None:
        answers["tuned"] = work.tuned
    if work.precompute_ref_log_probs:
        answers["precompute_ref_log_probs"] = True
    return answers


def format_objective(work: TrainingWorkload) -> list[str]:
    """Lines on the sequences and forward passes of a preference sample; else empty."""
    objective = work.training_objective
    if not objective.is_preference:
        return []
    sequences = "1 sequence" if work.sequences_per_sample == 1 else "2 sequences"
    parts = [f"{objective}: {sequences} a sample"]
    of_policy, of_reference = work.forward_passes
    if objective is TrainingObjective.RM:
        parts.append("one number in place of the logits")
    if objective.needs_rollouts:
        parts.append("1 forward pass of the policy before the update")
    elif of_policy:
        parts.append("1 forward pass more of another answer")
    if of_reference:
        passes = "1 forward pass" if of_reference == 1 else f"{of_reference} forward passes"
        reference = "a reference model, with its weights in memory"
        parts.append(
            f"{passes} of {reference if work.keeps_reference else 'the adapters switched off'}"
        )
    elif objective.has_reference:
        parts.append("the reference was computed before and is not counted")
    return [", ".join(parts), *([_ROLLOUTS] if objective.needs_rollouts else [])]


_ROLLOUTS = (
    "Only the training step is predicted: generation of answers (rollouts), reward and value "
    "models, and the memory of the engine that generates are not"
)
SINGLE = "single"
"""The space of one configuration; it sets no parameters."""
_PUBLISHED_FIELDS = ("precision", "global_batch_size")


def published_precision(
    request: Request, model: ModelSpec, objective: TrainingObjective
) -> str | None:
    """The precision of the model's published run; None: bf16, or the request differs.

    A request differs if it sets a space, sequence length, batch or precision.
    """
    published = model.training
    if published is None or published.precision == "bf16":
        return None
    answers = (request.precision, request.sequence_length, request.global_batch_size)
    if any(value is not None for value in answers) or any(
        name in request.settings for name in _PUBLISHED_FIELDS
    ):
        return None
    has_custom_space = request.space not in (None, SINGLE)
    if has_custom_space or objective is not TrainingObjective.PRETRAIN:
        return None
    return published.precision


def has_precision(gpu: GpuSpec, precision: str) -> bool:
    """True if a GPU has arithmetic in a precision."""
    return Precision(precision) in gpu.peak_flops


def unmeasured_note(request: Request) -> str:
    """A note on requested precisions that no published run uses; empty if there are none."""
    specified = request.settings.get("precision", request.precision)
    precisions = (
        specified if isinstance(specified, list | tuple) else str(specified or "").split(",")
    )
    requested = {ComputePrecision.canonical_word(str(precision)) for precision in precisions}
    rare = [
        precision
        for precision in ComputePrecision.words()
        if precision in requested - {*ComputePrecision.usual()}
    ]
    if not rare:
        return ""
    note = f"{', '.join(rare)}: kernels not measured in it reach the share of the peak of bf16"
    narrow = "; what int8 products do not read stays as in bf16" if "int8" in rare else ""
    return f"{note}, and no published run uses it{narrow}"


def precision_note(request: Request, catalogue: Catalogue, model: ModelSpec, precision: str) -> str:
    """A note that the published ``precision`` is the default; empty if the GPU lacks it."""
    gpu = request.gpu
    if isinstance(gpu, str) and gpu != ALL:
        try:
            if not has_precision(catalogue.load_gpu(gpu).spec, precision):
                return ""
        except PlannerError:  # raised again where the GPU is read
            return ""
    elif gpu is None and request.cluster is None:
        return ""
    return f"{precision}, --precision bf16 is the other (published run of {model.name})"


_SEQUENCE_LENGTH = 2048
_BATCH_TOKENS = 4 * 2**20
_FINE_TUNING_BATCH = 128
# A batch that is changed so that GPUs can share it has so many shares at least.
_FEWEST_SHARES = 4
_ADAPTER_FRAMEWORK = "hf-trainer"


def make_training_question(
    request: Request, catalogue: Catalogue, notes: PlanNotes
) -> WorkloadQuestion:
    """Read the model, the run and the search space of a training request.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    if request.num_gpus is None:
        raise SearchSpaceError("Give the number of GPUs with --gpus.")
    counts = tuple(sorted(set(gpu_counts(request.num_gpus))))
    model = catalogue.load_model(str(request.model))
    notes.copy(str(request.model), model.name)
    notes.digests[f"model {model.name}"] = text_digest(repr(model))
    work = _make_workload(request, model, notes, counts)
    objective = work.training_objective
    precision = published_precision(request, model, objective)
    if precision and (note := precision_note(request, catalogue, model, precision)):
        notes.defaults["precision"] = note
    if note := unmeasured_note(request):
        notes.defaults["rates"] = note
    if objective is TrainingObjective.RM:
        model = replace(model, num_labels=1)
    if not objective.is_preference:
        model = with_mtp(model, mtp_num_layers(request, model, notes.defaults))
    is_frozen = adapter_kind(request) is not AdapterKind.NONE
    space = "pretrain_moe" if model.num_experts else "pretrain_dense"
    if is_frozen:
        space = "fine_tune"
    space_name = request.space
    return WorkloadQuestion(
        request=request,
        model=model,
        work=work,
        counts=counts,
        space=(space, "default") if space_name is None else (space_name, None),
        profile=(_ADAPTER_FRAMEWORK, "default of adapters")
        if is_frozen and space_name == SINGLE
        else (None, "of the space"),
    )


def _make_workload(
    request: Request, model: ModelSpec, notes: PlanNotes, counts: tuple[int, ...]
) -> TrainingWorkload:
    """The training workload of a request; default lengths and batches are added to ``notes``."""
    published = model.training
    is_frozen = adapter_kind(request) is not AdapterKind.NONE
    objective = objective_of(request, is_frozen=is_frozen)
    s = request.sequence_length
    if s is None:
        limit = model.max_position_embeddings or _SEQUENCE_LENGTH
        s = published.sequence_length if published else min(_SEQUENCE_LENGTH, limit)
        notes.defaults["sequence_length"] = (
            f"{s:,} ({_default_origin(model, published is not None)})"
        )
    batch = request.global_batch_size
    steps = "gradient_accumulation_steps" in request.settings
    if batch is None and steps and "global_batch_size" not in request.settings:
        default_degree = 1 if request.space == SINGLE else None
        batch, origin = global_batch_of(
            request.settings, counts[0], default_degree if len(counts) == 1 else None
        )
        notes.defaults["global_batch_size"] = f"{batch:,} sequences ({origin})"
    if batch is None:
        # An impossible length is refused below, with all other faults of the workload.
        batch, origin = _default_batch(objective, model, max(s, 1))
        batch, origin = _divisible_batch(batch, origin, counts)
        unit = "pairs of sequences" if objective.sequences_per_sample > 1 else "sequences"
        notes.defaults["global_batch_size"] = f"{batch:,} {unit} ({origin})"
    _check_length(model, s)
    tokens = 1.0 if request.total_tokens is None else request.total_tokens
    values: dict[str, float] = {SEQUENCE_LENGTH: s, TOTAL_TOKENS: tokens}
    adapter = adapter_fields(request, notes.defaults)
    if request.pipeline_layout:
        _check_layout(model, request)
    if not _is_int_between(request.trained_layers, 0, model.num_hidden_layers):
        raise SpecError(
            f"trained_layers is a whole number from 0 (all) to {model.num_hidden_layers}, the "
            f"layers of {model.name}, not {request.trained_layers!r}."
        )
    training_fields = {name: getattr(request, name) for name in terms_about("training_field")}
    training_fields |= {
        "pipeline_layout": request.pipeline_layout or "",
        "training_objective": objective,
    }
    training_fields["global_batch_size"] = batch
    samples = sample_fields(request, s, notes.defaults) | image_fields(request, model, s, notes)
    work = check_spec(
        TrainingWorkload, {**values, **training_fields, **adapter, **samples}, where="the workload"
    )
    return with_tokens(work, request, model, notes)


def _check_layout(model: ModelSpec, request: Request) -> None:
    """Refuse a pipeline layout whose number of layers is not that of the model."""
    num_layers = sum(layers_of_chunks(request.pipeline_layout or ""))
    mtp_layers = model.num_nextn_predict_layers if request.mtp_num_layers is None else 0
    possible = {model.num_hidden_layers + (request.mtp_num_layers or 0)}
    possible |= {model.num_hidden_layers + mtp_layers}
    if num_layers not in possible:
        expected = " or ".join(map(str, sorted(possible)))
        raise SpecError(f"pipeline_layout has {num_layers} layers, the model {expected}.")


def _default_batch(
    objective: TrainingObjective, model: ModelSpec, sequence_length: int
) -> tuple[int, str]:
    """The default global batch size [samples], and a text on its source."""
    if objective is not TrainingObjective.PRETRAIN:
        return _FINE_TUNING_BATCH, "default of fine-tuning"
    published_tokens = model.training.global_batch_tokens if model.training else None
    batch = _round_batch((published_tokens or _BATCH_TOKENS) / sequence_length)
    return batch, _default_origin(model, published_tokens is not None)


def _divisible_batch(batch: int, origin: str, counts: tuple[int, ...]) -> tuple[int, str]:
    """The global batch size rounded so that ``counts`` of GPUs share it evenly, and its source."""
    (count, *others) = counts
    unit = count // (count & -count)
    if others or batch % unit == 0 or unit * _FEWEST_SHARES > batch:
        return batch, origin
    while 2 * unit * _FEWEST_SHARES <= batch and count % (2 * unit) == 0:
        unit *= 2
    return round(batch / unit) * unit, f"{origin}: {batch:,}, so that {count:,} GPUs can share it"


def _round_batch(tokens_over_length: float) -> int:
    """Round a global batch size [sequences] to a number that many layouts divide.

    A whole number is the published batch. Otherwise the paper rounded its tokens, such as "4M":
    the nearest power of two, or three times one.
    """
    if tokens_over_length >= 1 and tokens_over_length == int(tokens_over_length):
        return int(tokens_over_length)
    candidates = sorted(factor << power for factor in (1, 3) for power in range(30))
    return min(candidates, key=lambda count: abs(count - tokens_over_length))


def _default_origin(model: ModelSpec, published: bool) -> str:
    return f"published run of {model.name}" if published else "default"


def _check_length(model: ModelSpec, sequence_length: int) -> None:
    """Refuse sequences longer than the learned positions of the model [tokens]."""
    limit = model.most_positions
    if limit is not None and isinstance(sequence_length, int) and sequence_length > limit:
        raise SpecError(
            f"{model.name} has learned positions for {limit:,} tokens, not {sequence_length:,}: "
            "give a shorter --sequence-length, or a model file with more max_position_embeddings."
        )
