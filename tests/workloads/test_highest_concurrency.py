"""The highest concurrency that has room is the last one that a full prediction accepts."""

from __future__ import annotations

import numpy as np
import pytest

from planner import Request
from planner.workloads.make_plan import make_single_plan
from planner.workloads.serving import replicas


@pytest.mark.parametrize(
    ("model", "gpu", "engine"), [("llama-3.1-8b", "h100", "vllm"), ("qwen3-32b", "b200", "sglang")]
)
def test_it_is_found_without_times(
    monkeypatch: pytest.MonkeyPatch, model: str, gpu: str, engine: str
) -> None:
    request = Request(workload="serve", model=model, gpu=gpu, num_gpus=1, engine=engine)
    (source,) = make_single_plan(request).problem.sources
    assert source.mesh is not None
    one = source.mesh.flat().rows(np.array([0]))
    with monkeypatch.context() as patch:
        patch.setattr(replicas, "evaluate_serving", None)
        found = replicas.max_concurrency(source, one)
    tried = replicas._with_concurrency(one, np.array([found, found + 1.0]))
    codes = source.with_immediate_admission.judged(tried).rejected_by
    assert [code > 0 for code in codes] == [False, True]


@pytest.mark.parametrize(("model", "fits"), [("llama-3.1-8b", True), ("llama-3.1-70b", False)])
def test_what_may_not_fit_is_told_without_times(
    monkeypatch: pytest.MonkeyPatch, model: str, fits: bool
) -> None:
    request = Request(workload="serve", model=model, gpu="h100", num_gpus=1, engine="vllm")
    (source,) = make_single_plan(request).problem.sources
    assert source.mesh is not None
    table = source.mesh.flat()
    assert (source.judged(table).rejected_by == 0).any() == fits
    monkeypatch.setattr(replicas, "evaluate_serving", None)
    assert source.may_fit(table) == fits
