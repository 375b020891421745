"""Number formats of a checkpoint, as the ``quantization_config`` of its ``config.json`` has them.

Methods are those of ``transformers/utils/quantization_config.py`` (5.x), of
``vllm/model_executor/layers/quantization`` (0.33), of ModelOpt's ``hf_quant_config.json`` and of
AMD's Quark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from planner.base.records import record
from planner.errors import SpecError

_Table = Mapping[str, Any]
_SOURCE = "quantization_config of the config.json"
_USUAL_GROUP = 128
_EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_LAYER = re.compile(r"layers\.(\d+)(?:\.(\w+))?")
# Parts by patterns of the names of modules; expressions name no layer.
_PARTS = {
    "attention": re.compile(r"attn|attention"),
    "shared_experts": re.compile(r"shared_expert"),
    "feed_forward": re.compile(r"mlp|feed_forward|ffn"),
}
_ROUTED = re.compile(r"(?<!shared_)(?<!shared)experts")
_EXPERT_OR_ROUTER = re.compile(r"experts|\.gate$|router")
# Modules other than the layers of the language model.
_OTHER_MODULES = re.compile(r"visual|vision|mtp|embed|lm_head|audio|projector|norm|draft")
_LEFT_OUT_KEYS = (
    "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude",
    "exclude_layers",    "llm_int8_skip_modules", "skip_modules",
)  # fmt: skip


@record(kw_only=True)
class StoredFormat:
    """Format of weights: its word, and sizes other than those of the format.

    Parameters
    ----------
    word : quantization, such as ``fp8``
    weight_bits, group_size, scale_bytes, zero_point_bytes : as of `Checkpoint`; None: as the format
    """

    word: str
    weight_bits: float | None = None
    group_size: int | None = None
    scale_bytes: float | None = None
    zero_point_bytes: float | None = None

    @property
    def fields(self) -> dict[str, object]:
        """Fields of a `Checkpoint` that differ from the format's own."""
        sizes = {name: value for name, value in vars(self).items() if name != "word"}
        return {name: value for name, value in sizes.items() if value is not None}


_MXFP8 = StoredFormat(word="fp8_block", group_size=32, scale_bytes=1.0)
# quant_algo of ModelOpt (modelopt/torch/export/model_config.py) and of TensorRT-LLM's QuantAlgo.
_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PC_PT": "fp8",
    "FP8_PB_WO": "fp8_block", "FP8_PB_REAL": "fp8_block", "FP8_BLOCK_SCALES": "fp8_block",
    "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "NVFP4_SVDQUANT": "nvfp4", "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4", "W4A16_MXFP4": "mxfp4", "W4A8_MXFP4_FP8": "mxfp4",
    "W4A8_MXFP4_MXFP8": "mxfp4", "MXFP4": "mxfp4",
    "W4A16": "w4a16", "W4A16_AWQ": "w4a16", "W4A16_GPTQ": "w4a16", "INT4_AWQ": "w4a16",
    "W4A8_AWQ": "w4a8", "W4A8_QSERVE_PER_GROUP": "w4a8", "W4A8_QSERVE_PER_CHANNEL": "w4a8",
    "W8A16": "w8a16", "W8A16_GPTQ": "w8a16", "INT8_WO": "w8a16",
    "INT8_SQ": "w8a8", "W8A8_SQ_PER_CHANNEL": "w8a8",
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": "w8a8",
}  # fmt: skip
_ALGORITHM_FORMATS = {name: StoredFormat(word=word) for name, word in _ALGORITHMS.items()} | {
    "MXFP8": _MXFP8
}
# Methods with the format in their name.
_METHODS = {
    name: StoredFormat(word=word)
    for name, word in {
        "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8", "eetq": "w8a16", "experts_int8": "w8a16",
        "tpu_int8": "w8a16", "petit_nvfp4": "nvfp4", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4",
        "modelopt_fp8": "fp8", "w4afp8": "w4a8", "w8a8_fp8": "fp8", "w8a8_int8": "w8a8",
        "blockwise_int8": "w8a8", "finegrained_fp8": "fp8_block", "mxfp4": "mxfp4",
    }.items()
} | {"mxfp8": _MXFP8, "modelopt_mxfp8": _MXFP8}  # fmt: skip
# Classes and old names of torchao, the most exact first.
_TORCHAO = (
    (r"nvfp4", "nvfp4"),
    (r"mxfp4|mx.*fp4", "mxfp4"),
    (r"int8_?dynamic_?activation_?int4|float8_?dynamic_?activation_?int4", "w4a8"),
    (r"int8_?dynamic_?activation_?int8", "w8a8"),
    (r"float8_?dynamic_?activation_?float8|float8_?static_?activation_?float8", "fp8"),
    (r"(?:u?int4|intx?)_?weight_?only|gemlite.*4", "w4a16"),
    (r"int8_?weight_?only|float8_?weight_?only", "w8a16"),
)
_BY_BITS = ("bits", "w_bit", "nbits", "weight_bits", "num_bits", "q_bits", "bit")


