"""prime-rl: the TOML of its ``rl`` command: trainer, orchestrator and engine beside each other.

Source: PrimeIntellect-ai/prime-rl at 559b447, ``packages/prime-rl-configs/src/prime_rl/configs``
(``rl.py``, ``trainer.py``, ``orchestrator.py``, ``inference.py``); older words beside them are
those of its first releases: ``inference.parallel.tp``, ``rollouts_per_example``, lists of GPUs.
"""

from __future__ import annotations

from planner.base.software_enums import Placement
from planner.launch.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    flag,
    number,
    option_text,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.rl_reader_writer import put_lengths, put_split, reader_of_steps
from planner.launch.targets.training_reader import (
    make_update_reader,
    put_lora,
    put_objective,
    require_ranks,
)
from planner.specs.quantization import checkpoint_of

_MODEL = "trainer.model."
_ENGINE = "inference.vllm."
_LENGTHS = ("orchestrator.seq_len", "seq_len", f"{_MODEL}seq_len")
_PACKS = (f"{_MODEL}seq_len", "seq_len", "orchestrator.seq_len")
_LENGTH, _BATCH, _NODE, _OFF_POLICY = 2048, 128, 8, 8
_ANSWERS = ("orchestrator.train.sampling.max_completion_tokens", "orchestrator.sampling.max_tokens")
_SECTIONS = ("trainer", "orchestrator", "inference", "deployment", "monitors", "ckpt", "slurm")
_OTHERS = (
    *("log", "wandb", "env_vars", "weight_broadcast", "model", "run", "tokenizer", "resume"),
    *("seq_len", "max_", "output_dir", "clean"),
)
_STALE = ("max_async_level", "orchestrator.max_async_level", "orchestrator.max_off_policy_steps")
_IN_FLIGHT = 1024
"""``max_inflight``: answers of all engines at once."""
_MODELS = ("model.name", f"{_MODEL}name")


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """What the update of the policy is; see the module."""
    values = settings.values
    if f"{_MODEL}lora.rank" in reading.command.options or reading.has("trainer.model.lora"):
        rank = number(reading, f"{_MODEL}lora.rank") or _RANK
        put_lora(reading, settings, rank, f"{_MODEL}lora.target_modules")
    values |= {"framework": "prime-rl", "pipeline_parallel": 1}
    values["tensor_parallel"] = number(reading, f"{_MODEL}tp") or 1
    values["context_parallel"] = number(reading, f"{_MODEL}cp") or 1
    if option_text(reading, f"{_MODEL}cp_style") == "ulysses":
        values["cp_comm_type"] = "a2a"
    settings.set("expert_parallel", number(reading, f"{_MODEL}ep"))
    reshards = flag(reading, f"{_MODEL}reshard_after_forward", default=True)
    values["zero_stage"] = 3 if reshards else 2
    settings.set("data_parallel_replicas", number(reading, f"{_MODEL}dp_replicate"))
    mode = option_text(reading, f"{_MODEL}ac.mode") or "full"
    values["recompute"] = "selective" if mode == "selective" else "full"
    if not any(name.startswith(f"{_MODEL}ac.") for name in reading.command.options):
        settings.defaults["recompute"] = "full: prime-rl's default"
    is_away = flag(reading, f"{_MODEL}fsdp_cpu_offload")
    away = "optimizer_weights" if is_away else "optimizer"
    values["offload"] = away if flag(reading, *_AWAY, default=True) else "none"
    if not any(map(reading.has, _AWAY)):
        settings.defaults["offload"] = "optimizer: prime-rl's default"
    length = number(reading, *_LENGTHS) or _LENGTH
    values |= {"sequence_length": length, "micro_batch_size": 1}
    values["global_batch_size"] = number(reading, "orchestrator.batch_size") or _BATCH
    settings.require("num_gpus", gpus := _gpus(reading, "train"))
    if gpus is not None:
        require_ranks(reading, settings, gpus)
    if steps := number(reading, "max_steps", "orchestrator.max_steps"):
        values["total_tokens"] = steps * int(values["global_batch_size"]) * length
    put_objective(settings, has_reference=False)


