"""A change of a script on Hugging Face's Trainer in the words that the program honours.

Transformers 5 (``training_args.py``, ``Trainer.create_accelerator_and_postprocess``): with
``deepspeed`` no key of FSDP has a part in the training.
"""

from __future__ import annotations

from planner.launch.trainer.llama_factory import in_own_words, is_llama_factory_document
from planner.launch.understood import Found
from planner.shell.changes import Changes

_RECOMPUTE = "fsdp_config.activation_checkpointing"
_IN_DEEPSPEED = {
    "fsdp_config.reshard_after_forward": "zero_optimization.stage",
    "fsdp_config.cpu_offload": "zero_optimization.offload_param.device",
}


def honoured(found: Found, changes: Changes) -> tuple[Changes, Changes]:
    """What of a change stands in the file itself, and what in DeepSpeed's beside it."""
    own, beside = dict(changes), dict[str, tuple[str, ...] | None]()
    if _has_deepspeed(found):
        if _RECOMPUTE in own:
            repeats = own.pop(_RECOMPUTE) is not None
            own["gradient_checkpointing"] = (str(repeats).lower(),)
        for name in [name for name in own if name.startswith("fsdp")]:
            texts = own.pop(name)
            if key := _IN_DEEPSPEED.get(name):
                beside[key] = _in_deepspeed(key, texts)
    if _is_llama_factory(found):
        return in_own_words(own), beside
    return own, beside


def _has_deepspeed(found: Found) -> bool:
    return any(name.lstrip("-") == "deepspeed" for name in found.options)


def _is_llama_factory(found: Found) -> bool:
    given = {**found.options, **{one.option: one for one in found.unknown}}
    texts = {
        name.lstrip("-"): one.texts[0] if len(one.texts) == 1 else "" for name, one in given.items()
    }
    return is_llama_factory_document(texts)


def _in_deepspeed(key: str, texts: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if key.endswith("device"):
        return None if texts is None else ("cpu",)
    return ("3",) if texts == ("true",) else ("2",) if texts else ("0",)