def published_types(values: _Table) -> dict[str, object]:
    """Return quantization fields and ``checkpoints`` of a published model; {} for 16 bits.

    A method that leaves the attention of a mixture of experts in 16 bit counts as quantization of
    the experts only. Experts and other matrices may have different formats.

    Raises SpecError if the method or its format is unknown, since the weights could have any size.

    Parameters
    ----------
    values : object of ``config.json``
    """
    inner = values.get("text_config")
    of_text = inner if isinstance(inner, dict) else {}
    keys = ("quantization_config", "quantization")  # the second of MLX
    configs = [table.get(key) for table in (values, of_text) for key in keys]
    config = next((table for table in configs if table), None)
    if not isinstance(config, dict) or not config:
        return {}
    nested = config.get("quantization")
    if isinstance(nested, dict):  # of hf_quant_config.json
        config = {**config, **nested}
    shape = {**of_text, **values}
    has_experts = any(shape.get(name) for name in _EXPERT_COUNTS)
    if config.get("quant_method") == "mxfp4":
        return {"expert_quantization": "mxfp4"}
    targets = _formats(config)
    left_out = [name for name in _left_out(config) if "norm" not in name]
    experts = _of_experts(targets) if has_experts else None
    dense, eight_bit = _of_dense(targets, has_experts)
    main = dense or experts
    if main is None:
        raise SpecError(_unknown(config))
    words: dict[str, object] = {"quantization": dense.word} if dense else {}
    words["expert_quantization"] = (experts or main).word
    of_experts = (config.get("expert_dtype"), shape.get("expert_dtype"), config.get("store_dtype"))
    if "fp4" in of_experts or "mxfp4" in of_experts:
        # An 8-bit exponent per 32: DeepSeek-V4 by expert_dtype, MiMo-V2 by store_dtype.
        words["expert_quantization"] = "mxfp4"
    if has_experts and any(_PARTS["attention"].search(name) for name in left_out):
        words.pop("quantization", None)
    stored = _sixteen_bit_parts(left_out, shape.get("num_hidden_layers") or 0) | eight_bit
    fields = [(main, main.fields | stored)]
    if experts is not None and experts.word != main.word:
        fields.append((experts, experts.fields))
    checkpoints = [
        {"quantization": form.word, "source": _SOURCE, **more} for form, more in fields if more
    ]
    return words | ({"checkpoints": checkpoints} if checkpoints else {})


def _unknown(config: _Table) -> str:
    method = config.get("quant_method") or config.get("quant_algo") or "none"
    return (
        f"quantization_config: the bits of quant_method {method} are not known. Remove "
        "quantization_config from a copy of the config.json and give --set quantization=TYPE."
    )


