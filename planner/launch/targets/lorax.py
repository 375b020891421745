"""LoRAX: ``lorax-launcher``, a fork of Text Generation Inference, read alone.

Defaults are those of launcher/src/main.rs of predibase/lorax at a7394ba.
"""

from __future__ import annotations

from planner.launch.served import Engine, Told, server_told, whole
from planner.launch.serving import AGGREGATED
from planner.launch.target import Target
from planner.launch.targets.tgi import drafts, layout, put_share, variables, with_variables
from planner.launch.understood import Answers, Reading
from planner.specs.model import ModelSpec

NAME = "lorax"
_MODEL = "mistralai/Mistral-7B-Instruct-v0.1"
_LONGEST, _MORE = 4096, 50
_ADAPTERS = ("--adapter-id", "--preloaded-adapter-ids")


def answers(reading: Reading) -> Answers:
    """The server that a command starts, predicted as TGI."""
    reading = with_variables(reading, TARGET, variables(TARGET))
    told = server_told(reading, _ENGINE, AGGREGATED)
    told.values["engine"] = "tgi"
    told.values["max_num_seqs"] = told.values["concurrency"]
    told.values.setdefault("kv_cache", "bf16")
    put_share(told)
    if not reading.has("--model-id"):
        told.assume("model", _MODEL, f"--model-id is {_MODEL} by default")
    if not any(map(reading.has, _ADAPTERS)):
        told.notes.append("Adapters come with requests: give --lora-rank, and --max-loras.")
    return told.of_pool(AGGREGATED)


def _batch(told: Told, model: ModelSpec | None, _: int) -> None:
    """The tokens of a prefill where the command gives none: the longest prompt and some more."""
    reading = told.reading
    if reading.value("max_num_batched_tokens") is None:
        longest = whole(reading.value("longest_prompt")) or _most(model) - 1
        why = f"--max-batch-prefill-tokens is the longest prompt and {_MORE} by default"
        told.assume("max_num_batched_tokens", longest + _MORE, why)


def _longest(told: Told, model: ModelSpec | None) -> None:
    given, most = whole(told.reading.value("max_model_len")), _most(model)
    why = f"--max-total-tokens is {most:,} by default"
    told.put("max_model_len", given)
    told.assume("max_model_len", most, why)


def _most(model: ModelSpec | None) -> int:
    return min((model and model.max_position_embeddings) or _LONGEST, _LONGEST)


_ENGINE = Engine(
    name=NAME,
    model_options=("--model-id",),
    layout=layout,
    batch=_batch,
    drafts=drafts,
    longest=_longest,
    switches=_ADAPTERS,
)

TARGET = Target.of("lorax", answers=answers)
