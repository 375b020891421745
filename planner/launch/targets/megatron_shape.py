"""Write a model's shape as arguments of Megatron-Core, and read it from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import TypeVar

from planner.base.enums import AttentionKind
from planner.errors import LaunchError, SpecError
from planner.estimators.training.sharding import chunk_split
from planner.launch.model_shape import shape_of
from planner.launch.option_table import (
    MutableQuantities,
    Quantities,
)
from planner.launch.read.parsed_launch import OptionReader
from planner.launch.target import LaunchJob
from planner.layers.model import layer_kinds
from planner.specs.attention import AttentionSpec
from planner.specs.catalogue import Catalogue
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.training_workload import chunks_of

PROGRAM = "pretrain_hybrid.py"
Block = TypeVar("Block")
_PATTERN_LETTERS = {
    AttentionKind.MAMBA2: "M",
    AttentionKind.LINEAR: "G",
    AttentionKind.STANDARD: "*",
    AttentionKind.LATENT: "+",
}


def is_hybrid(model: ModelSpec) -> bool:
    """Return whether some layers have a recurrent state, no attention or no feed-forward block."""
    return any(
        not group.feed_forward or not group.mixers or group.mixers[-1].has_state
        for group in model.layer_groups
    )


def hybrid_quantities(
    model: ModelSpec, tensor: int, pipeline: int, virtual: int
) -> MutableQuantities:
    """Return the option values of a hybrid model's shape; the layer pattern has the stages.

    Raises LaunchError if layers of one kind differ among themselves, or it has modules of
    multi-token prediction.
    """
    if model.mtp_num_layers:
        raise LaunchError(
            f"{model.name}: the plan has no pattern of its modules of multi-token prediction: "
            "plan it with --mtp-num-layers 0."
        )
    dense = _single_block(model, (ff for ff in model.feed_forwards if not ff.num_experts))
    experts = _single_block(model, (ff for ff in model.feed_forwards if ff.num_experts))
    standard = _single_block(
        model, (attention for attention in model.attentions if not attention.has_state)
    )
    state = _single_block(
        model, (attention for attention in model.attentions if attention.has_state)
    )
    attention = (
        standard
        if standard or not state
        else AttentionSpec(
            num_attention_heads=state.num_attention_heads,
            num_key_value_heads=state.num_key_value_heads,
            head_dim=state.head_dim,
        )
    )
    blocks = [ff for ff in (dense, experts) if ff is not None]
    groups = tuple(
        LayerGroup(
            num_hidden_layers=1,
            attention=attention,
            feed_forward=block,
            norm_bias=model.layer_groups[0].norm_bias,
        )
        for block in blocks or [FeedForwardSpec(intermediate_size=4 * model.hidden_size)]
    )
    shape = shape_quantities(replace(model, layer_groups=groups), tensor)
    return {
        **shape,
        "num_hidden_layers": None,  # the pattern counts them
        "moe_layer_freq": None,
        "hybrid_pattern": hybrid_pattern(model, pipeline, virtual),
        **_state_quantities(state),
        **dict.fromkeys(("virtual_pipeline", "pipeline_layout")),
        **dict.fromkeys(("embedding_in_split", "loss_in_split")),
    }


def _single_block(model: ModelSpec, blocks: Iterator[Block]) -> Block | None:
    """Return the only distinct block, None without blocks; raise LaunchError if blocks differ."""
    distinct = list(dict.fromkeys(blocks))
    if len(distinct) > 1:
        raise LaunchError(
            f"{model.name}: blocks of one kind differ, and Megatron-LM has no argument for that."
        )
    return distinct[0] if distinct else None


def hybrid_pattern(model: ModelSpec, pipeline: int, virtual: int) -> str:
    """Return the value of ``--hybrid-override-pattern``: a symbol per layer, | between chunks."""
    symbols = []
    for group in model.layer_groups:
        kind = group.attention.kind if group.attention else None
        if group.state:
            raise LaunchError(f"{model.name}: a pattern has no letter for two mixers of a layer.")
        if kind is not None and kind not in _PATTERN_LETTERS:
            raise LaunchError(f"{model.name}: a pattern has no letter for {kind} layers.")
        attention = "" if kind is None else _PATTERN_LETTERS[kind]
        forward = "" if group.feed_forward is None else "E" if group.num_experts else "-"
        symbols.append(attention + forward)
    layers = [symbols[kind] for kind in layer_kinds(model.layer_groups)]
    remaining = iter(layers)
    sizes = chunk_split(model, pipeline, virtual)
    return "|".join("".join(islice(remaining, size)) for size in sizes)


def _state_quantities(state: AttentionSpec | None) -> MutableQuantities:
    """Return the sizes of a Mamba-2 or delta-rule layer by parameter; {} without such a layer."""
    if state is None:
        return {}
    kind = "mamba" if state.kind is AttentionKind.MAMBA2 else "delta"
    return {
        f"{kind}_state": state.linear_key_head_dim,
        f"{kind}_head_dim": state.linear_value_head_dim,
        f"{kind}_groups": state.linear_num_key_heads,
        f"{kind}_heads": state.linear_num_value_heads,
        f"{kind}_kernel": state.linear_conv_kernel_dim,
    }


def split_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the options of the pipeline split: chunks if even, else ends or a layout."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    sizes = chunk_split(job.model, pp, vp, job["pipeline_layout"] or "")
    mtp_layers = job.model.mtp_num_layers
    if pp == 1 or (len(set(sizes)) == 1 and not mtp_layers):
        return {"virtual_pipeline": vp}
    largest = max(sizes)
    # Two chunks are both ends; the larger one is then the even share.
    if not mtp_layers and set(sizes[1:-1]) <= {largest} and min(sizes[0], sizes[-1]) >= largest - 1:
        ends = {"embedding_in_split": sizes[0] < largest, "loss_in_split": sizes[-1] < largest}
        return {"virtual_pipeline": vp, **ends}
    # The layout sets the chunks, too, and Megatron-Core refuses both options.
    return {"virtual_pipeline": None, "pipeline_layout": format_layout(sizes, mtp_layers)}


def format_layout(sizes: list[int], mtp_layers: int = 0) -> str:
    """Return Megatron-Core's pipeline layout text for chunks of ``sizes`` layers.

    Megatron-Core does not count these in ``--num-layers`` and needs all of them in one chunk;
    only chunks without layers may follow it [1]_.
    Raises LaunchError if the layers of multi-token prediction are in several chunks.

    >>> format_layout([3, 4, 4, 2])
    'Et*3|(t*4|)*2t*2L'
    >>> format_layout([0, 2, 2, 1, 0], 1)
    'E|(t*2|)*2m|L'

    References
    ----------
    .. [1] NVIDIA/Megatron-LM 0.19, ``megatron/core/transformer/pipeline_parallel_layer_layout.py``,
       ``validate_layer_layout``.
    """
    chunks = ["t" * size for size in sizes]
    last_with_layers = max(chunk for chunk, size in enumerate(sizes) if size)
    decoder_layers = sizes[last_with_layers] - mtp_layers
    if decoder_layers < 0:
        raise LaunchError(
            f"The {mtp_layers} layers of multi-token prediction are in several chunks of the "
            "pipeline, and Megatron-Core needs them in one: plan fewer pipeline stages or chunks, "
            "or --mtp-num-layers 0."
        )
    chunks[last_with_layers] = "t" * decoder_layers + "m" * mtp_layers
    first, *inner, last = (
        re.sub(r"(.)\1+", lambda match: f"{match[1]}*{len(match[0])}", chunk) for chunk in chunks
    )
    parts = [f"E{first}|"]
    for chunk, run in groupby(inner):
        repeats = len(list(run))
        parts.append(f"({chunk}|)*{repeats}" if repeats > 1 else f"{chunk}|")
    return "".join(parts) + last + "L"


def chunks_of_layout(layout: str) -> list[str]:
    """Return the chunks of a pipeline layout as texts with a letter for each layer.

    >>> chunks_of_layout("Et*3|(tt|)*2,m|L")
    ['Ettt', 'tt', 'tt', 'm', 'L']

    Raises `LaunchError`: it is no layout, or longer than any model.
    """
    try:
        return chunks_of(layout)
    except SpecError as error:
        raise LaunchError(str(error)) from error


def read_pipeline_layout(
    reading: OptionReader, values: Quantities, layers: int | None
) -> str | None:
    """Return the file's pipeline layout, or one made from its first and last stage's layers.

    None where the file sets neither.
    """
    layout = reading.text("--pipeline-model-parallel-layout")
    if layout:
        return layout
    ends = [reading.number(f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last")]
    stages = int(values.get("pipeline_parallel") or 1)
    chunks = int(values.get("virtual_pipeline") or 1)
    specified = [end for end in ends if end is not None]
    if not specified or not layers or stages <= len(specified):
        return None
    inner, remainder = divmod(layers - sum(specified), stages - len(specified))
    if remainder or any(number % chunks for number in (inner, *specified)):
        return None
    layers_by_stage = [inner] * stages
    layers_by_stage[0], layers_by_stage[-1] = (
        ends[0] or layers_by_stage[0],
        ends[1] or layers_by_stage[-1],
    )
    return format_layout([number // chunks for _ in range(chunks) for number in layers_by_stage])


_DEFAULT_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to multiples of it on each tensor-parallel rank."""
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000}
_FREQUENCY = re.compile(r"\[([01,\s]*)\](?:\*(\d{1,4}))?")
_MOST_LAYERS = 10_000


