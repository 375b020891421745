"""What the name of a checkpoint tells: the model, and the format of its weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from planner.base.records import record
from planner.specs.paths import SpecKind, aliases_of, names
from planner.specs.quantization import gguf_word

# Endings of names, each with the quantization it means; an empty one says nothing of it.
_ENDINGS = tuple(
    (re.compile(rf"[-_.:](?:{pattern})$", re.IGNORECASE), quantization)
    for pattern, quantization in (
        (r"gguf|hf|safetensors|dynamic|qat|it-qat|unsloth|ud|kv|mtp|mlx|marlin|rocm", ""),
        (r"instruct|chat|it|base", ""),
        (r"(?:a?sym|g\d{2,3}|\d{2,3}g|gs\d{2,3}|dwq)", ""),
        (r"\d{5}-of-\d{5}", ""),
        (r"(?P<gguf>i?q[1-8](?:_[a-z0-9]+)*)", ""),
        (r"b?f(?:p|loat)?16", "w16a16"),
        (r"fp8[-_]block", "fp8_block"),
        (r"fp8", "fp8"),
        (r"mxfp4", "mxfp4"),
        (r"nvfp4a16|(?:nv)?fp4(?:-v\d)?", "nvfp4"),
        (r"w4a?fp8|w4a8", "w4a8"),
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
# Who publishes fp8 with a scale per 128 x 128 weights: weight_block_size of their config.json.
_IN_BLOCKS = ("qwen/", "deepseek-ai/", "minimaxai/")
_CACHED = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")
_SCHEME = re.compile(r"^[a-z0-9]+://", re.IGNORECASE)


@record(kw_only=True)
class Checkpoint:
    """What a name tells.

    ``model`` is a model of the catalogue by its name there, None where no part of the name is
    that of one. ``quantization`` is a word of the table of terms, None where the name is silent.
    """

    model: str | None
    quantization: str | None


def checkpoint_of(name: str, folder: Path | None = None) -> Checkpoint:
    """What a repository, folder or file of weights is by its name alone; nothing is opened.

    Parameters
    ----------
    name : ``ORG/NAME``, with ``:TAG`` of a GGUF repository; a path, that of the Hub's cache among
        them; a GGUF file
    folder : of own specs, searched before those that are shipped

    >>> checkpoint_of("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    Checkpoint(model='llama-3.3-70b', quantization='fp8')
    """
    chains = [_shortened(part) for part in _parts(name)]
    quantization = format_of(name)
    aliases, known = aliases_of(SpecKind.MODELS, folder), {*names(SpecKind.MODELS, folder)}
    for text in (text for chain in chains for text, _ in chain):
        plain = re.sub(r"[\s_]+", "-", text.strip().lower())
        if model := (plain if plain in known else aliases.get(plain)):
            return Checkpoint(model=model, quantization=quantization)
    return Checkpoint(model=None, quantization=quantization)


def format_of(name: str) -> str | None:
    """The quantization that the name of a checkpoint tells; None where it is silent.

    >>> format_of("Qwen/Qwen3-32B-FP8"), format_of("Qwen/Qwen3-32B")
    ('fp8_block', None)
    """
    parts = list(_parts(name))
    words = [word for part in parts for _, word in _shortened(part) if word]
    # 16 bit beside another format are those of the products: BNB-NF4-BF16.
    word = next((word for word in words if word != _SIXTEEN_BIT), next(iter(words), None))
    in_blocks = word == "fp8" and any(part.lower().startswith(_IN_BLOCKS) for part in parts)
    return "fp8_block" if in_blocks else word


def _parts(name: str) -> Iterator[str]:
    """The parts of a path that may name a model, the likeliest first."""
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
    """A part, and what is left of it without one ending after another, with what they mean."""
    chain = [(part, "")]
    while True:
        text = chain[-1][0]
        ends = ((ending.search(text), word) for ending, word in _ENDINGS)
        found = next(((match, word) for match, word in ends if match), None)
        if found is None:
            return chain
        word = gguf_word(found[0].groupdict().get("gguf") or "") or found[1]
        chain.append((text[: found[0].start()], word))
