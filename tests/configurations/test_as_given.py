"""What follows from other parameters may be given beside them, where it agrees."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.errors import SearchSpaceError


def _estimate(**given: Any) -> dict[str, Any]:
    asked = {"model": "llama-2-7b", "num_gpus": 8, "framework": "megatron-lm", **given}
    found: dict[str, Any] = planner.estimate(**asked).to_frame().iloc[0].to_dict()
    return found


def test_what_agrees_changes_nothing() -> None:
    """8 GPUs / tensor parallel 2 are 4 copies; 256 sequences / (4 x 2) are 32 micro-batches."""
    settings = {"tensor_parallel": 2, "micro_batch_size": 2}
    more = {"dp": 4, "gradient_accumulation_steps": 32}
    plain = _estimate(global_batch_size=256, settings=settings)
    assert _estimate(global_batch_size=256, settings={**settings, **more}) == plain


def test_copies_that_the_gpus_do_not_make_are_refused_with_the_numbers() -> None:
    with pytest.raises(SearchSpaceError) as refused:
        _estimate(settings={"data_parallel": 8, "tensor_parallel": 2})
    assert str(refused.value) == (
        "data_parallel=8 is given, but num_gpus 8 / (tensor_parallel 2 x context_parallel 1 x "
        "pipeline_parallel 1) is 4: change one of them, or leave out data_parallel, which follows "
        "from the others."
    )


def test_steps_that_the_batch_does_not_make_are_refused_with_the_numbers() -> None:
    with pytest.raises(SearchSpaceError) as refused:
        _estimate(global_batch_size=64, settings={"gradient_accumulation_steps": 4})
    assert (
        "gradient_accumulation_steps=4 is given, but global_batch_size 64 / (data_parallel 8 x "
        "micro_batch_size 1) is 8:"
    ) in str(refused.value)


def test_steps_say_the_batch_where_nobody_else_does() -> None:
    """8 GPUs / 2 x 3 sequences x 5 micro-batches."""
    settings = {"tensor_parallel": 2, "micro_batch_size": 3, "gradient_accumulation_steps": 5}
    assert _estimate(settings=settings)["global_batch_size"] == 4 * 3 * 5


def test_steps_say_no_batch_of_an_open_layout() -> None:
    asked = {"model": "llama-2-7b", "num_gpus": 8}
    with pytest.raises(SearchSpaceError, match="give --global-batch-size"):
        planner.search(**asked, settings={"gradient_accumulation_steps": 5})


def test_a_search_keeps_the_layouts_with_so_many_copies() -> None:
    asked = {"model": "llama-2-7b", "num_gpus": 16, "framework": "megatron-lm"}
    found = planner.search(**asked, global_batch_size=256, settings={"dp": [4, 8]})
    rows = found.to_frame()
    assert len(rows)
    assert set(rows["data_parallel"]) <= {4, 8}
    assert set(16 / (rows["tensor_parallel"] * rows["pipeline_parallel"])) <= {4, 8}
