"""Whole steps of TRL's GRPO and RLOO and of ms-swift's, around the update of the Trainer's reader.

Source: huggingface/trl at f2cd577, ``trl/trainer/grpo_config.py``, ``rloo_config.py`` (names,
defaults, what a generation is), ``grpo_trainer.py`` (places of its engine, log-probabilities) and
``scripts/vllm_serve.py``; modelscope/ms-swift, ``swift/rlhf_trainers/args_mixin.py`` and
``swift/arguments/rlhf_args.py``, whose trainer is TRL's and whose words differ where said.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from planner.base.software_enums import Placement
from planner.base.training_names import Algorithm
from planner.documents.shell.text import stated
from planner.launch.target import Target, changes_nothing
from planner.launch.targets.rl_steps import put_lengths, put_split, reader_of_steps
from planner.launch.trainer.reading import gather, starts_swift
from planner.launch.trainer.said import Sources
from planner.launch.understood import (
    Answers,
    Found,
    Gathered,
    Reading,
    flag,
    is_hidden,
    number,
    number_of,
    told,
    worded,
)

_DEGREE = "--vllm_tensor_parallel_size"
_GENERATIONS, _SAMPLES = "--num_generations", {True: 2, False: 8}
"""Answers to a prompt where nobody says so: of RLOO, of GRPO."""
_SHARE = {True: 0.9, False: 0.3}
"""Of a GPU's memory: of ms-swift's engine, of TRL's."""
_SWIFT_PLACES = 256
_MICRO = 8
_SERVERS = ("--vllm_server_host", "--vllm_server_base_url")
_SERVER = re.compile(
    r"\b(?:trl\s+vllm-serve|swift\s+rollout)\b(?P<words>(?:[^\n\\]|\\\s*\n[#\s]*)*)"
)
_SPLITS = re.compile(r"--(?:vllm[-_])?(?:tensor|data)[-_]parallel[-_]size[\s=]+(\d{1,4})\b")


def step_of(target: Target) -> Target:
    """A target of the Trainer with what reads its files as whole steps, and writes none."""
    alone = Target(
        name=target.name,
        title=target.title,
        version=target.version,
        workloads=target.workloads,
        profiles=target.profiles,
        answers=target.answers,
        accepted=target.accepted,
        honoured=changes_nothing,
    )
    made = reader_of_steps(alone, ("TRL",), _put_step, _whole, table="trl-step")
    return replace(target, answers=made.answers, step=made.step)


def _whole(found: Found) -> Found:
    """With options of a script as its parser spells them, and those of the files that it names.

    GPUs that a user says to have are those of its server, too.
    """
    found = worded(found)
    sources = Sources(name=found.name)
    gather(found, sources)
    spelled = {given.option for given in sources.script.values()}
    others = {name: one for name, one in found.options.items() if one.option not in spelled}
    found = replace(found, options={**others, **sources.script})
    given, gpus = found.world.num_gpus, _of_server(Reading(found=found, meanings={}))
    total = number_of(given) or 0
    if given and gpus and not given.line and total > gpus:
        own = stated(given.option, str(total - gpus), given.line)
        found = replace(found, world=replace(found.world, num_gpus=own))
    return found


def _of_server(reading: Reading) -> int | None:
    """GPUs of the server that generates; None where none does."""
    mode = told(reading, "--vllm_mode")
    if mode != "server" and (mode or not any(map(reading.has, _SERVERS))):
        return None
    served = _SERVER.search(reading.found.text)
    if served is None:
        return number(reading, _DEGREE) or 1
    return prod(int(size) for size in _SPLITS.findall(served["words"]))


