"""Engine profiles by release."""

from __future__ import annotations

import pytest

from planner.confidence.error_classes import Release
from planner.specs.catalogue import Catalogue


@pytest.mark.parametrize("vendor", ["NVIDIA", None])
@pytest.mark.parametrize(
    ("tool", "number", "profile"),
    [
        ("tgi", "0.9.4", "tgi-1"),
        ("tgi", "2.0.0", "tgi-2"),
        ("tgi", "3.3.1", "tgi"),
        ("vllm", "0.11.0", "vllm-0.8"),
        ("vllm", "0.20.2", "vllm-0.17"),
        ("vllm", "0.33.0", "vllm"),
    ],
)
def test_a_release_has_the_profile_of_its_time_on_any_vendor_of_the_engine(
    vendor: str | None, tool: str, number: str, profile: str
) -> None:
    """A profile that lists no vendors runs on all."""
    assert Release(tool=tool, number=number).profile(Catalogue(), vendor) == profile
