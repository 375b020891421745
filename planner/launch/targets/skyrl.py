"""SkyRL: a step on rollouts, from the hydra words of its trainer.

Source: NovaSky-AI/SkyRL at a956457, ``skyrl/train/config/config.py`` for names and defaults, and
``examples/train``; older words are those before ``generator.inference_engine``. It has no profile:
steps are predicted as verl's, which has the same trainers and engine.
"""

from __future__ import annotations

from planner.base.software_enums import Placement
from planner.base.training_names import AdapterSync
from planner.launch.target import Target
from planner.launch.targets.rl_steps import (
    put_as_verl,
    put_redrawn,
    put_sequences,
    put_split,
    reader_of_steps,
)
from planner.launch.targets.trained import (
    fsdp_profile,
    put_lora,
    put_megatron_split,
    put_objective,
    read_update,
    require_ranks,
    tell_updates,
)
from planner.launch.understood import (
    Answers,
    Gathered,
    Reading,
    flag,
    number,
    told,
    worded,
)

_POLICY = "trainer.policy."
_MEGATRON = f"{_POLICY}megatron_config."
_MERGES = f"{_MEGATRON}lora_config.merge_lora"
"""Its trainer on Megatron merges unless told otherwise (issue 1852 of NovaSky-AI/SkyRL)."""
_PLACED = "trainer.placement."
_ENGINE = "generator.inference_engine."
_SECTIONS = ("trainer.", "generator.", "data.", "environment.")
_MINI, _EACH, _TOKENS, _MICRO = 256, 5, (512, 1024), 1
_STALE = 4
_MODELS = (f"{_POLICY}model.path",)


def _tell(reading: Reading, found: Gathered) -> None:
    """What the update of the policy is; see the module."""
    values = found.values
    if rank := number(reading, f"{_POLICY}model.lora.rank"):
        put_lora(reading, found, rank, f"{_POLICY}model.lora.target_modules")
    (_on_megatron if told(reading, "trainer.strategy") == "megatron" else _on_fsdp)(reading, found)
    parts = [number(reading, name) for name in (_PROMPT, _ANSWER)]
    length = sum(part or usual for part, usual in zip(parts, _TOKENS, strict=True))
    values["sequence_length"] = length
    if None in parts:
        found.defaults["sequence_length"] = "512 of a prompt and 1,024 of an answer are SkyRL's"
    nodes = number(reading, f"{_PLACED}policy_num_nodes") or 1
    values["num_gpus"] = nodes * (number(reading, f"{_PLACED}policy_num_gpus_per_node") or 1)
    require_ranks(reading, found, values["num_gpus"])
    mini = number(reading, "trainer.policy_mini_batch_size") or _MINI
    each = number(reading, "generator.n_samples_per_prompt") or _EACH
    values["global_batch_size"] = mini * each
    values["micro_batch_size"] = number(reading, "trainer.micro_train_batch_size_per_gpu") or _MICRO
    tell_updates(found, "SkyRL", number(reading, "trainer.train_batch_size"), mini)
    has_reference = flag(reading, "trainer.algorithm.use_kl_loss", default=True)
    has_reference = has_reference or flag(reading, "trainer.algorithm.use_kl_in_reward")
    has_critic = told(reading, "trainer.algorithm.advantage_estimator") == "gae"
    put_objective(found, has_reference, has_critic=has_critic)


_PROMPT, _ANSWER = "trainer.max_prompt_length", "generator.sampling_params.max_generate_length"


def _on_fsdp(reading: Reading, found: Gathered) -> None:
    """Weights, gradients and states sharded by FSDP, sequences by Ulysses."""
    values = found.values
    values["tensor_parallel"] = values["pipeline_parallel"] = 1
    values["context_parallel"] = number(reading, f"{_POLICY}sequence_parallel_size") or 1
    values["framework"] = fsdp_profile(values)
    if values["context_parallel"] > 1:
        values |= {"cp_comm_type": "a2a", "framework": "HF Trainer FSDP"}
    reshards = flag(reading, f"{_POLICY}fsdp_config.reshard_after_forward", default=True)
    values["zero_stage"] = 3 if reshards else 2
    is_away = flag(reading, f"{_POLICY}fsdp_config.cpu_offload")
    values["offload"] = "optimizer_weights" if is_away else "none"
    repeats = flag(reading, "trainer.gradient_checkpointing", default=True)
    values["recompute"] = "full" if repeats else "none"


def _on_megatron(reading: Reading, found: Gathered) -> None:
    """Tensors, stages, sequences and experts split by Megatron-Core, layers repeated."""
    values = found.values
    values["framework"] = "Megatron-Bridge"
    put_megatron_split(reading, found, _MEGATRON)
    values["sequence_parallel"] = values["tensor_parallel"] > 1
    values["zero_stage"] = 1
    away = f"{_MEGATRON}optimizer_config_kwargs.optimizer_cpu_offload"
    values["offload"] = "optimizer" if flag(reading, away) else "none"
    kind = told(reading, f"{_MEGATRON}transformer_config_kwargs.recompute_granularity")
    repeats = flag(reading, "trainer.gradient_checkpointing", default=True)
    values["recompute"] = (kind or "full") if repeats else "none"


def _put_step(reading: Reading, update: Answers, found: Gathered) -> None:
    """What of a whole step is no row of the table: micro-batches, who runs where."""
    values = found.values
    is_megatron = put_as_verl(update, found, "SkyRL")
    merges = is_megatron and flag(reading, _MERGES, default=True)
    if merges and "adapter" in values:
        values["adapter_sync"] = str(AdapterSync.MERGED)
    if told(reading, "trainer.algorithm.dynamic_sampling.type"):
        put_redrawn(found)
    length = int(update.values["sequence_length"])
    budget = number(reading, "trainer.max_tokens_per_microbatch")
    size = int(update.values["micro_batch_size"])
    if budget:
        values["micro_batch_tokens"] = max(budget, length)
    else:
        packs = flag(reading, "trainer.remove_microbatch_padding", default=True)
        put_sequences(found, size, length, packs)
    values["offload_train"] = values["offload_rollout"] = True
    _put_placement(reading, update, found)


def _put_placement(reading: Reading, update: Answers, found: Gathered) -> None:
    """Where trainer and engine run, and how old the weights of answers may be."""
    values = found.values
    words = [word_option.single or "" for word_option in reading.found.positional]
    words += filter(None, [reading.text("--module")])
    placement = Placement.SEPARATE
    if flag(reading, f"{_PLACED}colocate_all", default=True):
        placement = Placement.COLOCATED
    elif flag(reading, "trainer.fully_async.enabled") or any("fully_async" in w for w in words):
        placement = Placement.ASYNC
        told_steps = reading.number("trainer.fully_async.max_staleness_steps")
        values["staleness"] = _STALE if told_steps is None else told_steps
        values["partial_rollout"] = values["staleness"] > 0
    elif any("async" in word for word in words):
        placement, values["staleness"] = Placement.ONE_STEP_OFF, 1
    engines = number(reading, f"{_ENGINE}num_engines", "generator.num_inference_engines") or 1
    each = int(values.get("rollout_tensor_parallel", 1))
    copies = number(reading, f"{_ENGINE}data_parallel_size") or 1
    put_split(found, placement, update.values.get("num_gpus"), engines * each * copies)


TARGET = reader_of_steps(
    Target.of("skyrl", answers=read_update("skyrl", _tell, _MODELS, _SECTIONS)),
    profiles=("verl", "verl Megatron"),
    put=_put_step,
    whole=worded,
)