def _left_out(config: _Table) -> list[str]:
    """Return the names of modules that stay in 16 bit."""
    names: list[str] = []
    for key in _LEFT_OUT_KEYS:
        listed = config.get(key)
        names += [str(name) for name in listed] if isinstance(listed, list) else []
    for key, settings in _tables(config.get("extra_config")):  # AutoRound
        names += [key] if _number(settings.get("bits")) >= 16 else []
    dynamic = config.get("dynamic")  # GPTQModel: -: leaves out what the expression matches
    if isinstance(dynamic, dict):
        names += [key[2:] for key in dynamic if str(key).startswith("-:")]
    return names


def _tables(value: object) -> list[tuple[str, _Table]]:
    if not isinstance(value, dict):
        return []
    return [(str(key), table) for key, table in value.items() if isinstance(table, dict)]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _of_experts(targets: list[tuple[str, StoredFormat]]) -> StoredFormat | None:
    """Return the format of routed experts: named, else that of all matrices."""
    named = [form for target, form in targets if _ROUTED.search(target)]
    return next(iter(named), None) or _of_all(targets)


def _of_all(targets: list[tuple[str, StoredFormat]]) -> StoredFormat | None:
    return next((form for target, form in targets if not _is_part(target)), None)


def _is_part(target: str) -> bool:
    patterns = (*_PARTS.values(), _ROUTED, _OTHER_MODULES, re.compile(r"\w\.\w"))
    return any(pattern.search(target) for pattern in patterns)


def _of_dense(
    targets: list[tuple[str, StoredFormat]], has_experts: bool
) -> tuple[StoredFormat | None, dict[str, object]]:
    """Return the format of most matrices that are no experts, and ``eight_bit`` parts.

    Where attention has 8-bit floats and the dense blocks fewer bits, these name the format.
    """
    by_part: dict[str, StoredFormat] = {}
    for part in ("attention", "feed_forward"):
        counts: dict[StoredFormat, int] = {}
        for target, form in targets:
            if _PARTS[part].search(target) and not _ROUTED.search(target):
                counts[form] = counts.get(form, 0) + 1
        if counts:
            by_part[part] = max(counts, key=lambda form: counts[form])
    others = [
        form for target, form in targets if _is_part(target)
        and not _ROUTED.search(target) and not _OTHER_MODULES.search(target)
    ]  # fmt: skip
    general = _of_all(targets) or next(iter(others), None)
    attention = by_part.get("attention", general)
    dense = by_part.get("feed_forward", general)
    if attention is None or dense is None or has_experts:
        return attention or dense, {}
    if attention.word in ("fp8", "fp8_block") and attention.word != dense.word:
        return dense, {"eight_bit": ["attention"]}
    return dense, {}


def _sixteen_bit_parts(left_out: list[str], num_layers: int) -> dict[str, object]:
    """Return fields for the parts that stay in 16 bits, and the 16-bit layers.

    A part that is named for some layers only does not count. Layers with a named dense part count
    as 16-bit layers.
    """
    parts: list[str] = []
    layers: set[str] = set()
    for part, pattern in _PARTS.items():
        named = [name for name in left_out if pattern.search(name)]
        if part == "feed_forward":
            others = (_PARTS["shared_experts"], _EXPERT_OR_ROUTER)
            named = [name for name in named if not any(other.search(name) for other in others)]
        numbers = {match[1] for name in named if (match := _LAYER.search(name))}
        if named and (not numbers or len(numbers) >= num_layers):
            parts.append(part)
        elif part == "feed_forward":
            layers |= numbers
    layers |= {match[1] for name in left_out if (match := _LAYER.search(name)) and not match[2]}
    unquantized: dict[str, object] = {"sixteen_bit": parts} if parts else {}
    return unquantized | ({"sixteen_bit_layers": len(layers)} if layers else {})