def _put_step(reading: Reading, update: Answers, found: Gathered) -> None:
    """What of a whole step is no row of the table: answers, lengths, who runs where."""
    values = found.values
    values["framework"] = "TRL"
    words = [one.single or "" for one in reading.found.positional]
    is_swift = starts_swift(words)
    if is_swift:
        found.notes.append("ms-swift has no profile: predicted as TRL, whose trainer it extends.")
    if flag(reading, "--dynamic_sample"):
        values["algorithm"] = str(Algorithm.DAPO)
        found.notes.append("How many prompts are drawn again is no option: --flat-groups says it.")
    elif any("rloo" in word for word in words):
        values["algorithm"] = str(Algorithm.RLOO)
    _put_answers(reading, update, found)
    length = int(update.values["sequence_length"])
    answer = number(reading, "--max_completion_length") or _ANSWER
    put_lengths(found, length, answer, number(reading, "--max_prompt_length"))
    micro = int(update.values.get("micro_batch_size") or _MICRO)
    values["micro_batch_tokens"] = micro * (int(values["input_tokens"]) + values["output_cap"])
    values["engine"] = "vllm"
    if not flag(reading, "--use_vllm", *_SERVERS):
        found.notes.append(
            "It generates by Transformers (no use_vllm), which takes several times as long as an "
            "engine: predicted as with vLLM."
        )
    found.assume(
        "rollout_gpu_memory", _SHARE[is_swift], f"{_SHARE[is_swift]} of a GPU is the program's"
    )
    if is_swift:
        found.assume("max_num_seqs", _SWIFT_PLACES, f"{_SWIFT_PLACES}, ms-swift's default")
    _put_placement(reading, update, found)


_ANSWER = 512


def _put_answers(reading: Reading, update: Answers, found: Gathered) -> None:
    """How many prompts a generation answers, in answers of which ranks and micro-batches share.

    A generation is of as many micro-batches of each rank as an optimizer step, unless it is said
    to be of others; where it is of fewer, a step is several generations.
    """
    values = found.values
    is_rloo = values.get("algorithm") == Algorithm.RLOO
    samples = number(reading, _GENERATIONS) or _SAMPLES[is_rloo and not reading.has("--rlhf_type")]
    values["samples_per_prompt"] = samples
    if not reading.has(_GENERATIONS):
        found.defaults["samples_per_prompt"] = f"{samples} are the program's"
    batch = update.values.get("global_batch_size")
    if batch is None or is_hidden(reading, _GENERATIONS):
        found.ask("num_gpus" if batch is None else "prompts_per_step")
        return
    accumulated = number(reading, "--gradient_accumulation_steps") or 1
    steps = number(reading, "--steps_per_generation") or accumulated
    generated = number(reading, "--generation_batch_size") or int(batch) * steps // accumulated
    answers = max(generated, int(batch))
    values["prompts_per_step"] = max(answers // samples, 1)
    if values["prompts_per_step"] * samples != answers:
        found.notes.append(
            f"{answers:,} answers of a step are no whole groups of {samples}: "
            f"{values['prompts_per_step']:,} prompts are taken."
        )
        values["global_batch_size"] = min(int(batch), values["prompts_per_step"] * samples)
    if answers > batch:
        found.notes.append(f"A generation is trained in {answers // int(batch)} optimizer steps.")


def _put_placement(reading: Reading, update: Answers, found: Gathered) -> None:
    """Where trainer and engine run: on the same GPUs, or the engine as a server."""
    train, gpus = update.values.get("num_gpus"), _of_server(reading)
    if gpus is None:
        for name, options in (
            ("offload_train", ("--offload_model", "--offload_optimizer")),
            ("offload_rollout", ("--vllm_enable_sleep_mode", "--sleep_level")),
        ):
            found.values[name] = any(flag(reading, option) for option in options)
        put_split(found, Placement.COLOCATED, train, 0)
        return
    if _SERVER.search(reading.found.text) is None:
        found.notes.append(
            f"It does not say how many GPUs its server has: one engine of {gpus} is taken; --gpus "
            "with --set train_gpus says it."
        )
    put_split(found, Placement.SEPARATE, train, gpus)
