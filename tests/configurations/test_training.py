"""Tables and open meshes of configurations."""

from __future__ import annotations

from enum import EnumType
from functools import cache
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.base.enums import ZeroStage
from planner.configurations.configuration_tables import NAMES, TrainingConfigurations, format_value
from planner.configurations.enumerate import training_mesh

PLAIN = {name: [value] for name, value in TrainingConfigurations.default_codes().items()}
VALUES: dict[str, list[Any]] = {
    **PLAIN,
    "num_gpus": [8, 16],
    "tensor_parallel": [1, 2, 4],
    "pipeline_parallel": [1, 2],
    "virtual_pipeline": [1, 3],
    "micro_batch_size": [1, 2],
    "global_batch_size": [32],
    "zero_stage": [0, 1],
    "data_parallel_replicas": [1, 2],
    "recompute": [0, 1, 2],
    "sequence_parallel": [False, True],
    "recompute_num_layers": [0, 2],
}
MESH = training_mesh(VALUES)


def _tuples(table: TrainingConfigurations) -> list[tuple[Any, ...]]:
    columns = [np.broadcast_to(getattr(table, name), table.shape).ravel() for name in NAMES]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_mesh_holds_every_combination_once() -> None:
    (block,) = MESH.blocks()
    rows = _tuples(block)
    assert len(rows) == len(set(rows)) == MESH.num_rows == 2 * 3 * 2 * 2 * 2 * 2 * 2 * 3 * 2 * 2
    for position, name in enumerate(NAMES):
        assert {row[position] for row in rows} == set(VALUES[name])


@cache
def _whole() -> tuple[TrainingConfigurations, list[tuple[Any, ...]]]:
    """The mesh as one block, and its rows."""
    (block,) = MESH.blocks()
    return block, _tuples(block)


@pytest.mark.slow
@given(max_rows=st.integers(1, 700))
@settings(max_examples=examples(100, 6))
def test_blocks_of_any_size_are_the_mesh_in_order(max_rows: int) -> None:
    blocks = list(MESH.blocks(max_rows))
    assert all(block.size <= max_rows for block in blocks)
    assert sorted(row for block in blocks for row in _tuples(block)) == sorted(_whole()[1])


@given(st.lists(st.integers(0, MESH.num_rows - 1), min_size=1, max_size=20))
def test_rows_are_those_of_the_mesh(indices: list[int]) -> None:
    block, every = _whole()
    assert _tuples(block.rows(np.array(indices))) == [every[index] for index in indices]


def test_chosen_and_narrowed_keep_what_they_say() -> None:
    (block,) = MESH.blocks()
    table = block.rows(np.arange(block.size))
    mask = np.broadcast_to(table.recompute, table.shape) == 2
    kept = _tuples(table.chosen(mask))
    assert kept == [row for row in _tuples(table) if row[NAMES.index("recompute")] == 2]
    axes = [np.arange(n) for n in block.shape]
    axes[1] = axes[1][:1]
    narrowed = block.narrow_axes(axes)
    assert set(_tuples(narrowed)) < set(_tuples(block))
    assert narrowed.size * block.shape[1] == block.size


def test_one_of_two_values_is_narrowed_to() -> None:
    (block,) = training_mesh(
        {**{name: values[:1] for name, values in VALUES.items()}, "zero_stage": [0, 1]}
    ).blocks()
    last = [np.arange(n)[-1:] for n in block.shape]
    assert (block.size, block.narrow_axes(last).zero_stage.ravel().tolist()) == (2, [1])


def test_types_hold_large_products() -> None:
    """1e6 GPUs and a batch of 1e8 sequences: int32 would overflow, float64 does not."""
    huge = TrainingConfigurations.of(
        **{**{name: values[0] for name, values in VALUES.items()}, "num_gpus": 10**6},
    )
    assert huge.data_parallel == 1e6
    assert huge.num_gpus.dtype == np.float64
    assert huge.zero_stage.dtype == np.int8
    assert huge.flash_attention.dtype == np.bool_


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("recompute", 2, "full"),
        ("offload", 2, "optimizer_weights"),
        ("precision", 2, "fp8"),
        ("zero_stage", 3, 3),
        ("sequence_parallel", np.True_, True),
        ("num_gpus", 2048.0, 2048),
    ],
)
def test_words_of_values(name: str, value: Any, shown: Any) -> None:
    found = format_value(name, value)
    assert found == shown
    assert type(found) is type(shown)


def test_arrays_take_a_code_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a question to its class, which Python 3.11 is slow to answer."""
    asked: list[str] = []
    monkeypatch.setattr(EnumType, "__getattr__", lambda _, name: asked.append(name), raising=False)
    stages = np.arange(4, dtype=np.int8)
    assert (stages >= ZeroStage.GRADIENTS).tolist() == [False, False, True, True]
    assert (stages == ZeroStage.GRADIENTS).tolist() == [False, False, True, False]
    assert asked == []