def _formats(config: _Table) -> list[tuple[str, StoredFormat]]:
    """Return the known formats of a config, each with the modules that it is for; "": all."""
    method = str(config.get("quant_method") or "").lower().replace("_", "-")
    algorithm = str(config.get("quant_algo") or "").upper()
    listed = [
        (name, _ALGORITHM_FORMATS.get(str(table.get("quant_algo")).upper()))
        for name, table in _tables(config.get("quantized_layers"))
    ]
    if algorithm in _ALGORITHM_FORMATS:
        listed.append(("", _ALGORITHM_FORMATS[algorithm]))
    elif not listed and (method == "compressed-tensors" or not method or algorithm):
        for _, group in _tables(config.get("config_groups")):
            names = group.get("targets")
            named = names if isinstance(names, list) and names else [""]
            listed += [(str(name), _compressed(group)) for name in named]
    if not listed:
        listed = _of_method(method, config)
    return [(name, form) for name, form in listed if form is not None]


def _of_method(method: str, config: _Table) -> list[tuple[str, StoredFormat | None]]:
    if method == "fp8":
        block = config.get("weight_block_size")
        return [("", StoredFormat(word="fp8_block" if block else "fp8"))]
    if method == "bitsandbytes":
        return [("", _bitsandbytes(config))]
    if method == "quark":
        tables = [*_tables(config.get("layer_quant_config"))]
        tables += [("", table) for _, table in _tables({"": config.get("global_quant_config")})]
        return [(name, _quark(table.get("weight"), table)) for name, table in tables]
    if method == "torchao":
        return [("", _torchao(config.get("quant_type")))]
    if form := _METHODS.get(method.replace("-", "_")):
        return [("", form)]
    return [("", _of_bits(method, config))]


def _compressed(group: _Table) -> StoredFormat | None:
    """Return the format of a group of compressed-tensors or ModelOpt; None if unknown."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        return None
    if algorithm := _ALGORITHM_FORMATS.get(str(weights.get("quant_algo")).upper()):
        return algorithm
    bits, size, is_float = weights.get("num_bits"), weights.get("group_size"), _is_float(weights)
    of_inputs = inputs.get("num_bits") if isinstance(inputs, dict) else None
    if is_float and bits == 4:
        return StoredFormat(word="mxfp4" if size == 32 else "nvfp4")
    if is_float and bits == 8:
        if size == 32:
            return _MXFP8
        if weights.get("strategy") == "block":
            return StoredFormat(word="fp8_block")
        return StoredFormat(word="fp8" if of_inputs == 8 else "w8a16")
    if bits == 8 and of_inputs == 8:
        return StoredFormat(word="w8a8")
    form = _integers(_number(bits), weights)
    if form is not None and of_inputs in (4, 8) and bits == 4:
        return replace(form, word="w4a8" if of_inputs == 8 else "w4a4")
    return form


def _is_float(weights: _Table) -> bool:
    return str(weights.get("type")) == "float"


def _integers(bits: float, config: _Table) -> StoredFormat | None:
    """Return the format of integers of so many bits, in groups; None for no such number."""
    if not 1 <= bits <= 8:
        return None
    size, symmetric = config.get("group_size"), config.get("symmetric", config.get("sym"))
    has_zeros = bool(config.get("zero_point")) or symmetric is False
    more: dict[str, Any] = {}
    if bits not in (4, 8):
        more["weight_bits"] = float(bits)
    if isinstance(size, int) and size > 0 and (size != _USUAL_GROUP or has_zeros):
        more["group_size"] = size
        if has_zeros:
            more["zero_point_bytes"] = 0.5
    return StoredFormat(word="w4a16" if bits <= 4 else "w8a16", **more)


def _bitsandbytes(config: _Table) -> StoredFormat:
    """Blocks of 64 with a 32-bit scale, which nested quantization stores in 8 bits and a 256th."""
    if not (config.get("load_in_4bit") or config.get("_load_in_4bit")):
        return StoredFormat(word="w8a16")
    nested = config.get("bnb_4bit_use_double_quant")
    if nested is None:
        return StoredFormat(word="w4a16")
    return StoredFormat(word="w4a16", group_size=64, scale_bytes=1 + 4 / 256 if nested else 4.0)


def _quark(weight: object, table: _Table) -> StoredFormat | None:
    """Return the format of a table of Quark; of several steps the last one is stored."""
    steps = weight if isinstance(weight, list) else [weight]
    specs = [step for step in steps if isinstance(step, dict)]
    if not specs:
        return None
    kind, size = str(specs[-1].get("dtype")).lower(), specs[-1].get("group_size")
    inputs = table.get("input_tensors")
    if kind.startswith(("fp4", "mxfp4")):
        return StoredFormat(word="nvfp4" if size == 16 else "mxfp4")
    if kind.startswith("mxfp8") or (kind.startswith("fp8") and size == 32):
        return _MXFP8
    if kind.startswith("fp8"):
        return StoredFormat(word="fp8_block" if specs[-1].get("block_size") else "fp8")
    if not (bits := re.fullmatch(r"(?:mx)?u?(?:int|fp)(\d)(?:_.*)?", kind)):
        return None
    form = _integers(float(bits[1]), specs[-1])
    if form is not None and inputs and bits[1] in "48":
        return replace(form, word="w4a8" if bits[1] == "4" else "w8a8")
    return form


def _torchao(kind: object) -> StoredFormat | None:
    """Return the format of a class or old name of torchao; of several modules the default's."""
    texts = [text for text in _texts(kind) if not text.startswith(("Per", "Mapping"))]
    for text in texts:
        for pattern, word in _TORCHAO:
            if re.search(pattern, text, re.IGNORECASE):
                return StoredFormat(word=word)
    return None


