"""AReaL: a step on rollouts, from its YAML, whose allocations say who runs on how many GPUs.

Source: inclusionAI/AReaL at 4aef98d, ``areal/api/cli_args.py`` for names and defaults,
``areal/api/alloc_mode.py`` for ``sglang:d4t2`` and ``sglang:d4t2+fsdp:d8``; older files write
``sglang.d80m2p1+d4m2p4``, with ``m`` for ``t``. It has no profile: steps are predicted as verl's,
which has the same trainers and engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from planner.base.software_enums import Placement
from planner.base.training_names import Algorithm
from planner.launch.target import Target
from planner.launch.targets.rl_steps import (
    put_as_verl,
    put_lengths,
    put_split,
    reader_of_steps,
)
from planner.launch.targets.trained import (
    fsdp_profile,
    put_lora,
    put_objective,
    read_update,
    require_ranks,
    tell_updates,
)
from planner.launch.understood import Answers, Found, Gathered, Reading, flag, number, told, worded

_ALLOCATED, _TRAINER, _ENGINE = "allocation_mode", "actor.backend", "rollout.backend"
_SECTIONS = (
    *("actor", "ref", "critic", "rollout", "gconfig", "sglang", "vllm", "cluster", "scheduler"),
    *("train_dataset", "valid_dataset", "saver", "recover", "evaluator", "stats_logger", "--"),
    *("async_training", "dynamic_bs", "n_trajs", "max_tokens_per_trajectory"),
    *("perf_tracer", "seed", "tokenizer_path", "total_", "experiment_", "trial_", "enable_"),
)
_MINI, _LENGTH, _KL, _RANK = 4, 16_384, 0.1, 32
_AT_ONCE = 256
"""``max_num_seqs`` of vLLM; SGLang runs what its cache holds."""
_PART = re.compile(r"(?:([a-z]+)(?:\[\w*\])?[:.])?\(?([\w:|()]*)")
_SIZE = re.compile(r"([dptcesm])(\d{1,6})")


def allocated(text: str) -> tuple[str, dict[str, int], dict[str, int]]:
    """The backend of an allocation, its sizes, and those of its experts.

    >>> allocated("megatron:(attn:d4p4t2|ffn:d2p4e4)")
    ('megatron', {'d': 4, 'p': 4, 't': 2}, {'d': 2, 'p': 4, 'e': 4})
    >>> allocated("d4m2p4")
    ('', {'d': 4, 't': 2, 'p': 4}, {})
    """
    match = _PART.match(text.strip("'\" "))
    backend, rest = (match[1] or "", match[2]) if match else ("", "")
    own, _, experts = rest.partition("|")
    sizes = [
        {name.replace("m", "t"): int(size) for name, size in _SIZE.findall(part.partition(":")[2])}
        if ":" in part
        else {name.replace("m", "t"): int(size) for name, size in _SIZE.findall(part)}
        for part in (own, experts)
    ]
    return backend, sizes[0], sizes[1]


def _allocations(reading: Reading) -> tuple[str, str, bool]:
    """Those of trainer and engine, and whether they share their GPUs."""
    trainer, engine = told(reading, _TRAINER) or "", told(reading, _ENGINE) or ""
    whole = told(reading, _ALLOCATED)
    if whole and not (trainer and engine):
        engine, _, trainer = whole.partition("+")
        return trainer, engine, False
    return trainer, engine, told(reading, "rollout.scheduling_strategy.type") == "colocation"


def _tell(reading: Reading, found: Gathered) -> None:
    """What the update of the policy is; see the module."""
    values = found.values
    if flag(reading, "actor.use_lora"):
        rank = number(reading, "actor.lora_rank") or _RANK
        put_lora(reading, found, rank, "actor.target_modules")
    trainer, _, _ = _allocations(reading)
    backend, sizes, experts = allocated(trainer)
    values["tensor_parallel"] = sizes.get("t", 1)
    values["pipeline_parallel"] = sizes.get("p", 1)
    values["context_parallel"] = sizes.get("c", 1)
    if (split := experts.get("e", sizes.get("e", 1))) > 1:
        values |= {"expert_parallel": split, "expert_tensor_parallel": experts.get("t", 1)}
    if backend == "megatron" or values["pipeline_parallel"] > 1:
        values |= {"framework": "Megatron-Bridge", "zero_stage": 1}
        values["offload"] = "none"
        values["sequence_parallel"] = values["tensor_parallel"] > 1
    else:
        values |= {"framework": fsdp_profile(values), "zero_stage": 3}
        away = f"actor.{backend or 'fsdp'}.offload_params"
        values["offload"] = "optimizer_weights" if flag(reading, away) else "none"
        if values["context_parallel"] > 1:
            values["cp_comm_type"] = "a2a"
    repeats = flag(reading, "actor.gradient_checkpointing")
    kind = told(reading, "actor.megatron.recompute_granularity") or "full"
    values["recompute"] = kind if repeats else "none"
    _batch(reading, found, sizes)
    penalty = reading.amount("actor.kl_ctl")
    put_objective(found, (_KL if penalty is None else penalty) > 0)


def _whole(found: Found) -> Found:
    """A command with the document that it names, or a document."""
    found = worded(found)
    for document in found.files.values():
        if document.target == "areal":
            found = replace(found, options={**document.options, **found.options})
    return found


def _batch(reading: Reading, found: Gathered, sizes: Mapping[str, int]) -> None:
    """GPUs that train, sequences of an update and of a micro-batch."""
    values = found.values
    if sizes:
        values["num_gpus"] = gpus = prod(sizes.get(name, 1) for name in "dptc")
        require_ranks(reading, found, gpus)
    else:
        found.ask("num_gpus")
    answer = number(reading, "gconfig.max_new_tokens") or _LENGTH
    length = answer + (number(reading, _PROMPT) or max(answer // _OF_ANSWER, 1))
    values["sequence_length"] = length
    budget = number(reading, _BUDGET)
    values["micro_batch_size"] = max((budget or length) // length, 1)
    samples = number(reading, "gconfig.n_samples") or 1
    generated = (number(reading, "train_dataset.batch_size") or 1) * samples
    times = number(reading, "actor.ppo_n_minibatches") or _MINI
    values["global_batch_size"] = batch = max(generated // times, 1)
    tell_updates(found, "AReaL", times * batch, batch)


_PROMPT, _BUDGET = "train_dataset.max_length", "actor.mb_spec.max_tokens_per_mb"
_OF_ANSWER = 8


def _put_step(reading: Reading, update: Answers, found: Gathered) -> None:
    """What of a whole step is no row of the table: lengths, micro-batches, who runs where."""
    values = found.values
    put_as_verl(update, found, "AReaL")
    if any(name.startswith("critic.") for name in reading.found.options):
        values["algorithm"] = str(Algorithm.PPO)
    length = int(update.values["sequence_length"])
    answer = number(reading, "gconfig.max_new_tokens") or _LENGTH
    put_lengths(found, length, answer, number(reading, _PROMPT))
    longest = int(values["input_tokens"]) + values["output_cap"]
    values["micro_batch_tokens"] = max(number(reading, _BUDGET) or longest, longest)
    decoupled = flag(reading, "actor.use_decoupled_loss")
    values["old_logprob"] = flag(reading, "actor.recompute_logprob") or decoupled
    _, engine, shares = _allocations(reading)
    backend, sizes, _ = allocated(engine)
    values["engine"] = "sglang" if backend == "sglang" else "vllm"
    values["rollout_tensor_parallel"] = sizes.get("t", 1)
    share = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}[values["engine"]]
    found.put("rollout_gpu_memory", reading.amount(f"{values['engine']}.{share}"))
    # A rollout is a prompt with its answers.
    prompts = number(reading, "rollout.max_concurrent_rollouts", "rollout.consumer_batch_size")
    prompts = prompts or int(values.get("prompts_per_step", 0))
    if flying := prompts * int(values.get("samples_per_prompt", 0)) // sizes.get("d", 1):
        usual = flying if values["engine"] == "sglang" else _AT_ONCE
        values["max_num_seqs"] = min(int(values.get("max_num_seqs", usual)), flying)
    stale = number(reading, "rollout.max_head_offpolicyness") or 0
    placement = Placement.COLOCATED if shares else Placement.SEPARATE
    if stale and not shares and flag(reading, "async_training", default=True):
        placement, values["partial_rollout"] = Placement.ASYNC, True
        values["staleness"] = stale
    gpus = prod(sizes.get(name, 1) for name in "dpt") if sizes else 0
    put_split(found, placement, update.values.get("num_gpus") if gpus else None, gpus)


TARGET = reader_of_steps(
    Target.of("areal", answers=read_update("areal", _tell, ("actor.path",), _SECTIONS, _whole)),
    profiles=("verl", "verl Megatron"),
    put=_put_step,
    whole=_whole,
)
