"""GPT-NeoX: ``deepy.py train.py FILES`` and its YAML, which are read and not written.

Source: EleutherAI/gpt-neox at ea7aefd, ``megatron/neox_arguments`` (``arguments.py``,
``neox_args.py``), ``megatron/model/transformer.py`` (``ParallelMLP``) and
``megatron/tokenizer/tokenizer.py``. Keys have hyphens or underscores.
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import LaunchError
from planner.launch.option_table import Words
from planner.launch.target import Target, gathered
from planner.launch.understood import Answers, Gathered, Reading, gpus_of, require_split

_SHAPE = {"num_layers", "hidden_size", "num_attention_heads"}
_VOCABULARIES = {"gpt2bpetokenizer": 50257, "hfgpt2tokenizer": 50257, "hftokenizer": 50277,
                 "spmtokenizer": 32000, "charleveltokenizer": 512}  # fmt: skip
_USUAL_TOKENIZER = "GPT2BPETokenizer"
_PADDED = 128
_MULTIPLE = 256
_GATED = ("geglu", "reglu", "swiglu", "bilinear", "glu")
_UNREAD = ("mamba", "rwkv", "gmlp", "amlp")
_POSITIONS = {"rotary": "rotary", "learned": "learned", "alibi": "alibi", "none": "none"}
_OF_TABLE = "attention_config"


def answers(reading: Reading) -> Answers:
    """What a configuration says, or a command with those that it names.

    Raises
    ------
    LaunchError
        Its layers are of a kind that is not read, or its layout is that of other GPUs.
    """
    own = reading.found.options
    every = [*(file.options for file in reading.found.files.values()), own]
    options = {name.replace("-", "_"): given for one in every for name, given in one.items()}
    reading = TARGET.reading(replace(reading.found, options=options))
    kinds = {given.single for name, given in options.items() if name.startswith(_OF_TABLE)}
    strange = next((kind for kind in _UNREAD if kind in kinds), "")
    if (reading.number("moe_num_experts") or 1) > 1:
        strange = "moe_num_experts"
    if strange:
        raise LaunchError(
            f"{reading.place}: {strange}: of GPT-NeoX the layers of attention and a dense block "
            "alone are read: describe the run without --from."
        )
    found = gathered(reading, "GPT-NeoX")
    values = found.values
    # Its pipeline and ZeRO are DeepSpeed's, its layers Megatron's.
    (values["framework"],) = TARGET.nearest
    values["flash_attention"] = "flash" in kinds
    values["pipeline_parallel"] = max(reading.number("pipe_parallel_size") or 1, 1)
    rates = map(reading.amount, ("attention_dropout", "hidden_dropout"))
    values["dropout"] = any((rate or 0) > 0 for rate in rates)
    device = (reading.text("zero_optimization.offload_optimizer.device") or "none").lower()
    is_away = _is(reading, "zero_optimization.cpu_offload") or device in ("cpu", "nvme")
    values["offload"] = "optimizer" if is_away else "none"
    kind = (reading.text("optimizer.type") or "adam").lower()
    values["optimizer"] = next((one for one in ("sgd", "lion") if one in kind), "adam")
    _batch(reading, found)
    shape = _shape(reading, found) if set(options) >= _SHAPE else None
    if shape is None:
        found.ask("model")
    known = {row.option for row in TARGET.table.rows}
    used = {name for name in own if name.replace("-", "_") in known or name.startswith(_OF_TABLE)}
    return found.made(shape=shape, used=frozenset(used), ignored=frozenset(set(own) - used))


def _batch(reading: Reading, found: Gathered) -> None:
    """GPUs, and the samples of a step."""
    values = found.values
    sizes = {name: int(values[f"{name}_parallel"]) for name in ("tensor", "pipeline")}
    total = gpus_of(reading.found.world) or reading.number("global_num_gpus")
    require_split(reading, total, **sizes)
    whole, steps = reading.number("train_batch_size"), reading.number("gradient_accumulation_steps")
    micro = reading.number("train_micro_batch_size_per_gpu")
    if total is None:
        found.asked += ["num_gpus", *(["global_batch_size"] if whole is None else [])]
    else:
        values["num_gpus"] = total
        ranks = total // (sizes["tensor"] * sizes["pipeline"])
        if micro is None and whole is not None:
            micro = values["micro_batch_size"] = max(whole // (ranks * (steps or 1)), 1)
        if whole is None and micro is not None:
            whole = micro * (steps or 1) * ranks
    if micro is None and total is not None:
        found.ask("micro_batch_size")
    found.put("global_batch_size", whole)
    length, iterations = reading.number("seq_length"), reading.number("train_iters")
    if whole and length and iterations:
        values["total_tokens"] = whole * length * iterations


def _shape(reading: Reading, found: Gathered) -> Words:
    number = reading.number
    hidden, heads = number("hidden_size") or 0, number("num_attention_heads") or 1
    gated = (reading.text("activation") or "gelu").lower() in _GATED
    width = number("intermediate_size") or 4 * hidden
    if gated:  # ParallelMLP keeps the parameters of a block that is not gated
        width = -(-(int(width * 2 / 3) // 2) // _MULTIPLE) * _MULTIPLE
    tokenizer = reading.text("tokenizer_type") or _USUAL_TOKENIZER
    vocabulary = _VOCABULARIES.get(tokenizer.lower(), _VOCABULARIES["gpt2bpetokenizer"])
    multiple = number("make_vocab_size_divisible_by") or _PADDED
    multiple *= number("model_parallel_size") or 1
    padded = -(-vocabulary // multiple) * multiple
    found.notes.append(
        f"The file does not give its vocabulary: {padded:,} tokens, those of {tokenizer} padded to "
        f"multiples of {multiple}."
    )
    is_plain = (reading.text("norm") or "layernorm").lower() == "layernorm"
    position = (reading.text("pos_emb") or "learned").lower()
    return {
        "num_hidden_layers": number("num_layers"),
        "hidden_size": hidden,
        "intermediate_size": width,
        "gated": gated,
        "num_attention_heads": heads,
        "num_key_value_heads": number("num_kv_heads") or heads,
        "vocab_size": padded,
        "max_position_embeddings": number("max_position_embeddings") or number("seq_length"),
        "tie_word_embeddings": not _is(reading, "no_weight_tying"),
        "position_embedding": _POSITIONS.get(position, "none"),
        "norm_bias": is_plain and not _is_off(reading, "use_bias_in_norms"),
        "qkv_bias": not _is_off(reading, "use_bias_in_attn_linear"),
        "output_bias": not _is_off(reading, "use_bias_in_attn_linear"),
        "mlp_bias": not _is_off(reading, "use_bias_in_mlp"),
    }


def _is(reading: Reading, key: str) -> bool:
    return (reading.text(key) or "").lower() == "true"


def _is_off(reading: Reading, key: str) -> bool:
    return (reading.text(key) or "").lower() == "false"


TARGET = Target.of("gpt-neox", answers=answers)
