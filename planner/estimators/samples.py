"""What samples of different lengths make of a micro-batch: what it takes, and what it needs."""

from __future__ import annotations

from dataclasses import replace

from planner.base.enums import Padding
from planner.configurations.training import TrainingConfigurations
from planner.estimators.share import Setting, Share
from planner.formulas.samples import longest_sample, mean_square_length
from planner.specs.workload import TrainingWorkload


def trained_length(work: TrainingWorkload) -> float:
    """Mean tokens of a sequence that are trained: those that pad it are not."""
    if work.padding is Padding.PACKED:
        return work.sequence_length * 1.0  # `planner.explaining.largest` has arrays of lengths
    return float(longest_sample(samples=1.0, **_lengths(work)))


def tokens_of_sample(work: TrainingWorkload) -> float:
    """Mean tokens of a sample that are trained: of all its sequences."""
    return work.sequences_per_sample * trained_length(work)


def fullest_and_mean_share(setting: Setting, c: TrainingConfigurations) -> tuple[Share, Share]:
    """Shares of the fullest micro-batch, which memory must hold, and of a mean one.

    Samples that are padded to the longest of theirs, or to the sequence, fill the fullest one.
    Those that are not padded are as long as the sequence once, and as the mean else; each attends
    to itself alone, so the length that its attention costs is that of the mean square.
    """
    work, fullest = setting.workload, Share.of(setting, c)
    if work.padding in (Padding.PACKED, Padding.FULL):
        return fullest, fullest
    lengths, b = _lengths(work), work.sequences_per_sample * c.micro_batch_size
    if work.padding is Padding.LONGEST:
        longest = longest_sample(samples=b, **lengths) + work.prompt_tokens
        return fullest, replace(fullest, sequence_length=longest)
    mean = trained_length(work) + work.prompt_tokens
    length = (mean_square_length(**lengths) / trained_length(work)) + work.prompt_tokens
    return (
        replace(fullest, sequences=1.0 + (b - 1.0) * mean / work.computed_length),
        replace(fullest, sequences=b * mean / length, sequence_length=length),
    )


def _lengths(work: TrainingWorkload) -> dict[str, float]:
    return {
        "mean": float(work.mean_sample_length),
        "deviation": float(work.sample_length_deviation),
        "longest": float(work.sequence_length),
    }
