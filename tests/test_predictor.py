"""The predictor that simulators of engines call, against estimates and against their interfaces."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.decide.predictor import SGLangPredictor, VidurPredictor
from planner.errors import InfeasibleError, SearchSpaceError
from planner.workloads.serving.wording import inference_steps

ASKED = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "num_gpus": 2,
    "engine": "vllm",
    "input_tokens": 1024,
    "output_tokens": 257,
    "input_variation": 0,
    "output_variation": 0,
    "settings": {"tensor_parallel": 2, "concurrency": 32},
}


@pytest.fixture(scope="module")
def predictor():
    return planner.predictor(**ASKED)


def test_a_step_is_that_of_the_estimate(predictor) -> None:
    steps = inference_steps(planner.estimate(workload="serve", **ASKED).candidates)
    assert predictor.predict([(0, 1024)]) == pytest.approx(float(steps["prefill"].total[0]))
    few, more = (predictor.predict([(1024 + 128, 1)] * n) for n in (30, 31))
    assert few < float(steps["decode"].total[0]) < more  # it holds 30.9 sequences


def test_requests_of_different_lengths_take_what_their_means_take(predictor) -> None:
    mixed = predictor.predict([(1000, 1), (3000, 1), (2000, 1)])
    assert mixed == pytest.approx(predictor.predict([(2000, 1)] * 3))
    whole = predictor.predict([(0, 2048)])
    halves = predictor.predict([(0, 1024), (1024, 1024)])
    assert halves == pytest.approx(whole, rel=0.02)


def test_a_chunk_looks_back_at_what_is_cached(predictor) -> None:
    """Scores of 60,000 cached keys and of those before each in the chunk: 30 times as many."""
    alone, later = (predictor.predict([(old, 4096)]) for old in (0, 60_000))
    scores = 4 * 4096 * 32 * 32 * 128 / 2 * 60_000  # of half of the heads
    assert later - alone > scores / 989e12


def test_nothing_takes_no_time_and_nonsense_is_refused(predictor) -> None:
    assert predictor.predict([]) == 0
    with pytest.raises(SearchSpaceError, match="new tokens is a whole number of at least 1"):
        predictor.predict([(5, 0)])
    with pytest.raises(SearchSpaceError, match="tokens in the cache"):
        predictor.predict([(-1, 1)])
    with pytest.raises(InfeasibleError, match="rejected by"):
        planner.predictor(**{**ASKED, "model": "llama-3.1-405b"})
    with pytest.raises(SearchSpaceError, match="aggregated"):
        planner.predictor(**{**ASKED, "mode": "disaggregated", "settings": {"replicas": 1}})


@dataclass
class _Request:
    num_processed_tokens: int
    is_prefill_complete: bool = False


@dataclass
class _Batch:
    requests: list[_Request]
    num_tokens: list[int]


@dataclass
class _ExecutionTime:
    """The sums of ``vidur/entities/execution_time.py`` over the parts of its constructor [ms]."""

    num_layers_per_pipeline_stage: int
    attention_rope_execution_time: float
    attention_kv_cache_save_execution_time: float
    attention_decode_execution_time: float
    attention_prefill_execution_time: float
    attention_layer_pre_proj_execution_time: float
    attention_layer_post_proj_execution_time: float
    mlp_layer_up_proj_execution_time: float
    mlp_layer_down_proj_execution_time: float
    mlp_layer_act_execution_time: float
    attn_norm_time: float
    mlp_norm_time: float
    add_time: float
    tensor_parallel_communication_time: float
    pipeline_parallel_communication_time: float
    schedule_time: float
    sampler_e2e_time: float
    prepare_inputs_e2e_time: float
    process_model_outputs_time: float
    ray_comm_time: float
    host: tuple[str, ...] = field(
        default=(
            "schedule_time",
            "sampler_e2e_time",
            "prepare_inputs_e2e_time",
            "process_model_outputs_time",
            "ray_comm_time",
        ),
        init=False,
    )

    @property
    def model_time(self) -> float:
        apart = {"num_layers_per_pipeline_stage", "pipeline_parallel_communication_time", "host"}
        layer = sum(v for k, v in vars(self).items() if k not in (*apart, *self.host))
        layer += self.tensor_parallel_communication_time  # after attention and after the MLP
        sent = self.pipeline_parallel_communication_time
        return (layer * self.num_layers_per_pipeline_stage + sent) * 1e-3

    @property
    def total_time(self) -> float:
        return self.model_time + sum(getattr(self, name) for name in self.host) * 1e-3


def test_vidur_gets_the_step_by_stage() -> None:
    one = planner.predictor(**{**ASKED, "settings": {"pipeline_parallel": 2}})
    batch = _Batch([_Request(0), _Request(700, True)], [512, 1])
    vidur = VidurPredictor(predictor=one, execution_time=_ExecutionTime)
    times = [vidur.get_execution_time(batch, stage) for stage in range(one.stages)]
    assert sum(each.total_time for each in times) == pytest.approx(
        one.predict([(0, 512), (700, 1)])
    )
    assert times[0].model_time == times[0].total_time > 0


@dataclass
class _ScheduleRequest:
    """As in SGLang Simulator's time_predictor/base.py."""

    extend_length: int = 0
    past_kv_length: int = 0


