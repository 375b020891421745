"""Processes that take requests and stream answers, on published rates of vLLM and SGLang."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.errors import SpecError
from planner.specs.engine import FrontEnd
from planner.specs.software_profile import engine_on, load_engine

# vllm-project/vllm pull request 17546: two A100 of one server, ShareGPT, 120 requests/s offered.
SMALL: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpu": "a100-sxm-80gb", "num_gpus": 1, "engine_version": "0.9.0",
    "input_tokens": 221, "output_tokens": 200, "settings": {"concurrency": 1000},
}  # fmt: skip
# vllm-project/vllm pull request 27869.
FAST: dict[str, Any] = {
    "model": "gpt-oss-20b", "gpu": "b200-sxm-180gb", "num_gpus": 1, "engine_version": "0.11.1",
    "input_tokens": 1024, "output_tokens": 1024, "settings": {"concurrency": 1024},
    "max_num_seqs": 1024,
}  # fmt: skip


def served(engine: str = "vllm", **asked: Any) -> Any:
    plan = planner.estimate(workload="serve", engine=engine, tuned=True, **asked)
    return plan.candidates


def tokens_per_s(**asked: Any) -> float:
    return float(served(**asked).throughput[0])


def front_end(engine: str, release: str = "") -> FrontEnd:
    found = engine_on(load_engine(engine).spec, None, release).front_end
    assert found is not None
    return found


def test_one_process_limits_two_engines_as_measured() -> None:
    """10,000 requests took 130.74 s with one process."""
    shared = 2 * tokens_per_s(**SMALL, api_servers=0.5) / 200
    assert shared == pytest.approx(10_000 / 130.74, rel=0.1)
    assert 2 * tokens_per_s(**SMALL, api_servers=1) / 200 > 120


def test_tokens_that_are_sent_together_cost_less_as_measured() -> None:
    """gpt-oss-20b with 1,024 requests is 57 % faster with an interval of 10."""
    gain = tokens_per_s(**FAST, stream_interval=10) / tokens_per_s(**FAST)
    assert gain == pytest.approx(1.57, rel=0.08)


def test_the_processes_of_newer_releases_pass_on_what_was_measured() -> None:
    """4 processes pass on 806.77 requests/s: vllm-project/vllm pull request 43469."""
    own = front_end("vllm")
    each = own.request_time + 32 * own.prompt_token_time
    each += 512 * (own.token_time + own.message_time)
    assert 4 / each == pytest.approx(806.77, rel=0.1)


def test_a_detokenizer_of_sglang_is_as_fast_as_measured() -> None:
    """One detokenizer passes on 5,122,821 tokens in 133 s: sgl-project/sglang pull request 9970."""
    assert front_end("sglang").token_time < 133.01 / 5_122_821


def test_each_rank_has_a_process_from_a_release_on() -> None:
    assert front_end("vllm").per_rank
    assert not front_end("vllm-0.8", "0.14.1").per_rank
    assert not front_end("sglang").per_rank
    assert engine_on(load_engine("vllm").spec, None, offline=True).front_end is None


def test_first_tokens_wait_for_those_before_them() -> None:
    one, four = (served(**FAST, api_servers=number) for number in (1, 4))
    late = 1024 * 55e-6 / 2
    assert one.time_to_first_token - four.time_to_first_token > 0.5 * late


def test_a_wait_for_the_processes_is_a_part_of_the_step() -> None:
    steps = planner.explain(workload="serve", engine="vllm", tuned=True, **FAST).steps
    parts = {one.part.name: one.part.seconds for one in steps[-1].parts}
    assert parts["front_end_wait"] > 0.01


def test_a_number_that_has_no_meaning_is_refused() -> None:
    with pytest.raises(SpecError, match="API servers of TGI"):
        served("tgi", **{**SMALL, "engine_version": None}, api_servers=2)
    with pytest.raises(SpecError, match="must be above 0"):
        served(**SMALL, api_servers=0)


def test_an_answer_names_processes_that_limit_the_rate() -> None:
    said = planner.estimate(workload="serve", engine="vllm", tuned=True, **FAST).summary()
    assert "The API servers limit the rate" in said
    free = planner.estimate(workload="serve", engine="vllm", tuned=True, **FAST, api_servers=4)
    assert "API servers" not in free.summary()


def burst(model: str, release: str, number: int = 1000) -> Any:
    return served(
        model=model, gpu="h100-sxm-80gb", num_gpus=1, engine_version=release, num_requests=number,
        input_tokens=128, output_tokens=4, settings={"concurrency": number},
    )  # fmt: skip


@pytest.mark.parametrize(("model", "late"), [("qwen3-14b", True), ("gpt-oss-20b", False)])
def test_each_chat_parses_the_template_before_the_first_prompt_starts(
    model: str, late: bool
) -> None:
    """1,000 requests start 6 to 8 s later: vllm-project/vllm pull request 20065."""
    parsed, kept = (burst(model, release) for release in ("0.11.0", "0.12.0"))
    first = float((parsed.time_to_first_token - kept.time_to_first_token)[0])
    assert 6 <= first <= 8 if late else first == pytest.approx(0, abs=0.1)
    same = float((parsed.time_per_output_token / kept.time_per_output_token)[0])
    assert same == pytest.approx(1, rel=0.05)  # none is answered before


def test_requests_of_a_burst_are_taken_in_one_after_the_other() -> None:
    each = front_end("vllm", "0.12.0").request_time
    few, many = (
        float(burst("llama-3.2-1b", "0.12.0", number).time_to_first_token[0])
        for number in (1000, 2000)
    )
    assert many - few > 1000 * each


@pytest.mark.parametrize(
    ("model", "gpu", "num_gpus", "release", "fp8", "seconds"),
    [
        ("deepseek-r1", "h200-sxm-141gb", 8, "0.5.3", True, 61.3),
        ("glm-4.6", "h200-sxm-141gb", 4, "0.5.3", True, 60.3),
        ("qwen3-235b-a22b", "a100-sxm-80gb", 8, "0.5.5", False, 89.4),
        ("glm-4.5-air", "a100-sxm-80gb", 4, "0.5.4", False, 66.4),
    ],
)
def test_a_burst_of_experts_ends_when_it_was_measured_to(
    model: str, gpu: str, num_gpus: int, release: str, fp8: bool, seconds: float
) -> None:
    """1,000 requests of ShareGPT in SGLang: GPUStack performance lab, first rows of its pages."""
    chosen = {"quantization": "fp8_block", "expert_quantization": "fp8_block"} if fp8 else {}
    found = served(
        "sglang", model=model, gpu=gpu, num_gpus=num_gpus, engine_version=release,
        num_requests=1000, input_tokens=219, output_tokens=201,
        settings={"concurrency": 1000, "tensor_parallel": num_gpus, **chosen},
    )  # fmt: skip
    assert 1000 / float(found.request_rate[0]) == pytest.approx(seconds, rel=0.18)
