"""Open-Instruct: its programs that are no Trainer's, which are read and not written.

Source: allenai/open-instruct at e6c3044, ``open_instruct/grpo_fast.py`` and ``grpo_utils.py``
(DeepSpeed in bf16, packs of answers), ``data_loader.py``, ``dpo.py``, ``olmo_core_utils.py`` (FSDP
of OLMo-core, compiled; the reference of DPO is asked before). ``finetune.py`` and
``dpo_tune_cache.py`` take the Trainer's options.
"""

from __future__ import annotations

from math import ceil

from planner.errors import LaunchError
from planner.launch.shape import model_named
from planner.launch.targets.trained import as_it_is, put_batch, put_objective, ranks_of, read_alone
from planner.launch.understood import Gathered, Reading, flag, gpus_of, number, told

_GENERATED = ("grpo_fast", "grpo")
_CORE = ("grpo", "dpo", "olmo_core_finetune")
_PROGRAMS = tuple(f"open_instruct/{name}.py" for name in {*_GENERATED, *_CORE})
_NEAREST = "It trains with FSDP of OLMo-core, compiled: predicted as torchtitan, the nearest."
_MOSTLY = 0.5
# Where nothing is said: prompts and answers of a step, their tokens, a pack; lengths and batch.
_PROMPTS, _SAMPLES, _TOKENS, _PACK = 16, 4, 256, 512
_LENGTH, _BATCH = 4096, 8


def _tell(reading: Reading, found: Gathered) -> None:
    """What no row tells of a command."""
    words = [word_option.single or "" for word_option in reading.found.positional]
    own = next((word for word in words if word.endswith(_PROGRAMS)), "")
    program = own.rpartition("/")[2].removesuffix(".py")
    if flag(reading, "--use_peft", "--use_lora"):
        raise LaunchError(f"{reading.place}: adapters of {program}.py are not predicted.")
    size = reading.text("--config_name")  # of a checkpoint of its own, whose path says nothing
    named = model_named(size) if size else None
    found.need("model", named or reading.text("--model_name_or_path"))
    if program in _CORE:
        _by_core(reading, found)
    else:
        _by_deepspeed(reading, found)
    if program in _GENERATED:
        _on_answers(reading, found)
    else:
        _on_samples(reading, found, program)
    found.values.setdefault("sequence_parallel", False)


def _by_deepspeed(reading: Reading, found: Gathered) -> None:
    values = found.values
    found.assume("zero_stage", 0, "0 is Open-Instruct's --deepspeed_stage")
    values["recompute"] = "full" if flag(reading, "--gradient_checkpointing") else "none"
    moved = "optimizer" if flag(reading, "--deepspeed_offload_optimizer") else "none"
    values["offload"] = "optimizer_weights" if flag(reading, "--deepspeed_offload_param") else moved


def _by_core(reading: Reading, found: Gathered) -> None:
    values = found.values
    values["framework"], values["zero_stage"] = "torchtitan", 3
    budget = reading.amount("--activation_memory_budget")
    mode = told(reading, "--activation_checkpointing_mode") or "budget"
    share = 1.0 if budget is None else budget
    values["recompute"] = "none"
    if mode == "full" or share < _MOSTLY:
        values["recompute"] = "full"
    elif mode == "selected_modules" or share < 1:
        values["recompute"] = "selective"
    compiles = flag(reading, "--compile_model", default=True)
    values["torch_compile"] = "auto" if compiles else "false"
    found.notes.append(_NEAREST)


def _on_answers(reading: Reading, found: Gathered) -> None:
    """Packs of answers of full length, on the GPUs that learn."""
    values = found.values
    put_objective(found, flag(reading, "--load_ref_policy", default=True))
    prompt = number(reading, "--max_prompt_token_length") or _TOKENS
    longest = prompt + (number(reading, "--response_length") or _TOKENS)
    pack = number(reading, "--pack_length") or max(_PACK, longest)
    values["sequence_length"] = pack
    found.assume("micro_batch_size", 1, "1 pack is Open-Instruct's")
    given = reading.found.options.get("--num_learners_per_node")
    texts = (given.joined or "").split() if given is not None else ["1"]
    total = sum(int(text) for text in texts if text.isdecimal()) or None
    ranks = _placed(reading, found, total)
    if ranks is None:
        return
    samples = number(reading, "--num_samples_per_prompt_rollout") or _SAMPLES
    generated = (number(reading, "--num_unique_prompts_rollout") or _PROMPTS) * samples
    packs = ceil(generated * longest / pack / (number(reading, "--num_mini_batches") or 1))
    least = ranks * int(values["micro_batch_size"])
    values["global_batch_size"] = ceil(packs / least) * least
    found.notes.append(
        f"{generated:,} answers of full length are {packs:,} packs of {pack:,} tokens: shorter "
        "ones make fewer. GPUs that generate are not counted."
    )


def _on_samples(reading: Reading, found: Gathered, program: str) -> None:
    """Sequences of a rank and of a step, for DPO pairs of them."""
    values = found.values
    values["training_objective"] = "dpo" if program == "dpo" else "sft"
    if program == "dpo":
        values["precompute_ref_log_probs"] = True
    found.put("sequence_length", number(reading, "--max_seq_length"))
    found.assume("sequence_length", _LENGTH, f"{_LENGTH:,} is Open-Instruct's")
    found.assume("micro_batch_size", _BATCH, f"{_BATCH} is Open-Instruct's")
    ranks = _placed(reading, found, gpus_of(reading.found.world))
    put_batch(found, ranks, number(reading, "--gradient_accumulation_steps"))


def _placed(reading: Reading, found: Gathered, total: int | None) -> int | None:
    """The GPUs of the layout; how many copies of the model there are on them."""
    sizes = {name: int(found.values[f"{name}_parallel"]) for name in ("tensor", "context")}
    return ranks_of(reading, found, total, **sizes)


TARGET = read_alone("open-instruct", _tell, spelled=as_it_is)
