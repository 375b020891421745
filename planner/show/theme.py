"""Theme of pictures and pages: colours on light and dark, order of parts, axis labels.

Colours are those of M. Okabe and K. Ito, which are distinguishable with any colour vision, lighter
on a dark background. Parts of time and memory have the hue of their family and their own shade.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from planner.base.records import record
from planner.estimators.rl.rl_step import ROLLOUT_PHASES, TRAINER_PHASES
from planner.estimators.training.peak_memory import MEMORY_PARTS
from planner.estimators.training.step_time import TIME_PARTS
from planner.question.terms import ENDINGS, glossary, terms_about


@record(kw_only=True)
class Theme:
    """Colours as ``#rrggbb``: of the background, of text and lines, and of data.

    Any ``series`` colours are distinguishable; ``families`` has the hues of `FAMILIES`.
    """

    name: str
    background: str
    panel: str
    text: str
    muted: str
    grid: str
    recommended: str
    bad: str
    series: tuple[str, ...]
    families: Mapping[str, str]


LIGHT = Theme(
    name="light",
    background="#ffffff",
    panel="#f4f5f7",
    text="#1b1f24",
    muted="#59636e",
    grid="#dfe3e8",
    recommended="#c2410c",
    bad="#b3261e",
    series=("#0072b2", "#d55e00", "#009e73", "#a8538a", "#56b4e9", "#b07c00", "#4d4d4d"),
    families={
        "compute": "#0072b2",
        "communication": "#d55e00",
        "moving": "#009e73",
        "waiting": "#7f8790",
        "keeping": "#a8538a",
    },
)
DARK = Theme(
    name="dark",
    background="#14181d",
    panel="#1f252c",
    text="#e8ebee",
    muted="#a3adb8",
    grid="#343c46",
    recommended="#ffb454",
    bad="#ff7b72",
    series=("#4fa8e0", "#f08a4b", "#2dbe94", "#dc93bf", "#8fd0f5", "#e6b93e", "#c4c9cf"),
    families={
        "compute": "#4fa8e0",
        "communication": "#f08a4b",
        "moving": "#2dbe94",
        "waiting": "#8b949e",
        "keeping": "#dc93bf",
    },
)
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}

# Parts of a serving step that training steps do not have.
_STEP_PARTS = ("prefill", "decode", "kernels", "pipeline", "transfer_wait", "front_end_wait")
TIME_ORDER: tuple[str, ...] = (
    *ROLLOUT_PHASES, "old_logprob", *_STEP_PARTS, *TIME_PARTS, "values", "update", "switch", "sync",
)  # fmt: skip
"""Parts of a training or serving step in the order in which they are shown."""
MEMORY_ORDER: tuple[str, ...] = (
    *MEMORY_PARTS[: MEMORY_PARTS.index("activations")],
    "adapters",
    "kv_cache",
    *MEMORY_PARTS[MEMORY_PARTS.index("activations") :],
)
"""Parts of a GPU's memory in the order in which they are shown."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "compute": (
        "forward", "backward", "weight", "recompute", "optimizer", "kernels",
        "prefill", "decode", "weights", "gradients", "optimizer_states", "adapters",
        *TRAINER_PHASES,
    ),
    "communication": (
        *terms_about("collective"), "weight_gather",
        "pipeline_transfer", "pipeline", "data_parallel", "exchange", "transfer", "gathered",
        "communication_buffers", "sync", "switch",
    ),
    "moving": ("offload", "transfer_wait", "kv_cache", "generate", "reward"),
    "waiting": (
        "launch_wait", "pipeline_bubble", "bubble", "overhead", "slow_nodes", "untuned",
        "front_end_wait", "reserved", "fragmentation",
    ),
    "keeping": ("activations", "working"),
}  # fmt: skip
"""Families of parts of time and memory; each part is in one family."""

_SHADES = (0.0, 0.32, 0.55, 0.16, 0.68, 0.44)


def family_of(part: str) -> str:
    """The family of a part of time or memory; ``waiting`` for unknown parts."""
    return next((family for family, parts in FAMILIES.items() if part in parts), "waiting")


def part_colors(parts: Iterable[str], theme: Theme) -> dict[str, str]:
    """Return the colour of each part: the hue of its family, shaded towards the background.

    >>> part_colors(["forward", "recompute"], LIGHT)
    {'forward': '#0072b2', 'recompute': '#529fcb'}
    """
    seen: dict[str, int] = {}
    colors = {}
    for part in parts:
        family = family_of(part)
        number = seen.setdefault(family, 0)
        seen[family] += 1
        shade = _SHADES[number % len(_SHADES)]
        colors[part] = blend(theme.families[family], theme.background, shade)
    return colors


def blend(color: str, other: str, share: float) -> str:
    """Return a colour mixed with a share (0 to 1) of another one, both ``#rrggbb``."""
    pairs = zip(_channels(color), _channels(other), strict=True)
    return "#" + "".join(
        f"{round(first + share * (second - first)):02x}" for first, second in pairs
    )


def shades(values: Sequence[float], sign: float) -> list[float]:
    """Return how good each value is, from 1 (best) to 0 (worst); ``sign`` is 1 if less is better.

    Logarithmic if all values are above 0; NaN for unknown values.

    >>> shades([1.0, 10.0, 100.0], 1)
    [1.0, 0.5, 0.0]
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return [math.nan for _ in values]
    scale = math.log if min(finite) > 0 else float
    low, high = scale(min(finite)), scale(max(finite))
    scores = []
    for value in values:
        share = (scale(value) - low) / max(high - low, 1e-12) if math.isfinite(value) else math.nan
        scores.append(1 - share if sign > 0 else share)
    return scores


def readable_on(color: str) -> str:
    """Return black or white, whichever has more contrast on a colour."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (level / 255 for level in _channels(color))
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[start : start + 2], 16) for start in (1, 3, 5))


def part_label(part: str) -> str:
    """The label of a part."""
    return part.replace("_", " ")


def in_order(parts: Iterable[str], order: tuple[str, ...]) -> list[str]:
    """Parts sorted by an order; parts that are not in it come last, unsorted."""
    return sorted(parts, key=lambda part: order.index(part) if part in order else len(order))


_UNITS = {end: unit for unit, (end, _) in ENDINGS.items() if end}
_UNITS |= {"_days": "days", "_kg": "kg CO2e"}
_ITSELF = {"model_flops_utilization": "model FLOPs utilization (share of the peak)"}


def axis_label(column: str) -> str:
    """Return the axis label of a result column: its name and its unit in brackets.

    >>> axis_label("step_time_s"), axis_label("output_tokens_per_s_per_gpu")
    ('step time [s]', 'output tokens/s/GPU')
    """
    if column in _ITSELF:
        return _ITSELF[column]
    if column in ("num_gpus", "gpu_hours"):
        return glossary()[column].column_header.replace("- ", "-")
    if "_per_s" in column:
        rate = column.replace("_per_s", "/s").replace("_per_gpu", "/GPU")
        return rate.replace("_per_user", "/user").replace("_", " ")
    ending = next((ending for ending in _UNITS if column.endswith(ending)), "")
    name = column.removesuffix(ending).replace("_", " ")
    return f"{name} [{_UNITS[ending]}]" if ending else name
