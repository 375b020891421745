"""How many requests are held at once where more come than there is room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.estimators.inference.memory import serving_memory
from planner.plan.plan import evaluated, one_configuration
from planner.question.request import Request


@pytest.mark.parametrize("asked", [10, 12, 64, 500, 5000])
def test_as_many_are_held_as_have_room_and_no_more(asked: int) -> None:
    """Of few requests each counts at nearly its full length, so that fewer have room for them."""
    request = Request(
        workload="serve",
        model="llama-2-70b",
        gpu="a100-sxm-80gb",
        num_gpus=2,
        input_tokens=2000,
        output_tokens=1000,
        mode="aggregated",
        settings={"tensor_parallel": 2, "concurrency": asked},
    )
    found = evaluated(one_configuration(request))
    held = found.candidates.held
    assert found.candidates.waits
    assert not found.rejected_by
    room = [
        serving_memory(
            found.source.setting, replace(held, concurrency=held.concurrency + more)
        ).most_sequences
        for more in (0, 1)
    ]
    assert np.all(room[0] >= held.concurrency)
    assert np.all(room[1] < held.concurrency + 1)