def shape_quantities(model: ModelSpec, tensor_parallel: int) -> MutableQuantities:
    """Return the option values of a model's shape, by parameter; None writes no option.

    Raises LaunchError if its layers differ in more than dense layers before those with experts.
    """
    shape = shape_of(model)
    dense, layers = shape["num_dense_layers"], shape["num_hidden_layers"]
    multiples = [2**power for power in range(_DEFAULT_MULTIPLE.bit_length())]
    fitting = [
        multiple for multiple in multiples if model.vocab_size % (multiple * tensor_parallel) == 0
    ]
    has_both = bool(shape["num_experts"] and dense)
    return {
        **shape,
        "vocabulary_multiple": max(fitting, default=1),
        "moe_layer_freq": f"([0]*{dense}+[1]*{layers - dense})" if has_both else None,
    }


def expert_layers(text: str, num_layers: int) -> list[bool] | None:
    """Return per layer whether it has experts, by ``--moe-layer-freq``; None if not parsed.

    >>> expert_layers("([0]*1+[1]*3)", 4), expert_layers("2", 4)
    ([False, True, True, True], [True, False, True, False])
    """
    unquoted = text.replace(" ", "").strip("\"'")
    if unquoted.isdecimal() and int(unquoted) > 0:
        return [layer % int(unquoted) == 0 for layer in range(num_layers)]
    inner = unquoted.removeprefix("(")
    body, _, suffix = inner.rpartition(")") if unquoted.startswith("(") else (inner, "", "")
    layers: list[bool] = []
    for part in body.split("+"):
        part_match = _FREQUENCY.fullmatch(part.strip())
        if part_match is None:
            return None
        digits = [digit == "1" for digit in part_match[1] if digit in "01"]
        layers += digits * min(int(part_match[2] or 1), _MOST_LAYERS)
    repeats = suffix.strip().removeprefix("*")
    if repeats and not repeats.isdecimal():
        return None
    return (layers * min(int(repeats or 1), _MOST_LAYERS))[:_MOST_LAYERS]


