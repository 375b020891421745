"""MaxText's remat policies: what of a layer is kept, waits on the host or is computed again.

Names as of AI-Hypercomputer/maxtext e591f30, src/maxtext/layers/decoders.py (get_remat_policy),
src/maxtext/utils/maxtext_utils.py (get_save_and_offload_names) and src/maxtext/configs/base.yml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.base.software_enums import (
    CONTEXT,
    LAYER_INPUT,
    MLPWI,
    MLPWO,
    OUT_PROJ,
    QKV_PROJ,
    TENSORS,
    KeptTensors,
)
from planner.errors import LaunchError
from planner.launch.job import Job
from planner.launch.understood import Reading

_KEYS = {
    LAYER_INPUT: ("decoder_layer_input",),
    QKV_PROJ: ("query_proj", "key_proj", "value_proj"),
    CONTEXT: ("context",),
    OUT_PROJ: ("out_proj",),
    MLPWI: ("mlpwi_0", "mlpwi_1", "mlpwi"),
    MLPWO: ("mlpwo",),
}
_OTHERS = {
    QKV_PROJ: ("qkv_proj", "kv_proj"),
    MLPWI: ("moe_mlpwi_0", "moe_mlpwi_1"),
    MLPWO: ("moe_mlpwo",),
}
KEYS = tuple(key for table in (_KEYS, _OTHERS) for keys in table.values() for key in keys)
"""The keys of base.yml that place a tensor."""
_NAMED = (
    *("save_out_proj", "save_qkv_proj", "save_dot_except_mlp", "save_dot_except_mlpwi"),
    *("save_dot_with_context_except_mlp", "minimal", "minimal_with_context"),
)
_OFFLOADED = ("qkv_proj_offloaded", "minimal_offloaded")
_OLD = ("minimal_flash",)
_NEAREST = {
    "none": "minimal_with_context",
    "selective": "minimal",
    "feed_forward": "save_dot_with_context_except_mlp",
}
_OF_NONE = ("none", "")


def policy_words(job: Job) -> dict[str, Any]:
    """The policy of a plan, and the place of each tensor where no policy has its name."""
    recompute = str(job["recompute"])
    saved, moved = (_set(job[name]) for name in ("saved_tensors", "offloaded_tensors"))
    if "activations" in str(job["offload"]):
        kept = saved if recompute == "full" else _set(KeptTensors.meant(_NEAREST[recompute]))
        saved, moved = frozenset(), kept | {LAYER_INPUT}
    elif recompute != "full":
        return {"remat_policy": _NEAREST[recompute]}
    for policy in ("full", *_NAMED):
        if not moved and saved - {LAYER_INPUT} == _set(KeptTensors.meant(policy)):
            return {"remat_policy": policy}
    for policy in _OFFLOADED:
        if not saved and moved == _set(KeptTensors.meant(policy)):
            return {"remat_policy": policy}
    placed = {"remat_policy": "custom"}
    for names, place in ((saved, "device"), (moved, "offload")):
        placed |= {f"place_{key}": place for name in names for key in _KEYS[name]}
    return placed


def remat_of(reading: Reading) -> dict[str, str]:
    """What a file says of it, in the words of the table of terms; nothing said is ``full``.

    Raises
    ------
    LaunchError
        There is no such policy, or no such place of a tensor.
    """
    policy = (reading.text("remat_policy") or "full").lower()
    if policy in _OF_NONE:
        return {"recompute": "none"}
    if policy == "full":
        return {"recompute": "full"}
    if policy == "custom":
        places = {key: _place(reading, key) for key in KEYS}
        saved, moved = (_placed(places, place) for place in ("device", "offload"))
        return _told(saved - moved - {LAYER_INPUT}, moved)
    # Quantized operands are kept beside these tensors.
    plain = policy.replace("_with_context_and_quantization", "_with_context")
    plain = plain.replace("_with_quantization", "")
    if plain not in (*_NAMED, *_OFFLOADED, *_OLD):
        known = ", ".join(("full", *_NAMED, *_OFFLOADED, "custom"))
        where = f"{reading.found.name}:{reading.found.line}"
        raise LaunchError(f"{where}: remat_policy {policy} is not one of {known}.")
    tensors = _set(KeptTensors.meant(plain))
    return _told(frozenset(), tensors) if plain in _OFFLOADED else _told(tensors, frozenset())


def _told(saved: Iterable[str], moved: Iterable[str]) -> dict[str, str]:
    words = {"saved_tensors": _word(saved), "offloaded_tensors": _word(moved)}
    return {"recompute": "full", **{name: word for name, word in words.items() if word}}


def _placed(places: Mapping[str, str], place: str) -> frozenset[str]:
    """The tensors of which all that a file places stands there."""
    found = set()
    for name in TENSORS:
        said = {places[key] for key in (*_KEYS[name], *_OTHERS.get(name, ())) if places[key]}
        if said == {place}:
            found.add(name)
    return frozenset(found)


def _place(reading: Reading, key: str) -> str:
    place = (reading.text(key) or "").lower()
    if place not in ("", "device", "offload", "remat"):
        where = f"{reading.found.name}:{reading.found.line}"
        raise LaunchError(f"{where}: {key} is device, offload or remat, not {place}.")
    return place


def _set(word: Any) -> frozenset[str]:
    return frozenset(str(word).split("+")) - {"none"}


def _word(names: Iterable[str]) -> str:
    found = set(names)
    return "+".join(name for name in TENSORS if name in found)
