"""prime-rl: the TOML of its ``rl`` command, with trainer, orchestrator and engine.

Source: PrimeIntellect-ai/prime-rl at 559b447, ``packages/prime-rl-configs/src/prime_rl/configs``
(``rl.py``, ``trainer.py``, ``orchestrator.py``, ``inference.py``), and the keys of its first
releases: ``inference.parallel.tp``, ``rollouts_per_example``, lists of GPUs.
"""

from __future__ import annotations

from planner.base.software_enums import Placement
from planner.base.units import ceil_div
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    flag,
    number,
    option_text,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.rl_reader_writer import reader_of_steps, set_lengths, set_placement
from planner.launch.targets.training_reader import (
    make_update_reader,
    require_model_ranks,
    set_lora,
    set_objective,
)
from planner.specs.quantization import checkpoint_of

_MODEL = "trainer.model."
_ENGINE = "inference.vllm."
_LENGTHS = ("orchestrator.seq_len", "seq_len", f"{_MODEL}seq_len")
_PACK_LENGTHS = (f"{_MODEL}seq_len", "seq_len", "orchestrator.seq_len")
_LENGTH, _BATCH, _DEFAULT_GPUS_PER_NODE, _OFF_POLICY = 2048, 128, 8, 8
_ANSWER_LENGTHS = (
    "orchestrator.train.sampling.max_completion_tokens",
    "orchestrator.sampling.max_tokens",
)
_SECTIONS = ("trainer", "orchestrator", "inference", "deployment", "monitors", "ckpt", "slurm")
_OTHER_OPTIONS = (
    *("log", "wandb", "env_vars", "weight_broadcast", "model", "run", "tokenizer", "resume"),
    *("seq_len", "max_", "output_dir", "clean"),
)
_STALENESS = (
    "max_async_level",
    "orchestrator.max_async_level",
    "orchestrator.max_off_policy_steps",
)
_DEFAULT_MAX_IN_FLIGHT = 1024
"""Default of ``max_inflight``: concurrent answers of all engines."""
_MODELS = ("model.name", f"{_MODEL}name")


