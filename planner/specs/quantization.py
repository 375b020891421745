"""Formats of quantizations: bytes stored, bytes moved and precision of the products.

Parameters
----------
text : name of the type
quantization : type of weights and activations
supported : peak by precision that the GPU multiplies in [FLOP/s]
folder : folder of own spec files, searched first; None: working directory and shipped files
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.enums import CacheType, ComputePrecision, Fp8Recipe, Precision, Quantization
from planner.base.records import record
from planner.errors import did_you_mean
from planner.specs.spec_paths import SpecKind, aliases_of, names
from planner.specs.validated import Interval, MinLen, PostValidator, Strict, validated

GGUF_BITS: Mapping[Quantization, float] = {
    Quantization.Q8_0: 8.5008,
    Quantization.Q6_K: 6.5633,
    Quantization.Q5_K_M: 5.7036,
    Quantization.Q5_K_S: 5.5704,
    Quantization.Q5_1: 6.04,
    Quantization.Q5_0: 5.57,
    Quantization.Q4_1: 5.11,
    Quantization.Q4_K_M: 4.8944,
    Quantization.Q4_K_S: 4.6672,
    Quantization.Q4_0: 4.64,
    Quantization.IQ4_NL: 4.6818,
    Quantization.IQ4_XS: 4.4597,
    Quantization.Q3_K_L: 4.2979,
    Quantization.Q3_K_M: 4,
    Quantization.Q3_K_S: 3.6429,
    Quantization.IQ3_M: 3.7628,
    Quantization.IQ3_S: 3.6606,
    Quantization.IQ3_XS: 3.4977,
    Quantization.IQ3_XXS: 3.2548,
    Quantization.Q2_K: 3.1593,
    Quantization.Q2_K_S: 2.9697,
    Quantization.IQ2_M: 2.9294,
    Quantization.IQ2_S: 2.7403,
    Quantization.IQ2_XS: 2.5882,
    Quantization.IQ2_XXS: 2.3824,
    Quantization.IQ1_M: 2.146,
    Quantization.IQ1_S: 2.0042,
}
"""Bits of a weight, by type: the mean of a whole file, whose embedding, output and some matrices
have more bits than the type is called by.

