"""What of a model a request trains: adapters, modules of multi-token prediction."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from planner.base.cells import Value
from planner.base.enums import (
    AdapterKind,
    AdapterTargets,
    Padding,
)
from planner.base.training_names import (
    ExpertAdapters,
    SavedModules,
    is_one_end,
    names_feed_forward,
    saved_modules,
    targets_named,
)
from planner.errors import SearchSpaceError, did_you_mean
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.framework import FrameworkProfile
from planner.specs.model import MOST_MODULES, ModelSpec
from planner.specs.workload import USUAL_DEVIATION, TrainingWorkload

# Where nobody says so, and the most: the rank of MLPerf's task, the tokens of PEFT's examples.
_BITS = (4, 8)
_COUNTS = {"lora_rank": (16, 100_000), "virtual_tokens": (20, 100_000)}

# Beside the words of a set: what names of modules stand for it (`planner.base.training_names`).
_ALSO = {
    "lora_targets": ("names of modules such as q_proj,v_proj",),
    "modules_to_save": ("names of modules such as embed_tokens,lm_head",),
}

_Words = TypeVar("_Words", bound=StrEnum)


def adapter_kind(request: Request) -> AdapterKind:
    """The adapter of a request.

    Raises
    ------
    SearchSpaceError
        It is unknown.
    """
    return _word("adapter", str(request.adapter), AdapterKind)


def adapter_fields(request: Request, defaults: MutableMapping[str, str]) -> dict[str, object]:
    """The adapter's fields of a workload; what nobody gave goes into ``defaults``.

    Raises
    ------
    SearchSpaceError
        One of them is unknown, impossible, or useless without an adapter.
    """
    kind = adapter_kind(request)
    _refuse_useless(request, kind)
    if kind is AdapterKind.NONE:
        return {"adapter": kind}
    saved = _word("modules_to_save", saved_modules(request.modules_to_save), SavedModules)
    if is_one_end(request.modules_to_save):
        named = f"{request.modules_to_save} alone is not predicted"
        defaults["modules_to_save"] = f"embedding and logits ({named}: both are counted)"
    fields: dict[str, object] = {"adapter": kind, "modules_to_save": saved}
    if not kind.is_low_rank:
        return fields | {
            "lora_targets": AdapterTargets.QUERY_VALUE,
            "virtual_tokens": _count("virtual_tokens", request.virtual_tokens, defaults),
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
        "lora_rank": _count("lora_rank", request.lora_rank, defaults),
        "lora_targets": _word("lora_targets", targets_named(targets), AdapterTargets),
    }


def with_expert_adapters(
    work: TrainingWorkload, request: Request, model: ModelSpec, profile: FrameworkProfile
) -> TrainingWorkload:
    """The workload with what its routed experts have: as asked, as named, or as the framework does.

    Raises
    ------
    SearchSpaceError
        It is unknown, or asked for where there is nothing to adapt.
    """
    given = request.expert_adapters
    is_wide = work.adapter.is_low_rank and work.lora_targets is AdapterTargets.ALL_LINEAR
    if given is not None:
        found = _word("expert_adapters", given, ExpertAdapters)
        if found is not ExpertAdapters.NONE and not (is_wide and model.num_experts):
            raise SearchSpaceError(
                "expert_adapters needs lora_targets all_linear and a model with routed experts."
            )
        return replace(work, expert_adapters=found)
    if not (is_wide and model.num_experts):
        return work
    usual = profile.expert_adapters
    if usual is ExpertAdapters.NONE and names_feed_forward(request.lora_targets or ""):
        usual = ExpertAdapters.EACH
    return replace(work, expert_adapters=usual)


def expert_words(work: TrainingWorkload) -> str:
    """What routed experts have, in words; of models that have some."""
    return {
        ExpertAdapters.NONE: "none on routed experts",
        ExpertAdapters.SHARED: "one for all routed experts of a rank",
        ExpertAdapters.EACH: "one on each routed expert",
    }[work.expert_adapters]


def adapter_answers(work: TrainingWorkload) -> dict[str, Value]:
    """What a plan says of its adapter besides the kind; what is not as usual, only if so."""
    found: dict[str, Value] = {"virtual_tokens": work.virtual_tokens}
    if work.adapter.is_low_rank:
        found = {"lora_rank": work.lora_rank, "lora_targets": str(work.lora_targets)}
    if work.saves_ends:
        found["modules_to_save"] = str(work.modules_to_save)
    if not work.double_quantization:
        found["double_quantization"] = False
    if work.quantization_bits != _BITS[0]:
        found["quantization_bits"] = work.quantization_bits
    return found


def adapter_words(work: TrainingWorkload) -> str:
    """What of a frozen model is trained, in words."""
    words = f"{work.adapter} tuning of {work.virtual_tokens} virtual tokens"
    if work.adapter.is_low_rank:
        words = f"{work.adapter} of rank {work.lora_rank} on {work.lora_targets}"
    return f"{words}, embedding and logits" if work.saves_ends else words


def sample_fields(
    request: Request, sequence_length: int, defaults: MutableMapping[str, str]
) -> dict[str, object]:
    """The samples of a workload; what nobody gave goes into ``defaults``.

    Raises
    ------
    SearchSpaceError
        One of them is unknown, impossible or useless.
    """
    padding = _word("padding", request.padding or Padding.PACKED, Padding)
    mean, deviation = request.mean_sample_length, request.sample_length_deviation
    if padding is Padding.PACKED:
        counted = request.num_samples is not None and deviation is None
        if (mean is not None and not counted) or deviation is not None:
            given = "sample_length_deviation" if mean is None else "mean_sample_length"
            raise SearchSpaceError(
                f"Samples that are packed fill their sequences: {given} needs padding "
                "longest, full or none, or num_samples."
            )
        return {}
    if mean is None or not _is_whole(mean, 1, sequence_length):
        raise SearchSpaceError(
            f"padding {padding} needs mean_sample_length, a whole number of tokens from 1 to "
            f"those of a sequence, {sequence_length:,}."
        )
    if deviation is None:
        deviation = round(USUAL_DEVIATION * mean)
        defaults["sample_length_deviation"] = f"{deviation:,} (default: 0.8 of the mean)"
    return dict(zip(terms_about("samples"), (padding, mean, deviation), strict=True))


def sample_answers(work: TrainingWorkload) -> dict[str, Value]:
    """What a plan says of samples that do not fill their sequences."""
    if work.padding is Padding.PACKED:
        return {}
    found = {name: getattr(work, name) for name in terms_about("samples")}
    return found | {"padding": str(work.padding)}


def _refuse_useless(request: Request, kind: AdapterKind) -> None:
    """Refuse what says nothing of this kind of adapter."""
    has_virtual = kind in (AdapterKind.PROMPT, AdapterKind.PREFIX)
    may_save = kind is not AdapterKind.NONE or request.modules_to_save == "none"
    is_qlora = kind is AdapterKind.QLORA
    of_qlora = (is_qlora, ": qlora")
    others = (may_save, ""), (has_virtual, ": prompt or prefix"), of_qlora, of_qlora
    needed = dict.fromkeys(terms_about("low_rank"), (kind.is_low_rank, ": lora or qlora"))
    needed |= zip(terms_about("of_adapter"), others, strict=True)
    for name, (suits, which) in needed.items():
        given = getattr(request, name)
        if not suits and given not in (None, getattr(Request, name)):
            raise SearchSpaceError(f"{name} needs an adapter{which}.")


def _count(name: str, given: int | None, defaults: MutableMapping[str, str]) -> int:
    """A number of an adapter, within its limits; the default is noted."""
    usual, most = _COUNTS[name]
    if given is None:
        defaults[name] = f"{usual} (default)"
        return usual
    if not _is_whole(given, 1, most):
        raise SearchSpaceError(f"{name} is a whole number from 1 to {most:,}, not {given!r}.")
    return given


def mtp_num_layers(request: Request, model: ModelSpec, defaults: MutableMapping[str, str]) -> int:
    """Modules of multi-token prediction that are trained; published ones go into ``defaults``.

    Raises
    ------
    SearchSpaceError
        Their number makes no sense, or they are asked for beside an adapter.
    """
    asked, is_frozen = request.mtp_num_layers, adapter_kind(request) is not AdapterKind.NONE
    if asked is None:
        published = 0 if is_frozen else model.num_nextn_predict_layers
        if published:
            defaults["mtp_num_layers"] = f"{published} (published run of {model.name})"
        return published
    if not _is_whole(asked, 0, MOST_MODULES):
        raise SearchSpaceError(
            f"mtp_num_layers is a whole number from 0 to {MOST_MODULES}, not {asked!r}."
        )
    if asked and is_frozen:
        raise SearchSpaceError(
            "mtp_num_layers trains whole modules, an adapter none: leave one of them out."
        )
    return asked


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _word(name: str, given: str, kind: type[_Words]) -> _Words:
    """A member of a closed set of words, in any case and with dashes or underscores."""
    text = str(given).strip().lower().replace("-", "_")
    if text not in list(kind):
        hint = did_you_mean(text, list(kind))
        known = ", ".join((*kind, *_ALSO.get(name, ())))
        raise SearchSpaceError(f"{name} {given!r} is unknown.{hint} Known: {known}.")
    return kind(text)
