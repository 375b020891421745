"""Where exchanges of tensor parallelism run behind matrix products, and where they cannot."""

from __future__ import annotations

import pytest

from planner import estimate

_NEMO = ("nemo", "megatron-bridge")
# What NeMo's profile leaves of the exchanges of layers; those of the loss are shown whole.
_SHOWN = 1 - 0.795


def _exchange(gpu, framework, model="llama-3.1-8b", **settings):
    """Seconds of a step that exchanges of tensor parallelism take."""
    settings = {"tensor_parallel": 8, "micro_batch_size": 1, **settings}
    asked = {"model": model, "gpu": gpu, "num_gpus": settings["tensor_parallel"]}
    asked |= {"sequence_length": 4096, "global_batch_size": 4, "framework": framework}
    (row,) = estimate(**asked, settings=settings).to_frame().to_dict("records")
    return row["time_tensor_parallel_s"]


@pytest.mark.parametrize("framework", _NEMO)
@pytest.mark.parametrize("gpu", ["h100", "b200", "a100"])
def test_user_buffers_hide_exchanges_on_links_that_reach_memory(gpu, framework):
    plain = _exchange(gpu, "megatron-lm", sequence_parallel=True)
    hidden = _exchange(gpu, framework, sequence_parallel=True)
    assert hidden == pytest.approx(_SHOWN * plain, rel=0.1)


@pytest.mark.parametrize("framework", _NEMO)
@pytest.mark.parametrize("gpu", ["rtx4090", "l40s"])
def test_nothing_is_hidden_over_pcie(gpu, framework):
    plain = _exchange(gpu, "megatron-lm", sequence_parallel=True)
    assert _exchange(gpu, framework, sequence_parallel=True) == pytest.approx(plain)


@pytest.mark.parametrize("framework", _NEMO)
def test_nothing_is_hidden_without_sequence_parallelism(framework):
    """Megatron-LM's arguments.py refuses --tp-comm-overlap there; NeMo switches it off."""
    plain = _exchange("h100", "megatron-lm", sequence_parallel=False)
    assert _exchange("h100", framework, sequence_parallel=False) == pytest.approx(plain)


def test_nothing_is_hidden_between_nodes():
    """NVIDIA/TransformerEngine issue 1071: buffers of one NVLink domain."""
    plain = _exchange("h100", "megatron-lm", sequence_parallel=True, tensor_parallel=16)
    hidden = _exchange("h100", "nemo", sequence_parallel=True, tensor_parallel=16)
    assert hidden == pytest.approx(plain)
    # A rack of one domain hides them.
    plain = _exchange("gb200", "megatron-lm", sequence_parallel=True, tensor_parallel=16)
    hidden = _exchange("gb200", "nemo", sequence_parallel=True, tensor_parallel=16)
    assert hidden == pytest.approx(_SHOWN * plain, rel=0.1)


@pytest.mark.parametrize("framework", _NEMO)
def test_models_with_experts_hide_what_is_asked_for(framework):
    """Recipes of NVIDIA-NeMo/Megatron-Bridge with experts have tp_comm_overlap off."""
    of = {"model": "mixtral-8x7b", "sequence_parallel": True, "expert_parallel": 8}
    plain = _exchange("h100", "megatron-lm", **of)
    assert _exchange("h100", framework, **of) == pytest.approx(plain)
    hidden = _exchange("h100", framework, **of, tp_comm_overlap=True)
    assert hidden == pytest.approx(_SHOWN * plain, rel=0.2)