_AWAY = (f"{_MODEL}fsdp_cpu_offload", f"{_MODEL}optim_cpu_offload")
_RANK = 16


def _gpus(reading: OptionReader, side: str) -> int | None:
    """GPUs that train, or ``infer``: of nodes, of a node, or as a list of their numbers.

    None where nothing tells of them.
    """
    nodes = number(reading, f"deployment.num_{side}_nodes")
    if nodes is not None:
        return nodes * (number(reading, "deployment.gpus_per_node") or _NODE)
    if option_text(reading, "deployment.type") == "multi_node":
        return None if side == "train" else _apart(reading)
    name = "trainer_gpu_ids" if side == "train" else "inference_gpu_ids"
    listed = reading.command.options.get(name)
    usual = 1 if listed is None else len(listed.texts)
    return number(reading, f"deployment.num_{side}_gpus") or usual


def _apart(reading: OptionReader) -> int | None:
    """GPUs of engines that are told of by themselves, prompts and answers with nodes each."""
    if option_text(reading, f"{_SERVED}type") != "disaggregated":
        return None
    nodes = 0
    for part in ("prefill", "decode"):
        each = number(reading, f"{_SERVED}{part}_nodes_per_replica") or 1
        nodes += each * (number(reading, f"{_SERVED}num_{part}_replicas") or 1)
    replicas = number(reading, "deployment.num_infer_replicas") or 1
    return replicas * nodes * (number(reading, "deployment.gpus_per_node") or _NODE)


_SERVED = "inference.deployment."


def _put_step(reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder) -> None:
    """What of a whole step is no row of the table: lengths, packs, who runs where."""
    values = settings.values
    values["old_logprob"] = False
    batch, each = int(update.values["global_batch_size"]), int(values["samples_per_prompt"])
    values["prompts_per_step"] = max(batch // each, 1)
    length = int(update.values["sequence_length"])
    asked = (
        "orchestrator.train.sampling.max_completion_tokens",
        "orchestrator.sampling.max_tokens",
    )
    put_lengths(settings, length, number(reading, *asked))
    values["micro_batch_tokens"] = max(number(reading, *_PACKS) or length, length)
    train, rollout = _gpus(reading, "train"), _gpus(reading, "infer")
    told_steps = (reading.number(name) for name in _STALE)
    stale = next((steps for steps in told_steps if steps is not None), _OFF_POLICY)
    values |= {"staleness": stale, "partial_rollout": stale > 0}
    if rollout and not any(map(reading.has, _STALE[:2])):  # which had no bound of it
        flying = number(reading, "orchestrator.concurrency.max_inflight") or _IN_FLIGHT
        engines = max(rollout // int(values.get("rollout_tensor_parallel", 1)), 1)
        most = -(-flying // engines)
        values["max_num_seqs"] = min(int(values.get("max_num_seqs", most)), most)
    put_split(settings, Placement.ASYNC, train if rollout else None, rollout or 0)
    stored = checkpoint_of(reading.text(f"{_ENGINE}model") or "").quantization or ""
    if stored.startswith("fp8"):
        values["rollout_quantization"] = "fp8"
    if option_text(reading, f"{_SERVED}type") == "disaggregated":
        settings.notes.append("Engines of prompts and of answers apart are predicted as one kind.")
    if flag(reading, f"{_ENGINE}enable_expert_parallel"):
        values["rollout_expert_parallel"] = values.get("rollout_tensor_parallel", 1)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "prime-rl",
        answers=make_update_reader(
            "prime-rl", _add_unlisted_settings, _MODELS, (*_SECTIONS, *_OTHERS)
        ),
    ),
    profiles=("prime-rl",),
    put=_put_step,
    whole=with_unknown_options,
)