Of Llama-3.1-8B in tools/quantize/README.md of github.com/ggml-org/llama.cpp@311c2c9; Q3_K_M, Q4_0,
Q4_1, Q5_0 and Q5_1 from sizes of Llama-3-8B in tools/quantize/quantize.cpp (3.74, 4.34, 4.78, 5.21
and 5.65 GiB of 8.03 billion weights).
"""

# Weights of Llama-3-8B, and those of its embedding, as many as of its logits.
_WEIGHTS_OF_MEAN, _WEIGHTS_OF_END = 8_030_261_248, 128_256 * 4096
# Types of logits that have not that of most, Q6_K, and bits of a weight of the embedding where
# logits have weights of their own: src/llama-quant.cpp of the same, llama_tensor_get_type_impl.
_OF_LOGITS: Mapping[Quantization, Quantization] = {
    Quantization.Q8_0: Quantization.Q8_0,
    **dict.fromkeys(
        (
            Quantization.IQ3_XXS, Quantization.IQ2_M, Quantization.IQ2_S, Quantization.IQ2_XS,
            Quantization.IQ2_XXS, Quantization.IQ1_M, Quantization.IQ1_S,
        ),
        Quantization.Q5_K_S,
    ),
}  # fmt: skip
_BITS_OF_LOGITS = {Quantization.Q8_0: 8.5, Quantization.Q6_K: 6.5625, Quantization.Q5_K_S: 5.5}
_BITS_OF_EMBEDDING: Mapping[Quantization, float] = {
    Quantization.Q8_0: 8.5,
    Quantization.Q6_K: 6.5625,
    Quantization.Q5_1: 6,
    **dict.fromkeys((Quantization.Q5_K_M, Quantization.Q5_K_S, Quantization.Q5_0), 5.5),
    Quantization.Q4_1: 5,
    **dict.fromkeys(
        (Quantization.Q4_K_M, Quantization.Q4_K_S, Quantization.Q4_0, Quantization.IQ4_NL), 4.5
    ),
    Quantization.IQ4_XS: 4.25,
    **dict.fromkeys(
        (
            Quantization.Q3_K_L, Quantization.Q3_K_M, Quantization.Q3_K_S, Quantization.IQ3_M,
            Quantization.IQ3_S, Quantization.IQ3_XS, Quantization.IQ3_XXS, Quantization.IQ2_M,
            Quantization.IQ2_S,
        ),
        3.4375,
    ),
    **dict.fromkeys(
        (
            Quantization.Q2_K, Quantization.Q2_K_S, Quantization.IQ2_XS, Quantization.IQ2_XXS,
            Quantization.IQ1_M, Quantization.IQ1_S,
        ),
        2.625,
    ),
}  # fmt: skip


def _layer_bits(code: Quantization) -> float:
    """Bits of a weight of the layers of a GGUF file: its mean without embedding and logits."""
    ends = _BITS_OF_LOGITS[_OF_LOGITS.get(code, Quantization.Q6_K)] + _BITS_OF_EMBEDDING[code]
    bits = GGUF_BITS[code] * _WEIGHTS_OF_MEAN - ends * _WEIGHTS_OF_END
    return bits / (_WEIGHTS_OF_MEAN - 2 * _WEIGHTS_OF_END)


def gguf_word(text: str) -> str | None:
    """Return the word of a GGUF type by any of its names; None if there is no such type.

    >>> gguf_word("Q4_K_M"), gguf_word("UD-Q4_K_XL"), gguf_word("q6"), gguf_word("fp8")
    ('q4_k_m', 'q4_k_m', 'q6_k', None)
    """
    word = Quantization.canonical_word(text.lower().removeprefix("ud-"))
    return word if word in _WORDS else None


_WORDS = frozenset(code.word for code in GGUF_BITS)


@record(kw_only=True)
class KernelFormat:
    """Storage and arithmetic of quantized matrix products.

    Parameters
    ----------
    weight : bytes of a weight, with scales [bytes]
    activation : bytes of an activation, with scales [bytes]
    compute : precisions of the arithmetic in order of preference: the first that the GPU has is
        used
    kernel : row of the GPU's measured quantized kernels; empty: none
    experts : row of the GPU's measured grouped kernels; empty: none
    cast_bytes : traffic of separate kernels that quantize one activation [bytes]; 0: the row
        contains them. Rows of tiled kernels always contain them, rows of grouped kernels never do
    """

    weight: float
    activation: float
    compute: tuple[Precision, ...]
    kernel: str
    experts: str
    cast_bytes: float = 0.0


# Reads two bytes, writes one.
_CAST = 3.0
_SIXTEEN = (Precision.BF16, Precision.FP16, Precision.FP32)
_EIGHT = (Precision.FP8, Precision.INT8)

# Scales: one 16-bit number per 128 weights (GPTQ, AWQ), an fp8 one per 16 (nvfp4), an 8-bit
# exponent per 32 (mxfp4), an fp32 one per 128 x 128 (block-scaled fp8).
_FORMATS: dict[Quantization, KernelFormat] = {
    Quantization.W16A16: KernelFormat(
        weight=2.0, activation=2.0, compute=_SIXTEEN, kernel="bf16", experts="bf16"
    ),
    Quantization.W8A8: KernelFormat(
        weight=1.0, activation=1.0, compute=(Precision.INT8,), kernel="int8", experts="fp8",
        cast_bytes=_CAST,
    ),
    Quantization.W8A16: KernelFormat(
        weight=1.0, activation=2.0, compute=_SIXTEEN, kernel="int8_weight_only", experts="bf16"
    ),
    Quantization.W4A16: KernelFormat(
        weight=0.5 + 2 / 128, activation=2.0, compute=_SIXTEEN, kernel="int4_weight_only",
        experts="int4_weight_only",
    ),
    Quantization.W4A8: KernelFormat(
        weight=0.5 + 2 / 128, activation=1.0, compute=_EIGHT, kernel="int4_weight_only",
        experts="fp8", cast_bytes=_CAST,
    ),
    Quantization.W4A4: KernelFormat(
        weight=0.5 + 2 / 128, activation=0.5, compute=(Precision.INT4,),
        kernel="int4_weight_only", experts="fp8", cast_bytes=_CAST,
    ),
    Quantization.FP8: KernelFormat(
        weight=1.0, activation=1.0, compute=(Precision.FP8,), kernel="fp8", experts="fp8_tensor",
        cast_bytes=_CAST,
    ),
    Quantization.FP8_BLOCK: KernelFormat(
        weight=1.0 + 4 / 128**2, activation=4.0, compute=(Precision.FP8,), kernel="fp8_block",
        experts="fp8",
    ),
    Quantization.NVFP4: KernelFormat(
        weight=0.5 + 1 / 16, activation=3.0, compute=(Precision.FP4,), kernel="nvfp4",
        experts="nvfp4",
    ),
    Quantization.MXFP4: KernelFormat(
        weight=0.5 + 1 / 32, activation=2.0, compute=_SIXTEEN, kernel="int4_weight_only",
        experts="mxfp4",
    ),
}  # fmt: skip
# Types of GGUF files use the kernels of 4-bit or 8-bit integers, whichever are nearer.
_MIDDLE_BITS = 5.0
FORMATS: Mapping[Quantization, KernelFormat] = _FORMATS | {
    code: replace(
        _FORMATS[Quantization.W4A16 if bits < _MIDDLE_BITS else Quantization.W8A16],
        weight=_layer_bits(code) / 8,
    )
    for code, bits in GGUF_BITS.items()
}

LOGIT_CODES: CodeArray = np.array(
    [
        _OF_LOGITS.get(code, Quantization.Q6_K if code in GGUF_BITS else code)
        for code in Quantization
    ],
    dtype=np.int8,
)
"""By code: the format of logits in a file whose layers have that code and whose ends are not of
16 bits."""


def end_bytes(weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return bytes of a weight of embedding and logits of files whose ends are not of 16 bits.

    By code. The embedding is one with weights of its own.

    Parameters
    ----------
    weight : bytes of a weight of the layers, by code
    """
    embedding = [
        _BITS_OF_EMBEDDING[code] / 8 if code in GGUF_BITS else weight[code] for code in Quantization
    ]
    logits = [
        _BITS_OF_LOGITS[Quantization(number)] / 8 if code in GGUF_BITS else weight[code]
        for code, number in zip(Quantization, LOGIT_CODES.tolist(), strict=True)
    ]
    return np.array(embedding), np.array(logits)