def _add_unlisted_settings(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set what the option table does not read for the policy's weight update."""
    values = settings.values
    if f"{_MODEL}lora.rank" in reading.command.options or reading.has("trainer.model.lora"):
        rank = number(reading, f"{_MODEL}lora.rank") or _DEFAULT_LORA_RANK
        set_lora(reading, settings, rank, f"{_MODEL}lora.target_modules")
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
    offloads_weights = flag(reading, f"{_MODEL}fsdp_cpu_offload")
    offload = "optimizer_weights" if offloads_weights else "optimizer"
    values["offload"] = offload if flag(reading, *_OFFLOAD_OPTIONS, default=True) else "none"
    if not any(map(reading.has, _OFFLOAD_OPTIONS)):
        settings.defaults["offload"] = "optimizer: prime-rl's default"
    length = number(reading, *_LENGTHS) or _LENGTH
    values |= {"sequence_length": length, "micro_batch_size": 1}
    values["global_batch_size"] = number(reading, "orchestrator.batch_size") or _BATCH
    settings.require("num_gpus", train_gpus := _gpus_of_side(reading, "train"))
    if train_gpus is not None:
        require_model_ranks(reading, settings, train_gpus)
    if steps := number(reading, "max_steps", "orchestrator.max_steps"):
        values["total_tokens"] = steps * int(values["global_batch_size"]) * length
    set_objective(settings, has_reference=False)


_OFFLOAD_OPTIONS = (f"{_MODEL}fsdp_cpu_offload", f"{_MODEL}optim_cpu_offload")
_DEFAULT_LORA_RANK = 16


def _gpus_of_side(reading: OptionReader, side: str) -> int | None:
    """Return the GPUs of ``train`` or ``infer``, from nodes, a number or a list of GPUs.

    None where the file does not set them.
    """
    num_nodes = number(reading, f"deployment.num_{side}_nodes")
    if num_nodes is not None:
        return num_nodes * (number(reading, "deployment.gpus_per_node") or _DEFAULT_GPUS_PER_NODE)
    if option_text(reading, "deployment.type") == "multi_node":
        return None if side == "train" else _disaggregated_gpus(reading)
    name = "trainer_gpu_ids" if side == "train" else "inference_gpu_ids"
    gpu_list = reading.command.options.get(name)
    default = 1 if gpu_list is None else len(gpu_list.texts)
    return number(reading, f"deployment.num_{side}_gpus") or default


def _disaggregated_gpus(reading: OptionReader) -> int | None:
    """Return the GPUs of separate prefill and decode engines; None for other engines."""
    if option_text(reading, f"{_ENGINE_DEPLOYMENT}type") != "disaggregated":
        return None
    num_nodes = 0
    for stage in ("prefill", "decode"):
        nodes_per_replica = number(reading, f"{_ENGINE_DEPLOYMENT}{stage}_nodes_per_replica") or 1
        num_nodes += nodes_per_replica * (
            number(reading, f"{_ENGINE_DEPLOYMENT}num_{stage}_replicas") or 1
        )
    replicas = number(reading, "deployment.num_infer_replicas") or 1
    return (
        replicas
        * num_nodes
        * (number(reading, "deployment.gpus_per_node") or _DEFAULT_GPUS_PER_NODE)
    )


_ENGINE_DEPLOYMENT = "inference.deployment."


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table does not read: lengths, packs and placement of a step."""
    values = settings.values
    values["old_logprob"] = False
    global_batch_size, samples_per_prompt = (
        int(update.values["global_batch_size"]),
        int(values["samples_per_prompt"]),
    )
    values["prompts_per_step"] = max(global_batch_size // samples_per_prompt, 1)
    length = int(update.values["sequence_length"])
    answer_options = (
        "orchestrator.train.sampling.max_completion_tokens",
        "orchestrator.sampling.max_tokens",
    )
    set_lengths(settings, length, number(reading, *answer_options))
    values["micro_batch_tokens"] = max(number(reading, *_PACK_LENGTHS) or length, length)
    train_gpus, rollout_gpus = _gpus_of_side(reading, "train"), _gpus_of_side(reading, "infer")
    limits = (reading.number(name) for name in _STALENESS)
    staleness = next((steps for steps in limits if steps is not None), _OFF_POLICY)
    values |= {"staleness": staleness, "partial_rollout": staleness > 0}
    if rollout_gpus and not any(map(reading.has, _STALENESS[:2])):  # only later releases bound it
        max_in_flight = (
            number(reading, "orchestrator.concurrency.max_inflight") or _DEFAULT_MAX_IN_FLIGHT
        )
        engines = max(rollout_gpus // int(values.get("rollout_tensor_parallel", 1)), 1)
        max_per_engine = ceil_div(max_in_flight, engines)
        values["max_num_seqs"] = min(
            int(values.get("max_num_seqs", max_per_engine)), max_per_engine
        )
    set_placement(
        settings, Placement.ASYNC, train_gpus if rollout_gpus else None, rollout_gpus or 0
    )
    quantization = checkpoint_of(reading.text(f"{_ENGINE}model") or "").quantization or ""
    if quantization.startswith("fp8"):
        values["rollout_quantization"] = "fp8"
    if option_text(reading, f"{_ENGINE_DEPLOYMENT}type") == "disaggregated":
        settings.notes.append("Separate prefill and decode engines are predicted as one kind.")
    if flag(reading, f"{_ENGINE}enable_expert_parallel"):
        values["rollout_expert_parallel"] = values.get("rollout_tensor_parallel", 1)


TARGET = reader_of_steps(
    LaunchTarget.of(
        "prime-rl",
        answers=make_update_reader(
            "prime-rl", _add_unlisted_settings, _MODELS, (*_SECTIONS, *_OTHER_OPTIONS)
        ),
    ),
    profiles=("prime-rl",),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
)