def _texts(value: object) -> Iterable[str]:
    """Yield every text of a value that may be a class: those of a default first."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        keys = sorted(value, key=lambda key: key not in ("_default", "default", "_type"))
        for key in keys:
            yield from _texts(value[key])


def _of_bits(method: str, config: _Table) -> StoredFormat | None:
    """Return the format of a method that states its bits; None if it states none."""
    kind = config.get("data_type") or config.get("forward_dtype") or config.get("mode")
    data_type = str(kind or "").lower()
    for pattern, form in (
        (r"nv_?fp4|nv_fp", StoredFormat(word="nvfp4")),
        (r"mx_?fp8", _MXFP8),
        (r"mx_?fp4|mx_fp", StoredFormat(word="mxfp4")),
        (r"fp8|float8", StoredFormat(word="fp8")),
    ):
        if re.search(pattern, data_type):
            return _MXFP8 if form.word == "mxfp4" and config.get("bits") == 8 else form
    inner = config.get("quant_config")  # HQQ
    of_weights = inner.get("weight_quant_params") if isinstance(inner, dict) else None
    for table in (config, inner, of_weights):
        if not isinstance(table, dict):
            continue
        if bits := next((_number(table.get(key)) for key in _BY_BITS if table.get(key)), 0.0):
            integers = _integers(bits, table)
            if method or integers is None:
                return integers
            size = int(_number(table.get("group_size"))) or 64
            return replace(integers, group_size=size, zero_point_bytes=2.0)  # MLX: scale and bias
    if books := _number(config.get("num_codebooks")):  # AQLM: an index of each book for a group
        of_group = books * _number(config.get("nbits_per_codebook"))
        return _integers(of_group / max(_number(config.get("in_group_size")), 1), {})
    if method == "bitnet":  # four ternary weights in a byte
        return _integers(2, {})
    if match := re.fullmatch(r"(?:q?u?int|float)(\d)", str(config.get("weights"))):  # Quanto
        return StoredFormat(word="fp8") if "float" in match[0] else _integers(float(match[1]), {})
    return None