_UNPACKED: Mapping[Quantization, KernelFormat] = {
    Quantization.FP8: FORMATS[Quantization.W8A16],
    Quantization.FP8_BLOCK: FORMATS[Quantization.W8A16],
    Quantization.NVFP4: FORMATS[Quantization.W4A16],
}  # Kernels that unpack weights of a type to 16 bits: those of integers with as many bits.

_FP8_TRAINING: Mapping[Fp8Recipe, KernelFormat] = {
    Fp8Recipe.DELAYED: FORMATS[Quantization.FP8],
    Fp8Recipe.TENSORWISE: FORMATS[Quantization.FP8],
    # No faster than 16 bit, casts included: torchao's tables of training Llama-3 8B on H100 and
    # torchtitan's of asynchronous tensor parallelism.
    Fp8Recipe.ROWWISE: replace(
        FORMATS[Quantization.W16A16], compute=(Precision.BF16, Precision.FP16)
    ),
    # Experts by kernels such as DeepGEMM's, whose published rates on H800 are those of one scale
    # per tensor, not by those that serve; casts write rows and columns, an fp32 scale per 128.
    Fp8Recipe.BLOCKWISE: replace(
        FORMATS[Quantization.FP8_BLOCK], experts="fp8_tensor",
        cast_bytes=2.0 + 2 * (1.0 + 4 / 128),
    ),
    # A copy by rows and one by columns, each with an 8-bit exponent per 32 numbers.
    Fp8Recipe.MXFP8: replace(
        FORMATS[Quantization.FP8], weight=1.0 + 1 / 32, activation=1.0 + 1 / 32, experts="fp8",
        cast_bytes=2.0 + 2 * (1.0 + 1 / 32),
    ),
}  # fmt: skip
_OF_RECIPES = tuple(_FP8_TRAINING)

