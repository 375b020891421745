"""GPT-NeoX: ``deepy.py train.py FILES`` and its YAML, read-only.

Source: EleutherAI/gpt-neox at ea7aefd, ``megatron/neox_arguments`` (``arguments.py``,
``neox_args.py``), ``megatron/model/transformer.py`` (``ParallelMLP``) and
``megatron/tokenizer/tokenizer.py``. Keys have hyphens or underscores.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.units import ceil_div
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError
from planner.launch.option_table import MutableQuantities
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    total_gpus,
)
from planner.launch.targets.training_reader import (
    make_reader_target,
    set_global_batch,
    set_gpus,
    set_total_tokens,
)

_SHAPE = {"num_layers", "hidden_size", "num_attention_heads"}
_VOCABULARIES = {"gpt2bpetokenizer": 50257, "hfgpt2tokenizer": 50257, "hftokenizer": 50277,
                 "spmtokenizer": 32000, "charleveltokenizer": 512}  # fmt: skip
_DEFAULT_TOKENIZER = "GPT2BPETokenizer"
_DEFAULT_PADDING = 128
_MULTIPLE = 256
_GATED = ("geglu", "reglu", "swiglu", "bilinear", "glu")
_UNSUPPORTED_LAYERS = ("mamba", "rwkv", "gmlp", "amlp")
_POSITIONS = {"rotary": "rotary", "learned": "learned", "alibi": "alibi", "none": "none"}
_ATTENTION_SECTION = "attention_config"


def _add_unlisted_settings(
    reading: OptionReader, settings: SettingsBuilder
) -> MutableQuantities | None:
    """Set what the option table does not read; return the model's sizes.

    Raises LaunchError if the model has experts or layers other than attention.
    """
    options = reading.command.options
    kinds = {
        option.single for name, option in options.items() if name.startswith(_ATTENTION_SECTION)
    }
    unsupported = next(
        (layer_kind for layer_kind in _UNSUPPORTED_LAYERS if layer_kind in kinds), ""
    )
    if (reading.number("moe_num_experts") or 1) > 1:
        unsupported = "moe_num_experts"
    if unsupported:
        raise LaunchError(
            f"{reading.position}: {unsupported}: only GPT-NeoX's layers of attention and a dense "
            "block are read. Describe the run without --from."
        )
    values = settings.values
    values["flash_attention"] = "flash" in kinds
    values["pipeline_parallel"] = max(reading.number("pipe_parallel_size") or 1, 1)
    rates = map(reading.amount, ("attention_dropout", "hidden_dropout"))
    values["dropout"] = any((rate or 0) > 0 for rate in rates)
    device = (reading.text("zero_optimization.offload_optimizer.device") or "none").lower()
    offloads = flag(reading, "zero_optimization.cpu_offload") or device in ("cpu", "nvme")
    values["offload"] = "optimizer" if offloads else "none"
    optimizer = (reading.text("optimizer.type") or "adam").lower()
    settings.set_optimizer(optimizer)
    _set_batch(reading, settings)
    if set(options) >= _SHAPE:
        return _read_shape(reading, settings)
    settings.mark_missing("model")
    return None


def _with_underscores(option: str) -> str:
    return option.replace("-", "_")


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    sources = (*(file.options for file in command.files.values()), command.options)
    return {
        _with_underscores(name): option for source in sources for name, option in source.items()
    }


def _set_batch(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the number of GPUs, and the samples of a step and of a micro-batch."""
    values = settings.values
    sizes = {name: int(values[f"{name}_parallel"]) for name in ("tensor", "pipeline")}
    num_gpus = total_gpus(reading.command.resources) or reading.number("global_num_gpus")
    ranks = set_gpus(reading, settings, num_gpus, **sizes)
    batch, accumulation_steps = (
        reading.number("train_batch_size"),
        reading.number("gradient_accumulation_steps"),
    )
    if ranks is None and batch is None:
        settings.mark_missing("global_batch_size")
    if ranks is not None and batch is not None:
        values.setdefault("micro_batch_size", max(batch // (ranks * (accumulation_steps or 1)), 1))
    if ranks is not None and "micro_batch_size" not in values:
        settings.mark_missing("micro_batch_size")
    set_global_batch(settings, ranks, accumulation_steps)
    settings.set("global_batch_size", batch)
    set_total_tokens(settings, reading.number("train_iters"))


def _read_shape(reading: OptionReader, settings: SettingsBuilder) -> MutableQuantities:
    """Read the model's sizes from the keys; note the assumed vocabulary size in ``settings``."""
    number = reading.number
    hidden_size, heads = number("hidden_size") or 0, number("num_attention_heads") or 1
    is_gated = (reading.text("activation") or "gelu").lower() in _GATED
    intermediate_size = number("intermediate_size") or 4 * hidden_size
    if is_gated:  # ParallelMLP keeps the parameters of a block that is not gated
        intermediate_size = ceil_div(int(intermediate_size * 2 / 3) // 2, _MULTIPLE) * _MULTIPLE
    tokenizer = reading.text("tokenizer_type") or _DEFAULT_TOKENIZER
    vocabulary = _VOCABULARIES.get(tokenizer.lower(), _VOCABULARIES["gpt2bpetokenizer"])
    multiple = number("make_vocab_size_divisible_by") or _DEFAULT_PADDING
    multiple *= number("model_parallel_size") or 1
    vocab_size = ceil_div(vocabulary, multiple) * multiple
    settings.notes.append(
        f"The file does not set its vocabulary: planner assumes {vocab_size:,} tokens, those of "
        f"{tokenizer} padded to multiples of {multiple}."
    )
    has_bias = flag(reading, "use_bias_in_attn_linear", default=True)
    is_layer_norm = (reading.text("norm") or "layernorm").lower() == "layernorm"
    position_embedding = (reading.text("pos_emb") or "learned").lower()
    return {
        "num_hidden_layers": number("num_layers"),
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "gated": is_gated,
        "num_attention_heads": heads,
        "num_key_value_heads": number("num_kv_heads") or heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": number("max_position_embeddings") or number("seq_length"),
        "tie_word_embeddings": not flag(reading, "no_weight_tying"),
        "position_embedding": _POSITIONS.get(position_embedding, "none"),
        "norm_bias": is_layer_norm and flag(reading, "use_bias_in_norms", default=True),
        "qkv_bias": has_bias,
        "output_bias": has_bias,
        "mlp_bias": flag(reading, "use_bias_in_mlp", default=True),
    }


TARGET = make_reader_target(
    "gpt-neox", _add_unlisted_settings, _merge_config_files, _with_underscores
)
