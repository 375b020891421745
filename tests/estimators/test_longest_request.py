"""Whether an engine starts with its longest request, and what its log has of the cache."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from commands import Command
from serving_cases import replicas, serving_setting

from planner.errors import SpecError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.estimators.inference.serving_memory import (
    longest_that_fits,
    needed_to_start,
    serving_memory,
)
from planner.question.request import Request
from planner.workloads.make_plan import evaluate, make_single_plan


def setting_of(most: int | None, gpu: str = "l4", engine: str = "vllm") -> ServingInputs:
    setting = serving_setting("llama-3.1-8b", gpu, engine, input_tokens=1024, output_tokens=512)
    return replace(setting, workload=replace(setting.workload, max_model_len=most))


def is_rejected(most: int | None, gpu: str = "l4", engine: str = "vllm", n: int = 4) -> bool:
    c = replicas(concurrency=n, max_num_batched_tokens=2048)
    found = evaluate_serving(setting_of(most, gpu, engine), c)
    return bool(found.rejected_by > 0)


def test_8b_on_an_l4_starts_with_short_requests_alone() -> None:
    assert not is_rejected(None)
    assert not is_rejected(8192)
    assert is_rejected(131_072)
    assert not is_rejected(131_072, "h100-sxm")


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "lmdeploy"])
def test_engines_that_shorten_their_longest_request_start(engine: str) -> None:
    assert not is_rejected(131_072, engine=engine)
    # They have room for their weights and one request of the load, or they do not.
    assert is_rejected(131_072, gpu="t4-16gb", engine=engine)


@pytest.mark.parametrize(("engine", "starts"), [("sglang", True), ("vllm", False)])
def test_the_length_that_an_engine_takes_instead_is_said(
    engine: str, starts: bool, planner: Command
) -> None:
    words = "estimate --workload serve --model llama-3.1-8b --gpu l4 --gpus 1 --input-tokens 1024"
    more = f"--max-model-len 131072 --set concurrency=4 --engine {engine}"
    ran = planner(*words.split(), *more.split())
    told = " ".join(f"{ran.out} {ran.err}".split())
    assert ("longest request 27,854 tokens, as the cache holds no more" in told) == starts
    assert ("Does not start: the longest request needs 131,072 tokens" in told) != starts
    assert ran.exit_code == (0 if starts else 4)


def test_the_context_of_all_slots_is_told_from_that_of_one(planner: Command) -> None:
    words = "estimate --workload serve --model llama-3.1-8b --gpu l4 --gpus 1 --input-tokens 1024"
    more = "--max-model-len 131072 --set concurrency=4 --engine llama-cpp"
    told = " ".join(planner(*words.split(), *more.split()).out.split())
    found = re.search(r"holds ([\d,]+) in each of 4 slots; `--ctx-size (\d+)` starts", told)
    assert found is not None
    each, whole = (int(text.replace(",", "")) for text in found.groups())
    # The option is the surer of both: what 9 of 10 engines have.
    assert 0.9 * 4 * each < whole <= 4 * each


@pytest.mark.parametrize("engine", ["vllm", "llama-cpp"])
def test_it_starts_with_the_longest_that_fits_and_with_no_longer_one(engine: str) -> None:
    setting, c = setting_of(131_072, engine=engine), replicas(concurrency=4)
    most = longest_that_fits(setting, serving_memory(setting, c), c)
    assert 2_000 < most < 131_072
    for length, starts in ((most, True), (most + 1, False)):
        told = setting_of(length, engine=engine)
        memory = serving_memory(told, c)
        assert bool(needed_to_start(told, memory, c) <= memory.usable) is starts


def test_a_server_of_slots_needs_the_context_of_all() -> None:
    setting, c = setting_of(4096, engine="llama-cpp"), replicas(concurrency=np.array([1.0, 8.0]))
    few, many = needed_to_start(setting, serving_memory(setting, c), c)
    # 128 KiB of cache for a token of each of seven more slots.
    assert many - few > 7 * 4096 * 128 * 1024
    stream = setting_of(4096)
    one, all_of_them = needed_to_start(stream, serving_memory(stream, c), c)
    assert all_of_them == pytest.approx(one)


def asked(**more: object) -> Request:
    return Request(
        workload="serve",
        model="llama-3.1-8b",
        gpu="h100-sxm",
        engine="vllm",
        num_gpus=1,
        input_tokens=1024,
        output_tokens=512,
        mode="aggregated",
        settings={"concurrency": 64},
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(("told", "longest"), [(None, 131_072), (8192, 8192)])
def test_columns_have_the_cache_as_the_log_has_it(told: int | None, longest: int) -> None:
    table = evaluate(make_single_plan(asked(max_model_len=told))).table()
    tokens, at_once = table["kv_cache_tokens"][0], table["max_concurrency"][0]
    assert tokens == np.floor(at_once * longest)
    # 128 KiB of cache for a token of 8B: 32 layers of 8 heads of 128 numbers, keys and values.
    held = tokens * 128 / 1024**2
    assert table["kv_cache_size_gib"][0] == pytest.approx(held, rel=2e-3)


def test_requests_longer_than_the_engine_takes_are_refused() -> None:
    with pytest.raises(SpecError, match=r"1,536 tokens .* longer than the longest .*1,500"):
        make_single_plan(asked(max_model_len=1500))


@pytest.mark.slow
def test_a_longer_answer_never_fits_where_a_shorter_does_not() -> None:
    fits = []
    for output_tokens in range(20_000, 34_000, 100):
        setting = serving_setting(
            "llama-3.1-8b", "l4", "vllm", input_tokens=1000, output_tokens=output_tokens
        )
        found = evaluate_serving(replace(setting, sure_share=0.99), replicas(concurrency=1))
        fits.append(not bool(found.rejected_by > 0))
    assert fits == sorted(fits, reverse=True)
    assert {*fits} == {True, False}
