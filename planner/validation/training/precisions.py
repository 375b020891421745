"""The precisions that a run may have had, and how its products in 8 bit are scaled."""

from __future__ import annotations

from planner.base.enums import ComputePrecision, Fp8Recipe, Precision
from planner.specs.gpu import GpuSpec
from planner.validation.models import NotPredicted
from planner.validation.runs import Run

YEAR = 2025
"""A run without a year is taken to be of now."""
_FP8_FROM = 2024
_PRECISIONS = {
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-ds": "fp8",
    "float8": "fp8",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "bf16-mixed": "bf16",
    # How a frozen model is stored; it is multiplied in 16 bits.
    **dict.fromkeys(("nf4", "int4"), "bf16"),
}


def precisions(run: Run, gpu: GpuSpec) -> list[ComputePrecision]:
    """The precisions the matrices may have; where none is given, 16 bits or what came into use."""
    words = run.word("precision") or run.word("likely_precision")
    if not words:
        return _likely_precisions(run, gpu)
    return [_precision(word, gpu) for word in words.split("/")]


def recipe_of(run: Run, precision: ComputePrecision) -> Fp8Recipe:
    """How products in 8 bit are scaled: as the run says, or the word for its precision.

    Tables that call some runs mxfp8 mean one factor per tensor by fp8.
    """
    if precision is not ComputePrecision.FP8:
        return Fp8Recipe.AUTO
    words = run.word("precision").split("/")
    word = run.word("fp8_recipe") or ("mxfp8" if "mxfp8" in words else "delayed")
    known = {code.word: code for code in Fp8Recipe}
    code = known.get(Fp8Recipe.meant(word))
    if code is None:
        raise NotPredicted(f"fp8_recipe {word!r} is not one of {', '.join(known)}")
    return code


def _precision(word: str, gpu: GpuSpec) -> ComputePrecision:
    known = {word: ComputePrecision[word.upper()] for word in ComputePrecision.usual()}
    code = known.get(_PRECISIONS.get(word, word))
    if code is None:
        raise NotPredicted(f"training in {word} is not modelled yet")
    if Precision(code.word) not in gpu.peak_flops:
        raise NotPredicted(f"{gpu.name} lacks {code.word}")
    return code


def _likely_precisions(run: Run, gpu: GpuSpec) -> list[ComputePrecision]:
    bf16 = Precision.BF16 in gpu.peak_flops
    sixteen_bit = ComputePrecision.BF16 if bf16 else ComputePrecision.FP16
    if (run.number("year") or YEAR) < _FP8_FROM or Precision.FP8 not in gpu.peak_flops:
        return [sixteen_bit]
    return [sixteen_bit, ComputePrecision.FP8]
