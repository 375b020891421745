"""Lengths that vary from request to request, as the benchmarks of engines draw them.

vLLM and TensorRT-LLM draw evenly from mean x (1 - r) to mean x (1 + r), SGLang from longest x r to
the longest, aiperf from a normal distribution. An even range of half width r has a standard
deviation of r / sqrt(3) of its mean.
"""

from __future__ import annotations

import json
import math

_ROOT = math.sqrt(3)
# The tools refuse 1, at which a length could be 0.
_WIDEST = 0.99
_DIGITS = 3
_ONE_RANGE = ("tensorrt-llm", "trtllm-serve", "sglang")
_EVEN = ("vllm", *_ONE_RANGE)


def half_width(variation: float) -> float:
    """The half width of an even range, over its mean, that varies so much; at most 0.99.

    ``variation``: standard deviation over the mean [1].

    >>> half_width(0.3)
    0.52
    """
    return min(round(_ROOT * variation, _DIGITS), _WIDEST)


def range_word(prompts: float, answers: float) -> str:
    """``--random-range-ratio`` of vLLM for the variations of prompts and answers [1]."""
    widths = {"input": half_width(prompts), "output": half_width(answers)}
    return json.dumps(widths) if prompts != answers else f"{half_width(prompts):g}"


def common_width(prompts: float, answers: float) -> float:
    """The one half width of tools that draw prompts and answers from equal ranges."""
    return half_width((prompts + answers) / 2)


def longest_and_ratio(length: int, width: float) -> tuple[int, float]:
    """The longest request [tokens] and the shortest one over it, as SGLang's range is told."""
    return round(length * (1 + width)), round((1 - width) / (1 + width), _DIGITS)


def length_notes(
    engine: str, *, input_variation: float, output_variation: float, has_prefix: bool
) -> tuple[str, ...]:
    """What a benchmark's lengths have otherwise than the plan's; nothing where they are equal.

    ``has_prefix``: the prompts begin alike.
    """
    varied = (input_variation, output_variation)
    if engine not in _EVEN or not any(varied):
        return ()
    planned = f"the plan's vary by {input_variation:.0%} and {output_variation:.0%}"
    if engine == "sglang" and has_prefix:
        return (f"equal lengths: the tool would vary the common prefix too; {planned}",)
    notes = []
    if engine in _ONE_RANGE and input_variation != output_variation:
        notes.append(f"the tool has one range for prompts and answers: of their mean; {planned}")
    if max(varied) * _ROOT > _WIDEST:
        notes.append(f"lengths are drawn evenly, which varies by 57% at most; {planned}")
    return tuple(notes)
