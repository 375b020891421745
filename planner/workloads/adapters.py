"""What of a model a request trains: adapters, modules of multi-token prediction."""

from __future__ import annotations

from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, TypeVar

from planner.enums import AdapterKind, AdapterTargets
from planner.errors import SearchSpaceError, did_you_mean
from planner.request import Request
from planner.specs.model import MOST_MODULES, ModelSpec

_LORA_RANK = 16
_MOST_LORA_RANK = 100_000

_Words = TypeVar("_Words", bound=StrEnum)


def adapter_kind(request: Request) -> AdapterKind:
    """The adapter of a request.

    Raises
    ------
    SearchSpaceError
        It is unknown.
    """
    return _word("adapter", str(request.adapter), AdapterKind)


def adapter_fields(request: Request, defaults: MutableMapping[str, str]) -> dict[str, Any]:
    """The adapter's fields of a workload; what nobody gave goes into ``defaults``.

    Raises
    ------
    SearchSpaceError
        One of them is unknown, impossible, or useless without an adapter.
    """
    kind = adapter_kind(request)
    given = {"lora_rank": request.lora_rank, "lora_targets": request.lora_targets}
    if kind is AdapterKind.NONE:
        useless = [name for name, value in given.items() if value is not None]
        if useless:
            raise SearchSpaceError(f"{useless[0]} needs an adapter: lora or qlora.")
        return {"adapter": kind}
    rank, targets = request.lora_rank, request.lora_targets
    if rank is None:
        rank = _LORA_RANK
        defaults["lora_rank"] = f"{rank} (default)"
    elif not _is_whole(rank, 1, _MOST_LORA_RANK):
        raise SearchSpaceError(
            f"lora_rank is a whole number from 1 to {_MOST_LORA_RANK:,}, not {rank!r}."
        )
    if targets is None:
        targets = AdapterTargets.ATTENTION
        defaults["lora_targets"] = f"{targets} (default)"
    return {
        "adapter": kind,
        "lora_rank": rank,
        "lora_targets": _word("lora_targets", targets, AdapterTargets),
    }


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
        raise SearchSpaceError(f"{name} {given!r} is unknown.{hint} Known: {', '.join(kind)}.")
    return kind(text)
