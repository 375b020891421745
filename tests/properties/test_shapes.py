"""One answer per configuration: alone, in a table, in a mesh, in any chunk, in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import FRAMEWORKS, MODELS, mesh, setting, table

from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.training_estimate import Estimate, evaluate

SLOW = settings(max_examples=examples(15, 2))


def _columns(estimate: Estimate) -> dict[str, Any]:
    shape = estimate.configurations.shape
    fullest, time = estimate.memory.fullest, estimate.time.parts()
    values = {
        "step_time": estimate.step_time,
        "peak_memory": estimate.peak_memory,
        "rejected_by": estimate.rejected_by,
        "activations": fullest.activations,
        "forward": time["forward"],
        "pipeline_bubble": time["pipeline_bubble"],
        "data_parallel": time["data_parallel"],
    }
    return {name: np.broadcast_to(value, shape).ravel() for name, value in values.items()}


def _assert_same(some: dict[str, Any], others: dict[str, Any]) -> None:
    for name, values in some.items():
        np.testing.assert_allclose(values, others[name], rtol=1e-12, err_msg=name)


def _flat(**values: Any) -> TrainingConfigurations:
    (block,) = mesh(**values).blocks()
    return block.rows(np.arange(block.size))


@pytest.mark.few(8)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_open_mesh_equals_flat_table(model: str, framework: str) -> None:
    s = setting(model, framework)
    (block,) = mesh().blocks()
    rows = block.rows(np.arange(block.size))
    _assert_same(_columns(evaluate(s, block)), _columns(evaluate(s, rows)))


@SLOW
@given(
    model=st.sampled_from(MODELS),
    framework=st.sampled_from(FRAMEWORKS),
    row=st.integers(0, 10**6),
)
def test_one_row_equals_the_row_of_a_table(model: str, framework: str, row: int) -> None:
    s, rows = setting(model, framework), _flat()
    row %= rows.size
    every = _columns(evaluate(s, rows))
    alone = _columns(evaluate(s, rows.rows(row)))
    _assert_same(alone, {name: values[[row]] for name, values in every.items()})


@pytest.mark.slow
@SLOW
@given(model=st.sampled_from(MODELS), max_rows=st.integers(20, 900))
def test_chunking_changes_nothing(model: str, max_rows: int) -> None:
    """Rows are matched by their parameters: blocks number them otherwise."""
    s = setting(model, "torchtitan")

    def by_parameters(blocks: Iterable[TrainingConfigurations]) -> tuple[Any, Any]:
        """Parameters and columns, a row each, in the order of the parameters."""
        keys, values = [], []
        for block in blocks:
            rows = block.rows(np.arange(block.size))
            keys.append([np.broadcast_to(v, rows.shape) for v in vars(rows).values()])
            values.append([*_columns(evaluate(s, block)).values()])
        parameters, columns = (np.hstack([*map(np.array, each)]) for each in (keys, values))
        order = np.lexsort(parameters)
        return parameters[:, order], columns[:, order]

    whole, parts = (by_parameters(mesh().blocks(*most)) for most in ((), (max_rows,)))
    np.testing.assert_array_equal(parts[0], whole[0])
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-12)


@SLOW
@given(model=st.sampled_from(MODELS), seed=st.integers(0, 2**32 - 1))
def test_row_order_changes_nothing(model: str, seed: int) -> None:
    s, rows = setting(model), _flat()
    order = np.random.default_rng(seed).permutation(rows.size)
    straight = _columns(evaluate(s, rows))
    shuffled = _columns(evaluate(s, rows.rows(order)))
    _assert_same(shuffled, {name: values[order] for name, values in straight.items()})


def test_stage_without_experts_is_alone_what_it_is_in_a_table() -> None:
    """DeepSeek-V3 on 20 stages: three dense layers on the first, experts on the others."""
    s = setting("deepseek-v3", "megatron-deepspeed")
    values = {"num_gpus": 10240, "expert_parallel": 256, "global_batch_size": 10240}
    both = evaluate(s, table(**values, pipeline_parallel=[1, 20])).step_time
    alone = evaluate(s, table(**values, pipeline_parallel=20)).step_time
    assert both[1] == pytest.approx(float(alone), rel=1e-12)


def test_a_table_of_one_value_broadcasts() -> None:
    """Scalars beside vectors: the shape is that of the vectors."""
    estimate = evaluate(setting("llama-65b"), table(tensor_parallel=[1, 2, 4, 8]))
    assert estimate.step_time.shape == estimate.peak_memory.shape == (4,)
    assert len(set(estimate.step_time.tolist())) == 4