# No measurements: assumed is the share of peak that 16-bit products reach.
_WIDE = replace(FORMATS[Quantization.W16A16], weight=4.0, activation=4.0, kernel="", experts="")

WIDE = np.isin([*ComputePrecision], (ComputePrecision.TF32, ComputePrecision.FP32))
"""By code: whether all numbers of training have 32 bits."""

NARROW = np.isin([*ComputePrecision], (ComputePrecision.FP8, ComputePrecision.FP4))
"""By code: whether products are in floating-point numbers of fewer than 16 bits."""

TRAINING_FORMATS: tuple[KernelFormat, ...] = (
    replace(FORMATS[Quantization.W16A16], compute=(Precision.BF16,)),
    replace(FORMATS[Quantization.W16A16], compute=(Precision.FP16,)),
    FORMATS[Quantization.FP8],
    FORMATS[Quantization.NVFP4],
    FORMATS[Quantization.W8A8],
    replace(_WIDE, compute=(Precision.TF32,)),
    replace(_WIDE, compute=(Precision.FP32,)),
    *_FP8_TRAINING.values(),
)
"""Formats of training products: by the codes of `ComputePrecision`, then by recipes of fp8."""


def training_format(precision: CodeArray, recipe: CodeArray) -> CodeArray:
    """Return a precision's index in ``TRAINING_FORMATS``; ``recipe`` counts only for fp8.

    Parameters
    ----------
    precision : codes of `ComputePrecision`
    recipe : codes of the 8-bit recipe, same shape; never auto
    """
    of_recipe = np.array([0, *(len(ComputePrecision) + i for i in range(len(_OF_RECIPES)))])
    return np.where(precision == ComputePrecision.FP8, of_recipe[recipe], precision)


SIXTEEN_BIT_BYTES = FORMATS[Quantization.W16A16].weight

CACHE_BYTES: Mapping[CacheType, float] = {
    CacheType.NONE: 0.0,
    CacheType.BF16: 2.0,
    CacheType.FP8: 1.0,
    CacheType.INT8: 1.0,
    CacheType.INT4: 0.5 + 2 / 64,
}


def compute_precision(
    quantization: Quantization, supported: Mapping[Precision, float]
) -> Precision | None:
    """Return the precision of products on a GPU; None if the GPU supports none."""
    return first_of(FORMATS[quantization].compute, supported)


def format_on(quantization: Quantization, supported: Mapping[Precision, float]) -> KernelFormat:
    """Return the kernel format of products on a GPU with these peaks.

    If the GPU lacks the arithmetic of the type, weights are stored in the type and unpacked to
    16 bits, as by kernels like Marlin.
    """
    stored = FORMATS[quantization]
    unpacked = _UNPACKED.get(quantization)
    if unpacked is None or compute_precision(quantization, supported) is not None:
        return stored
    return replace(unpacked, weight=stored.weight)


def first_of(precisions: Iterable[Precision], supported: Container[Precision]) -> Precision | None:
    """Return the first of ``precisions`` that is supported; None if none is.

    Parameters
    ----------
    precisions : precisions in order of preference
    supported : precisions that the GPU multiplies in
    """
    return next((precision for precision in precisions if precision in supported), None)


