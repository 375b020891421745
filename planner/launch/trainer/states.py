"""What a script shards, offloads, repeats and computes in, and whose predictions are nearest."""

from __future__ import annotations

import re

from planner.errors import PlannerError
from planner.launch.trainer.said import Collected, Said, whole
from planner.specs.catalogue import Catalogue

# Of DeepSpeed's runtime/zero/config.py.
_LIVE, _PREFETCHED = 1_000_000_000, 50_000_000
_STAGE = re.compile(r"(?:zero|stage|ds_?z|z|s)[_-]?([0-3])")


def states_said(said: Said, found: Collected) -> None:
    """What is sharded and what is offloaded."""
    stage = said.of("deepspeed", "zero_stage") or said.of("accelerate", "deepspeed_stage")
    sharded = said.of("script", "sharded_weights") or said.of("accelerate", "sharded_weights")
    legacy = (said.texts.get("--fsdp") or "").replace(",", " ").split()
    is_fsdp = _is_fsdp(said)
    if said.has_deepspeed or _kind(said) == "DEEPSPEED":
        level = whole(stage) or 0
        if stage is None and (absent := said.absent_file()):
            level = _named_stage(absent, found)
    elif is_fsdp:
        level = 2 if sharded == "false" or "shard_grad_op" in legacy else 3
    else:
        level = 0
    gpus = found.values.get("num_gpus")
    split = found.values["tensor_parallel"]
    if level and gpus is not None and gpus == split:
        found.notes.append(f"Nothing is sharded over one rank: stage {level} is as none.")
        level = 0
    found.values["zero_stage"] = level
    found.values["offload"] = _offload(said, legacy, is_fsdp)
    if (hpz := said.number("deepspeed", "hpz")) and hpz > 1:
        found.notes.append(
            f"hpz keeps a second copy of the weights over each {hpz} ranks: its memory and its "
            "faster gathers are not predicted."
        )


def buckets_said(said: Said, found: Collected) -> None:
    """What DeepSpeed's file says of what lies on a GPU at once; ``auto`` is of the hidden size.

    Gradients and states of adapters are smaller than any bucket or sub-group.
    """
    if not said.has_deepspeed or not found.values["zero_stage"]:
        return
    if found.values["adapter"] != "none":
        return
    for name in ("reduce_bucket_size", "sub_group_size", "stage3_max_live_parameters"):
        told = said.of("deepspeed", name)
        if number := 1 if told == "0" else whole(told):
            found.values[name] = number
    if said.texts.get("zero_optimization.reduce_bucket_size") == "auto":
        hidden = _hidden_size(found.values.get("model"))
        if hidden is not None:
            found.default("reduce_bucket_size", hidden**2, "auto is the hidden size squared")
    if reuse := said.number("deepspeed", "reuse_distance"):
        ahead = said.number("deepspeed", "prefetched") or _PREFETCHED
        most = found.values.get("stage3_max_live_parameters", _LIVE)
        if reuse + ahead < most:
            found.values["stage3_max_live_parameters"] = reuse + ahead


def _hidden_size(model: str | None) -> int | None:
    """That of a model of the catalogue."""
    try:
        return None if model is None else Catalogue(None).load_model(model).hidden_size
    except PlannerError:
        return None


def _named_stage(file: str, found: Collected) -> int:
    """The stage that the name of a file says which is not here."""
    name = file.rpartition("/")[2].lower()
    told = _STAGE.search(name)
    if told is None:
        found.ask("zero_stage")
        return 0
    found.defaults["zero_stage"] = f"{file} is not here: stage {told[1]} is what its name says"
    if "offload" in name:
        found.notes.append(f"{file} is not here: what it offloads is not known.")
    return int(told[1])


def _kind(said: Said) -> str:
    return (said.of("accelerate", "kind") or "").upper()


def _is_fsdp(said: Said) -> bool:
    # A bare --fsdp, whose text is None, says it too.
    text = said.texts.get("--fsdp", "false")
    return _kind(said) == "FSDP" or text not in ("", "false", "False")


def _offload(said: Said, legacy: list[str], is_fsdp: bool) -> str:
    of_file = said.texts.get("activation_checkpointing.cpu_checkpointing")
    activations = of_file == "true" or said.of("script", "offload") == "activations"
    found = _states_away(said, legacy, is_fsdp)
    if not activations or found.endswith("nvme"):
        return found
    return "activations" if found == "none" else f"{found}_activations"


