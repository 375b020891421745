"""One look for pictures and pages: every part has a place, a family and a colour of its own."""

from __future__ import annotations

import pytest

from planner.estimators.inference.serving_memory import SERVING_MEMORY_PARTS
from planner.estimators.training.peak_memory import MEMORY_PARTS
from planner.estimators.training.step_time import TIME_PARTS
from planner.show.theme import (
    FAMILIES,
    MEMORY_ORDER,
    THEMES,
    TIME_ORDER,
    Theme,
    axis_label,
    in_order,
    part_colors,
    readable_on,
)


def _luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("parts", [TIME_PARTS, MEMORY_PARTS, SERVING_MEMORY_PARTS])
def test_every_part_is_in_a_family_and_in_the_order(parts: tuple[str, ...]) -> None:
    known = {part for family in FAMILIES.values() for part in family}
    assert set(parts) <= known
    assert set(parts) <= {*TIME_ORDER, *MEMORY_ORDER}


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("parts", [TIME_PARTS, MEMORY_ORDER], ids=["time", "memory"])
def test_no_two_parts_of_a_picture_have_the_same_colour(
    theme: Theme, parts: tuple[str, ...]
) -> None:
    colors = part_colors(parts, theme)
    assert len(set(colors.values())) == len(parts)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_is_read_on_its_ground(theme: Theme) -> None:
    for ground in (theme.background, theme.panel):
        assert _contrast(theme.text, ground) > 7
        assert _contrast(theme.muted, ground) > 4.5
    for color in (*theme.series, theme.recommended, theme.bad):
        assert _contrast(color, theme.background) > 2.3
        assert _contrast(readable_on(color), color) > 4.5


def test_parts_that_the_order_lacks_come_last() -> None:
    assert in_order(["new", "backward", "forward"], TIME_ORDER) == ["forward", "backward", "new"]


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("step_time_s", "step time [s]"),
        ("peak_memory_gib", "peak memory [GiB]"),
        ("tokens_per_s_per_user", "tokens/s/user"),
        ("requests_per_s", "requests/s"),
        ("num_gpus", "GPUs"),
    ],
)
def test_axes_have_units(column: str, label: str) -> None:
    assert axis_label(column) == label
