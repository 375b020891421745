"""The plan one would launch: an order of what is unusual about a training plan."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from planner import Request, search
from planner.workloads.make_plan import make_plan, make_single_plan
from planner.workloads.training.results import complexity

PLAIN = {"tensor_parallel": 2, "sequence_parallel": True, "recompute": "none"}

# What weighs most comes first; each is the plain plan but for this.
UNUSUAL: list[tuple[str, dict[str, Any]]] = [
    ("short pieces of sequences", {"context_parallel": 4}),
    ("no fused attention", {"flash_attention": False}),
    ("tensor parallel between nodes", {"tensor_parallel": 16}),
    ("expert parallel between nodes", {"expert_parallel": 16}),
    ("no sequence parallelism", {"sequence_parallel": False}),
    ("another ZeRO stage", {"zero_stage": 0}),
    ("many chunks", {"pipeline_parallel": 2, "virtual_pipeline": 13}),
    ("a kind of parallelism more", {"pipeline_parallel": 2}),
    ("full memory", {}),
    ("recomputation", {"recompute": "selective"}),
    ("experts on every GPU", {"expert_parallel": 1}),
]


def _complexity(changes: dict[str, Any], full: bool = False, **request: Any) -> int:
    settings = {**PLAIN, "expert_parallel": 8, "zero_stage": 1, **changes}
    asked = {"model": "qwen3-235b-a22b", "gpu": "h100-sxm-80gb", "framework": "megatron-bridge"}
    plan = make_single_plan(
        Request(
            sequence_length=8192,
            settings=settings,
            **{"num_gpus": 256, "global_batch_size": 8192, **asked, **request},
        )
    )
    (source,) = plan.problem.sources
    memory = (0.91 if full else 0.89) * source.inputs.machine.gpu.allocatable_memory
    assert source.mesh is not None
    return int(complexity(source.mesh.table(), source.inputs, np.asarray(memory)).item())


def test_the_plainest_plan_has_no_complexity_but_its_one_kind_of_parallelism() -> None:
    assert _complexity({"tensor_parallel": 1, "sequence_parallel": False}) == 0
    assert _complexity({}) > 0


@pytest.mark.parametrize(("name", "changes"), UNUSUAL, ids=[name for name, _ in UNUSUAL])
def test_each_is_less_plain(name: str, changes: dict[str, Any]) -> None:
    assert _complexity(changes, full=name == "full memory") > _complexity({})


def test_the_order_is_that_of_the_documentation() -> None:
    found = [_complexity(changes, full=name == "full memory") for name, changes in UNUSUAL]
    for (first, more), (second, less) in combinations(zip(UNUSUAL, found, strict=True), 2):
        assert more > less, (first[0], second[0])


@pytest.mark.parametrize(
    ("pipeline", "virtual", "is_usual"),
    [
        (8, 4, True),  # 94 layers and two missing
        (8, 12, True),
        (2, 6, False),  # divides as well, but nobody has six
        (4, 5, False),  # six missing
        (16, 1, True),
        (20, 1, False),
    ],
)
def test_chunks_are_those_of_published_layouts(pipeline: int, virtual: int, is_usual: bool) -> None:
    gpus = {"num_gpus": 20 * 256, "global_batch_size": 20 * 8192}
    found = _complexity(
        {"pipeline_parallel": pipeline, "virtual_pipeline": virtual, "expert_parallel": 8}, **gpus
    )
    assert (found == _complexity({"pipeline_parallel": 2}, **gpus)) == is_usual


def test_recomputation_is_taken_in_the_order_of_its_cost() -> None:
    words = ("none", "selective", "feed_forward", "full")
    found = [_complexity({"recompute": word}) for word in words]
    assert found == sorted(set(found))


def test_context_parallelism_for_long_sequences_is_a_kind_like_others() -> None:
    assert _complexity({"context_parallel": 2}) == _complexity({"pipeline_parallel": 2})


def test_a_mesh_has_what_its_rows_have() -> None:
    asked = Request(model="mixtral-8x7b", num_gpus=16, framework="megatron-lm")
    (source,) = make_plan(asked).problem.sources
    assert source.mesh is not None
    table = source.mesh.table()
    rows = np.arange(0, table.size, 97)
    judged = source.judged(table)
    whole = np.broadcast_to(judged.complexity, judged.shape).ravel()[rows]
    assert len(set(whole.tolist())) > 20
    assert whole.tolist() == source.judged(table.rows(rows)).complexity.tolist()


@pytest.mark.few(1)
@pytest.mark.parametrize("framework", ["megatron-lm", None])
def test_no_context_parallelism_for_2048_tokens(framework: str | None) -> None:
    result = search(model="llama-65b", num_gpus=2048, framework=framework)
    assert result.recommended is not None
    assert result.fastest is not None
    (ring,) = result.recommended.columns()["context_parallel"]
    assert ring == 1
    assert result.recommended.step_time.item() <= 1.2 * result.fastest.step_time.item()
    assert result.recommended.complexity.item() < result.fastest.complexity.item()