def read_sizes(reading: OptionReader, notes: list[str]) -> MutableQuantities:
    """Return the sizes of the model that no row of the table computes; may add to ``notes``."""
    window = (reading.text("--window-size") or "").strip("()[]").split(",")[0].strip()
    layers = reading.number("--num-layers") or reading.number("--encoder-num-layers")
    return {
        "vocabulary": _read_vocab_size(reading),
        "window": int(window) + 1 if window.isdecimal() else None,
        "dense_layers": _read_dense_layers(reading, layers or 0, notes),
    }


def _read_vocab_size(reading: OptionReader) -> int | None:
    """Return the vocabulary size in tokens, from sizes or the tokenizer; None if unknown."""
    specified = reading.number("--vocab-size") or reading.number("--padded-vocab-size")
    if specified:
        return specified
    tokenizer = reading.text("--tokenizer-type") or ""
    name = reading.text("--tokenizer-model") or reading.text("--tokenizer-name-or-path")
    if name and tokenizer not in _VOCABULARIES:
        try:  # the vocabulary of the shipped model with this tokenizer
            return Catalogue(None).load_model(name).vocab_size if "/" in name else None
        except (SpecError, OSError):
            return None
    if reading.has("--merge-file"):
        tokenizer = "GPT2BPETokenizer"  # its merges; no other tokenizer has such a file
    return _VOCABULARIES.get(tokenizer)


def _read_dense_layers(reading: OptionReader, layers: int, notes: list[str]) -> int:
    """Return the dense layers before those with experts; may add to ``notes``."""
    frequency = reading.text("--moe-layer-freq")
    if not reading.number("--num-experts") or not frequency:
        return 0
    pattern = expert_layers(frequency, layers)
    dense = pattern.index(True) if pattern and True in pattern else 0
    if pattern and not all(pattern[dense:]):
        notes.append("Layers with experts alternate with dense ones (--moe-layer-freq): planner")
        notes[-1] += f" assumes {sum(pattern)} of them after {layers - sum(pattern)} dense ones."
        dense = layers - sum(pattern)
    elif pattern is None:
        notes.append(
            f"--moe-layer-freq {frequency} is not read: planner assumes experts in all layers."
        )
    return dense