def _states_away(said: Said, legacy: list[str], is_fsdp: bool) -> str:
    """What of optimizer states and weights is not on the GPUs."""
    if is_fsdp:
        weights = said.of("script", "offload") == "optimizer_weights" or "offload" in legacy
        if weights or said.of("accelerate", "fsdp_offload") == "true":
            return "optimizer_weights"
    device = {
        name: said.texts.get(f"zero_optimization.offload_{name}.device")
        or said.of("accelerate", f"deepspeed_{'weights' if name == 'param' else name}")
        for name in ("optimizer", "param")
    }
    away = {name for name, where in device.items() if where in ("cpu", "nvme")}
    drives = "_nvme" if "nvme" in device.values() else ""
    if "param" in away:
        return "optimizer_weights" + drives
    if "optimizer" in away or said.texts.get("zero_optimization.cpu_offload") == "true":
        return "optimizer" + drives
    return "none"


def kernels_said(said: Said, found: Collected) -> None:
    """Recomputation and the kernels of attention."""
    inside = said.of("script", "sharded_recompute") or said.of("accelerate", "fsdp_recompute")
    if said.has_deepspeed and any(name.startswith("fsdp_config.") for name in said.texts):
        found.notes.append("With DeepSpeed the keys of fsdp_config have no part in the training.")
        inside = None
    recompute = said.of("script", "recompute")
    if inside == "true":
        recompute = "full"
    if recompute is None and said.is_supervised:
        reason = "no --gradient_checkpointing: TRL's default is true"
        found.default("recompute", "full", reason)
    elif recompute is None:
        found.default("recompute", "none", "no --gradient_checkpointing: every layer keeps all")
    else:
        found.values["recompute"] = recompute
    flash = said.script.get("flash_attention")
    found.values["flash_attention"] = "true" if flash is None else flash.value
    kernel = said.of("script", "attention_kernel")
    if kernel is not None:
        found.values["attention_kernel"] = kernel
    loss = said.of("script", "loss_kernel")
    if loss is not None:
        found.values["loss_kernel"] = loss


def precision_said(said: Said, found: Collected) -> None:
    """The format of the products: DeepSpeed's file, the script, then accelerate's file."""
    told = said.of("deepspeed", "precision") if said.has_deepspeed else None
    told = told or said.of("script", "precision") or _of_type(said)
    by_launcher = said.of("accelerate", "precision_type")
    if told in (None, "fp32") and by_launcher not in (None, "no"):
        told = by_launcher
    if told is None and said.is_supervised:
        told = "bf16"
        found.defaults["precision"] = "no --bf16 or --fp16: TRL's default is bf16"
    elif told is None and said.has_script and not said.is_hidden("--bf16", "--fp16"):
        told = "fp32"
    if told == "fp32" and said.is_on("--tf32"):
        told = "tf32"
    if told in ("fp32", "tf32"):
        found.notes.append(
            f"It computes in {told}, as nothing says --bf16 or --fp16; --set precision=bf16 shows "
            "what that would change."
        )
    if told is not None:
        found.values["precision"] = told


def _of_type(said: Said) -> str | None:
    """DeepSpeed-Chat has one option of it, and fp16 without."""
    if "zero_optimization.stage" not in said.texts or "--deepspeed" not in said.texts:
        return None
    if said.texts["--deepspeed"] != "true":
        return None
    return said.texts.get("--dtype") or "fp16"


def framework_said(said: Said, found: Collected) -> None:
    """The profile whose predictions are nearest."""
    adapter = found.values["adapter"] != "none"
    fused = said.of("script", "fused_kernels") == "true" or said.is_on("--use_unsloth")
    compiled = (said.of("accelerate", "compiled") or "no").lower() != "no"
    if adapter:
        name = "HF Trainer FSDP" if _is_fsdp(said) else "HF Trainer"
        if fused and not _is_fsdp(said):
            name = "HF Trainer Triton"
    elif said.has_deepspeed or _kind(said) == "DEEPSPEED":
        name = "DeepSpeed"
    elif compiled and _is_fsdp(said):
        name = "FSDP compiled"
    elif said.of("script", "weights_type") == "bfloat16":
        name = "HF Trainer bf16"
    else:
        name = "HF Trainer FSDP"
    found.values["framework"] = name
