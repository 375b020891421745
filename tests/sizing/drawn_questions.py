"""Questions of a size drawn at random, and searches that say whether an answer is the fewest."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import planner
from planner.base.units import DAY
from planner.decide.sizing.size import Size
from planner.decide.sizing.size_all import DEFAULT_CONFIDENCE
from planner.errors import PlannerError

Question = Mapping[str, Any]

# Billions of parameters that a token uses, and dense bf16 TFLOP/s: what makes runs of a size.
MODELS = {
    "llama-3.2-1b": 1.2,
    "qwen2.5-3b": 3.1,
    "llama-7b": 6.7,
    "llama-3.1-8b": 8.0,
    "gemma-2-9b": 9.2,
    "llama-13b": 13.0,
    "qwen3-30b-a3b": 3.3,
    "llama-33b": 32.5,
    "falcon-40b": 41.3,
    "mixtral-8x7b": 12.9,
    "llama-3.1-70b": 70.6,
    "gpt-3-175b": 175.0,
    "deepseek-v3": 37.0,
}
GPUS = {
    "a100-sxm-80gb": 312,
    "a100-sxm-40gb": 312,
    "h100-sxm-80gb": 989,
    "h200-sxm-141gb": 989,
    "b200-sxm-180gb": 2250,
    "mi300x-192gb": 1307,
    "gb200-nvl72": 2500,
    "rtx4090-24gb": 165,
}
FRAMEWORKS = (
    "megatron-lm",
    "megatron-bridge",
    "nemo",
    "torchtitan",
    "deepspeed",
    "megatron-deepspeed",
    "fsdp",
    "hf-trainer",
)
SERVED = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-70b", "mixtral-8x7b")
SERVERS = ("h100", "a100-sxm-80gb", "l40s-48gb", "h200", "mi300x-192gb")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
# A run of no answer is looked at up to so many GPUs.
_WITHOUT_ANSWER = 128


def drawn(seed: int, number: int) -> list[Question]:
    """So many questions, two of training for each of serving; the same for the same seed."""
    generator = random.Random(seed)
    return [_served(generator) if turn % 3 == 2 else _trained(generator) for turn in range(number)]


def smaller_that_are_enough(question: Question) -> tuple[Size | None, list[int]]:
    """The size, and which numbers of GPUs below it keep every limit when they are searched.

    Those are left out that the size says were not tried. A size whose own number keeps no limit
    has it among them too; None where the question is refused.
    """
    question = {"confidence": DEFAULT_CONFIDENCE, **question}  # a search has another default
    try:
        (size,) = planner.size(**question).sizes
    except PlannerError:
        return None, []
    counts = [count for count in _counts(question, size) if count not in size.not_tried]
    enough = [count for count in counts if _is_enough(question, count)]
    if size.fewest is not None and not _is_enough(question, size.fewest.num_gpus):
        enough.append(size.fewest.num_gpus)
    return size, enough


def _counts(question: Question, size: Size) -> Iterator[int]:
    """The numbers of GPUs below an answer: all to serve, powers of two and whole nodes to train."""
    end = _WITHOUT_ANSWER if size.fewest is None else size.fewest.num_gpus
    if question["workload"] == "serve":
        yield from range(1, end)
        return
    if "num_gpus" in question:
        yield from (count for count in question["num_gpus"] if count < end)
        return
    per_node = 72 if "nvl72" in question["gpu"] else 8
    yield from (2**power for power in range(7) if 2**power < min(per_node, end))
    yield from range(per_node, end, per_node)


def _is_enough(question: Question, count: int) -> bool:
    try:
        return planner.search(**{**question, "num_gpus": count}).configurations_feasible > 0
    except PlannerError:
        return False


def _trained(generator: random.Random) -> Question:
    """A run that takes one GPU to some hundred, by its FLOPs at about 40 % of the peak."""
    model, gpu = generator.choice([*MODELS]), generator.choice([*GPUS])
    days = generator.uniform(3, 90)
    about = 2 ** generator.uniform(0, 8.5)
    rate = 0.4 * GPUS[gpu] * 1e12 / (6 * MODELS[model] * 1e9)
    limits: dict[str, Any] = {generator.choice(("calendar_time", "time_to_train")): f"{days:.1f}d"}
    if generator.random() < 0.1:
        limits["step_time"] = generator.uniform(5, 60)
    question: dict[str, Any] = {
        "workload": "train",
        "model": model,
        "gpu": gpu,
        "framework": generator.choice(FRAMEWORKS),
        "total_tokens": float(f"{about * days * DAY * rate:.2g}"),
        "constraints": limits,
        "confidence": generator.choice((None, None, 0.5, 0.9, 0.95)),
        "sequence_length": generator.choice((None, 2048, 4096)),
    }
    if generator.random() < 0.5:
        question["global_batch_size"] = generator.choice((48, 96, 120, 256, 512, 1000, 2048))
    if generator.random() < 0.1:
        question["num_gpus"] = sorted(generator.sample(range(4, 256, 4), 6))
    if generator.random() < 0.15:
        question |= {"adapter": "lora", "framework": "hf-trainer"}
    return question


def _served(generator: random.Random) -> Question:
    """A service of a few requests per second, within latencies that some GPUs keep."""
    limits = {
        "time_to_first_token": generator.choice(("300ms", "1s", "3s")),
        "time_per_output_token": generator.choice(("15ms", "30ms", "60ms")),
    }
    return {
        "workload": "serve",
        "model": generator.choice(SERVED),
        "gpu": generator.choice(SERVERS),
        "engine": generator.choice(ENGINES),
        "mode": generator.choice(("aggregated", "disaggregated", None)),
        "input_tokens": generator.choice((200, 1000, 4000)),
        "output_tokens": generator.choice((50, 300, 1000)),
        "request_rate": round(2 ** generator.uniform(-1, 5.5), 2),
        "confidence": generator.choice((None, None, 0.9)),
        "constraints": limits,
    }