# Endings of names, each with its quantization; empty: an ending without a quantization.
_ENDINGS = tuple(
    (rf"[-_.:](?:{pattern})$", quantization)
    for pattern, quantization in (
        (r"gguf|hf|safetensors|dynamic|qat|it-qat|unsloth|ud|kv|mtp|mlx|marlin|rocm", ""),
        (r"preview|asq|fast|mixed|v\d|attnfp8|quark|torchao|ct", ""),
        (r"instruct|chat|it|base|seq[-_]?cls", ""),
        (r"(?:a?sym|g\d{2,3}|\d{2,3}g|gs\d{2,3}|dwq)", ""),
        (r"\d{5}-of-\d{5}", ""),
        (r"mxfp4[-_](?:moe|q8)", "mxfp4"),
        (r"(?P<gguf>i?q[1-8](?:_[a-z0-9]+)*)", ""),
        (r"b?f(?:p|loat)?16", "w16a16"),
        (r"fp8[-_]block", "fp8_block"),
        (r"fp8", "fp8"),
        (r"mxfp4", "mxfp4"),
        (r"mxfp8", "fp8_block"),
        (r"nvfp4a16|(?:nv)?fp4(?:-v\d)?", "nvfp4"),
        (r"w4a?fp8|w4a8", "w4a8"),
        # Groups of 64 with scale and bias (MLX), or as many bits (EXL): the nearest type of GGUF
        (r"(?:2[-_]?bit|2(?:\.\d+)?bpw)", "q2_k"),
        (r"(?:3[-_]?bit|3(?:\.\d+)?bpw)", "iq3_s"),
        (r"(?:5[-_]?bit|5(?:\.\d+)?bpw)", "q5_0"),
        (r"(?:6[-_]?bit|6(?:\.\d+)?bpw)", "q6_k"),
        (r"4(?:\.\d+)?bpw", "w4a16"),
        (r"8(?:\.\d+)?bpw", "w8a16"),
        (r"exl[23]|hqq", ""),
        (r"gptq[-_]int4[-_]int8mix", "w4a16"),
        (r"(?:gptq|awq|int8)[-_]?(?:int8|8bit|auto-?round)|w8a16|(?:bnb[-_])?8[-_]?bit", "w8a16"),
        (r"(?:int4[-_])?auto-?round(?:[-_](?:int4|4bit))?", "w4a16"),
        (
            r"(?:gptq|awq)(?:[-_]?(?:int4|4bit|4b))?|w4a16|int4|(?:bnb[-_])?(?:4[-_]?bit|nf4)",
            "w4a16",
        ),
        (r"(?:quantized\.)?w8a8|int8", "w8a8"),
        (r"bnb|quantized", ""),
    )
)
_SIXTEEN_BIT = "w16a16"
# Publishers of fp8 with a scale per 128 x 128 weights: weight_block_size of their config.json.
_IN_BLOCKS = ("qwen/", "deepseek-ai/", "minimaxai/")
_CACHED = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")
_SCHEME = re.compile(r"^[a-z0-9]+://", re.IGNORECASE)


@record(kw_only=True)
class CheckpointName:
    """Model and quantization in the name of a checkpoint.

    Parameters
    ----------
    model : name in the catalogue; None: unknown
    quantization : type of the weights; None: not in the name
    """

    model: str | None
    quantization: str | None


_HYPHENATED = re.compile(r"(?<![\w.])([a-z]*-?\d)-(\d)(?=-)")
"""A version in a name without dots, as Kubernetes has: ``llama-3-3-70b-instruct``."""