@dataclass
class _ScheduleBatch:
    reqs: list[_ScheduleRequest] = field(default_factory=list)


def test_sglangs_simulator_gets_the_step_of_new_and_cached_tokens(predictor) -> None:
    batch = _ScheduleBatch([_ScheduleRequest(512, 4096), _ScheduleRequest(1, 700)])
    adapter = SGLangPredictor(predictor=predictor)
    assert adapter.predict_infer_time(batch) == predictor.predict([(4096, 512), (700, 1)])
    assert adapter.predict_infer_time(_ScheduleBatch()) == 0
    adapter.reset_metrics()
    assert adapter.get_metrics() == {}


def test_prompts_that_are_embedded_have_a_time_and_no_profile(tmp_path: Path) -> None:
    one = planner.predictor(model="bge-m3", gpu="h100", num_gpus=1, engine="vllm", output_tokens=0)
    assert one.cache_tokens == np.inf
    assert 0 < one.predict([(0, 512)]) < one.predict([(0, 512)] * 16)
    with pytest.raises(SearchSpaceError, match="above 0"):
        one.save_mocker_profile(tmp_path / "profile.npz")
    assert not list(tmp_path.iterdir())


def test_the_command_line_writes_the_profile_of_its_plan(
    predictor, request, tmp_path: Path
) -> None:
    path = tmp_path / "profile.npz"
    options = "--workload serve --model llama-3.1-8b --gpu h100 --gpus 2 --engine vllm --quiet "
    options += "--input-tokens 1024 --output-tokens 257 --set tp=2 --set concurrency=32"
    command = request.getfixturevalue("planner")
    assert not command("estimate", *options.split(), "--mocker-profile", path).exit_code
    predictor.save_mocker_profile(tmp_path / "other.npz")
    with np.load(path) as mine, np.load(tmp_path / "other.npz") as other:
        assert all(np.array_equal(mine[name], other[name]) for name in other)


def test_the_mocker_interpolates_to_the_predictor(predictor, tmp_path: Path) -> None:
    predictor.save_mocker_profile(tmp_path / "profile.npz")
    with np.load(tmp_path / "profile.npz") as profile:
        arrays = dict(profile)
    assert {str(each.dtype) for each in arrays.values()} == {"float64"}
    held, context = arrays["decode_active_kv_tokens"], arrays["decode_context_length"]
    assert arrays["decode_itl"].shape == (held.size, context.size)
    assert held[-1] > 500_000  # what two H100 have room for beside 8B
    for tokens in (100, 2000, 7000):
        found = np.interp(tokens, arrays["prefill_isl"], arrays["prefill_ttft_ms"])
        assert found / 1e3 == pytest.approx(predictor.predict([(0, tokens)]), rel=0.01)
    for sequences, length in ((1, 700), (24, 1500), (100, 3000)):
        found = _bilinear(arrays, sequences * length, length)
        exact = predictor.predict([(length, 1)] * sequences)
        assert found / 1e3 == pytest.approx(exact, rel=0.01)


def _bilinear(arrays: dict[str, np.ndarray], held: float, length: float) -> float:
    """What ``PerfModel::predict_decode_time`` makes of the table."""
    columns = [
        np.interp(held, arrays["decode_active_kv_tokens"], column)
        for column in arrays["decode_itl"].T
    ]
    return float(np.interp(length, arrays["decode_context_length"], columns))
