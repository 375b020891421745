"""Limits of a size as text: the margins of a plan, and the relaxed limits."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base import formatting
from planner.confidence.intervals import MEDIAN
from planner.decide.sizing.fleet import Margin
from planner.decide.sizing.size_all import Sizes
from planner.show.presenters.format_results import label


def format_margin(margin: Margin, confidence: float) -> str:
    """Return a result against its limit: ``27.1 of 30.0 days at 90 %, 2.90 days to spare``."""
    confidence_text = (
        f" at {100 * confidence:g} %" if confidence > MEDIAN and margin.has_errors else ""
    )
    sure_text, bound_text = (
        formatting.format_limit(margin.value_at_confidence, margin.unit),
        formatting.format_limit(margin.bound, margin.unit),
    )
    if " " in bound_text:  # write a common unit once
        sure_text = sure_text.removesuffix(f" {bound_text.rpartition(' ')[2]}")
    spare = f"{formatting.format_limit(margin.spare, margin.unit)} to spare"
    text = f"{limit_name(margin.name)} {sure_text} of {bound_text}{confidence_text}, {spare}"
    if confidence_text:
        text += f"; predicted {formatting.format_limit(margin.predicted, margin.unit)}"
    elif confidence > MEDIAN:
        text += "; no published runs of this kind, sized at the prediction"
    return text


def format_constraint(name: str, sign: int, bound: float, unit: str) -> str:
    """Return a limit as text: ``TTFT at most 2.00 s``."""
    return (
        f"{limit_name(name)} at {'most' if sign > 0 else 'least'} "
        f"{formatting.format_limit(bound, unit)}"
    )


def limit_name(name: str) -> str:
    """The label of a limit without its unit."""
    return label(name).removesuffix(" days").removesuffix(" ms")


def relaxed_lines(sizes: Sizes) -> Iterator[str]:
    """Yield sentences on assumed limits that were relaxed because a GPU type misses them.

    Each has the number of GPUs that the original limit would need.
    """
    for size in sizes.feasible:
        margins = () if size.fewest is None else size.fewest.margins
        relaxed = [m for m in margins if m.bound != size.assumed.get(m.name, m.bound)]
        if not relaxed:
            continue
        before = size.fewest_at_assumed
        bounds = {} if before is None else {m.name: m.bound for m in before.margins}
        effects: dict[str, list[str]] = {}
        for margin in relaxed:
            assumed = size.assumed[margin.name]
            effect = "which no plan keeps"
            if before is not None and bounds.get(margin.name) == assumed:
                cost = (
                    f", {formatting.format_significant(before.cost)} USD per hour"
                    if before.cost > 0
                    else ""
                )
                effect = f"which takes {formatting.format_gpus(before.num_gpus)}{cost}"
            text = format_constraint(margin.name, margin.sign, margin.bound, margin.unit)
            text += f" in place of {formatting.format_limit(assumed, margin.unit)}"
            effects.setdefault(effect, []).append(text)
        hardware = f"{size.gpu} {size.contract}".strip()
        changes = "; ".join(f"{', '.join(text)}, {effect}" for effect, text in effects.items())
        yield f"Assumed limits relaxed for {hardware}: {changes}. Give the limits that you need"