def checkpoint_of(name: str, folder: Path | None = None) -> CheckpointName:
    """Return (model, quantization) of a repository, folder or file, from its name only.

    Parameters
    ----------
    name : ``ORG/NAME``, with ``:TAG`` of a GGUF repository; a path, also in the cache of the Hub; a
        GGUF file

    >>> checkpoint_of("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    CheckpointName(model='llama-3.3-70b', quantization='fp8')
    """
    name = name.replace("___", ".")  # as folders of ModelScope's cache are named
    chains = [_shortened(part) for part in _parts(name)]
    quantization = format_of(name)
    aliases, model_names = aliases_of(SpecKind.MODELS, folder), {*names(SpecKind.MODELS, folder)}
    for text in (text for chain in chains for text, _ in chain):
        normalized = re.sub(r"[\s_]+", "-", text.strip().lower())
        for spelling in (normalized, _HYPHENATED.sub(r"\1.\2", normalized)):
            if model := (spelling if spelling in model_names else aliases.get(spelling)):
                return CheckpointName(model=model, quantization=quantization)
    return CheckpointName(model=None, quantization=quantization)


def format_of(name: str) -> str | None:
    """Return the quantization in a checkpoint's name; None if not in the name.

    Parameters
    ----------
    name : name of a checkpoint

    >>> format_of("Qwen/Qwen3-32B-FP8"), format_of("Qwen/Qwen3-32B")
    ('fp8_block', None)
    """
    parts = list(_parts(name))
    words = [word for part in parts for _, word in _shortened(part) if word]
    # 16 bit together with another format is the precision of the products: BNB-NF4-BF16.
    word = next((word for word in words if word != _SIXTEEN_BIT), next(iter(words), None))
    in_blocks = word == "fp8" and any(part.lower().startswith(_IN_BLOCKS) for part in parts)
    return "fp8_block" if in_blocks else word


def _parts(name: str) -> Iterator[str]:
    """Yield the parts of a path that may name a model, the likeliest first."""
    text = _SCHEME.sub("", name.strip()).rstrip("/")
    if cached := _CACHED.search(text):
        yield f"{cached['owner']}/{cached['name']}"
        text = cached["name"]
    folders = [part for part in text.split("/") if part not in ("", ".", "..", "~")]
    if folders and folders[-1].lower().endswith((".gguf", ".safetensors")):
        folders[-1] = folders[-1].rpartition(".")[0]
    if len(folders) == 2:
        yield "/".join(folders)
    yield from reversed(folders)


def _shortened(part: str) -> list[tuple[str, str]]:
    """Return a name and its beginnings without endings, each with its quantization."""
    chain = [(part, "")]
    while True:
        text = chain[-1][0]
        endings = ((re.search(ending, text, re.IGNORECASE), word) for ending, word in _ENDINGS)
        ending_match = next(((match, word) for match, word in endings if match), None)
        if ending_match is None:
            return chain
        word = gguf_word(ending_match[0].groupdict().get("gguf") or "") or ending_match[1]
        chain.append((text[: ending_match[0].start()], word))


_FAMILY = re.compile(r"(?<![a-z\d])([a-z]{3,})(?=\d)")
_SIZED = re.compile(r"(?:\d+x)?\d+(?:\.\d+)?[bm]|a\d+(?:\.\d+)?b")
_NO_FAMILY = ("meta",)
# Words of a name that mean other layers than those of the text model with the same size.
_OTHER_LAYERS = frozenset({
    *("tts", "asr", "audio", "omni", "vl", "vision", "voice", "speech", "video"),
    *("moe", "mamba", "diffusion", "eagle", "eagle3", "draft"),
})  # fmt: skip


