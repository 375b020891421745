"""Layouts of training in a few words."""

import pytest

from planner.configurations.configuration_tables import format_layout
from planner.question.terms import terms_of


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("schedule", "told"), [("interleaved", False), ("zero_bubble", True), ("dualpipe", True)]
)
def test_a_schedule_is_told_where_chunks_do_not_say_it(schedule: str, told: bool) -> None:
    """``vp2`` says that the schedule is interleaved."""
    plain = {name: term.default_value for name, term in terms_of("train", "parameter").items()}
    layout = {"tensor_parallel": 8, "pipeline_parallel": 4, "virtual_pipeline": 2}
    sizes = {"data_parallel": 2, "micro_batch_size": 1, "zero_stage": 1}
    words = format_layout({**plain, **layout, **sizes, "pipeline_schedule": schedule})
    assert (schedule in words) is told
    assert "vp2" in words
