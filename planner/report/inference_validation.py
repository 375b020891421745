"""What a validation of inference shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from planner.report.validation import print_errors, print_reasons, print_verdicts
from planner.validation.compare import Errors
from planner.validation.inference.compare import (
    GROUPS,
    MEMORY,
    THROUGHPUT,
    InferenceRow,
    inference_errors,
    inference_verdicts,
)
from planner.validation.intervals import LEVEL

_QUANTITIES = (
    ("Time per output token", ("time_per_output_token_s",)),
    ("Time to first token", ("time_to_first_token_s",)),
    ("Throughput", THROUGHPUT),
    ("Peak memory", (MEMORY,)),
)


def print_inference_validation(console: Console, rows: Sequence[InferenceRow]) -> None:
    """Errors of times, rates and memory by group, verdicts, and what is not predicted."""
    for title, quantities in _QUANTITIES:
        for group in GROUPS:
            found = inference_errors(rows, quantities, group)
            if _worth(found):
                print_errors(console, f"{title} by {'GPU' if group == 'gpu' else group}", found)
    print_verdicts(console, inference_verdicts(rows))
    print_reasons(console, rows)
    console.print()
    console.print(
        "MAPE: mean of |predicted / measured - 1|. Bias: median of predicted / measured - 1. "
        f"Within: share inside the {LEVEL:.0%} interval. Throughput: output tokens/s, or total "
        "tokens/s, latency or requests/s where a source has only these."
    )


def _worth(found: Sequence[Errors]) -> bool:
    return any(errors.predicted for errors in found)