def nearest_model(name: str, folder: Path | None = None) -> str | None:
    """Return the catalogue model with the family, version and size in a repository name.

    The family is the first word of both names, and all sizes in the name are those of the model, as
    for further trained models. None: no model has all its words in the name, in their order.

    Parameters
    ----------
    name : name of a repository

    >>> nearest_model("allenai/Llama-3.1-Tulu-3-70B-SFT"), nearest_model("a/Llama-3.1-Pruned-5B")
    ('llama-3.1-70b', None)
    >>> nearest_model("Qwen/Qwen3-TTS-12Hz-1.7B-Base")
    """
    words = _words_of(name.rpartition("/")[2])
    sizes = {word for word in words if _SIZED.fullmatch(word)}
    best: tuple[int, int, str] | None = None
    models_by_alias = {**aliases_of(SpecKind.MODELS, folder)}
    models_by_alias |= {model_name: model_name for model_name in names(SpecKind.MODELS, folder)}
    for alias, model in models_by_alias.items():
        alias_words = _words_of(alias.rpartition("/")[2])
        if alias_words[:1] != words[:1] or not sizes or not sizes <= {*alias_words}:
            continue
        if _OTHER_LAYERS & {*words} - {*alias_words}:
            continue
        rest = iter(words)
        if all(word in rest for word in alias_words):
            pairs = zip(alias_words, words, strict=False)
            begun = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            best = max(best or (0, 0, ""), (len(alias_words), begun, model))
    return None if best is None else best[2]


def _words_of(name: str) -> list[str]:
    text = _FAMILY.sub(r"\1-", name.lower())
    return [word for word in re.split(r"[^a-z\d.]+", text) if word and word not in _NO_FAMILY]


def quantization_word(text: str) -> str:
    """Return the quantization word of a weight type, from any of its names."""
    word, words = Quantization.canonical_word(text), Quantization.words()
    if word not in words:
        hint = did_you_mean(text, [*words, *Quantization.aliases()])
        raise ValueError(f"is one of {', '.join(words)}.{hint}")
    return word


PARTS = ("attention", "feed_forward", "shared_experts")


def check_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``parts``; raise ValueError if one is not a known part of a layer.

    Parameters
    ----------
    parts : names of parts of a layer
    """
    if unknown := [part for part in parts if part not in PARTS]:
        raise ValueError(f"{', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return parts


Bytes = Annotated[float, Interval(ge=0, le=8)]


@validated
class Checkpoint:
    """Quantized weights as a publisher stores them.

    Parameters
    ----------
    quantization : format of the weights
    source : publication
    sixteen_bit : parts of every layer in 16 bit: ``attention``, ``feed_forward`` (dense) and
        ``shared_experts``; embeddings, logits, routers and norms always are
    eight_bit : parts of every layer in 8-bit floats, where others have fewer bits
    sixteen_bit_layers : number of layers, such as the first and last, with all matrices in 16 bit
    weight_bits : bits of a weight without scales; None: as the format
    group_size : weights that share a scale; None: as the format
    scale_bytes : size of a scale [bytes]
    zero_point_bytes : size of a zero point [bytes]
    repository : ORG/NAME of the checkpoint; empty: that of the model
    engines : engines that serve this checkpoint when only the format is specified; empty: all
    vendors : vendors of GPUs that serve this checkpoint when only the format is specified; empty:
        all
    """

    quantization: Annotated[str, PostValidator(quantization_word)]
    source: Annotated[str, MinLen(1)]
    sixteen_bit: Annotated[tuple[str, ...], PostValidator(check_parts)] = ()
    eight_bit: Annotated[tuple[str, ...], PostValidator(check_parts)] = ()
    sixteen_bit_layers: Annotated[int, Strict(), Interval(ge=0, le=10**4)] = 0
    weight_bits: Annotated[float, Interval(ge=1, le=16)] | None = None
    group_size: Annotated[int, Strict(), Interval(ge=1, le=10**6)] | None = None
    scale_bytes: Bytes = 2.0
    zero_point_bytes: Bytes = 0.0
    repository: str = ""
    engines: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()

    def is_served(self, engine: str, vendor: str) -> bool:
        """Return whether an engine on this vendor's GPUs serves the checkpoint.

        Parameters
        ----------
        engine : name of the engine profile
        vendor : vendor of the GPU
        """
        return self._has(self.engines, engine) and self._has(self.vendors, vendor)

    @staticmethod
    def _has(names: tuple[str, ...], name: str) -> bool:
        return not names or name.lower() in {entry.lower() for entry in names}
