"""Drafted tokens: trees, what is accepted of each method, weights, cache and time of heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.errors import PlannerError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import decode_batch, tokens_per_step
from planner.estimators.inference.serving_memory import sequence_bytes
from planner.estimators.inference.speculative_decoding import draft_weights, drafting_time
from planner.specs.serving_workload import DraftMethod, acceptance, head_of
from planner.workloads.assumptions import EvaluatedChoice
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.serving.wording import open_serving


def setting_of(model: str = "llama-3.1-8b", engine: str = "sglang", **work: Any) -> ServingInputs:
    setting = serving_setting(model, "h100-sxm", engine, input_tokens=1024, output_tokens=512)
    return replace(setting, workload=replace(setting.workload, **work))


def plan_of(model: str = "llama-3.1-8b", **asked: Any) -> Plan:
    question = {"workload": "serve", "model": model, "num_gpus": 8, "gpu": "h200", **asked}
    return make_plan(make_request(question))


def test_a_tree_of_5_steps_has_6_tokens_at_most_and_verifies_64() -> None:
    tree = {"draft_tokens": 63, "draft_steps": 5}
    found = tokens_per_step(setting_of(**tree, acceptance_rate=0.87))
    assert found == pytest.approx(sum(0.87**i for i in range(6)))
    assert tokens_per_step(setting_of(**tree, acceptance_rate=0.999)) < 6
    assert tokens_per_step(setting_of(draft_tokens=63, acceptance_rate=0.87)) > 7.6
    batch = decode_batch(setting_of(**tree, acceptance_rate=0.87), replicas().concurrency)
    assert float(batch.tokens_per_sequence) == 64


@pytest.mark.parametrize(
    ("method", "is_tree", "steps", "accepted"),
    [
        (DraftMethod.EAGLE3, True, 5, 4.68),  # sgl-project/sglang pull request 4247
        (DraftMethod.EAGLE3, True, 8, 5.39),
        (DraftMethod.EAGLE, True, 8, 3.75),
        (DraftMethod.EAGLE, False, 2, 1.89),  # vllm-project/vllm pull request 16035
        (DraftMethod.EAGLE, False, 4, 2.08),
        (DraftMethod.EAGLE3, False, 3, 2.46),  # pull request 24344
        (DraftMethod.EAGLE3, False, 6, 2.47),  # pull request 24243
        (DraftMethod.EAGLE3, False, 7, 3.53),  # issue 26191
        (DraftMethod.MTP, False, 1, 1.9),  # sgl-project/sglang pull request 3582
        (DraftMethod.MTP, True, 2, 2.75),
        (DraftMethod.NGRAM, False, 5, 2.96),  # vllm-project/vllm pull request 24344
    ],
)
def test_published_lengths_lie_between_what_is_usual(
    method: DraftMethod, is_tree: bool, steps: int, accepted: float
) -> None:
    usual = acceptance(method, is_tree=is_tree)
    low, assumed, high = (
        sum(rate**i for i in range(steps + 1)) for rate in (usual.low, usual.assumed, usual.high)
    )
    assert low <= accepted * 1.01
    assert accepted <= high * 1.01
    assert assumed == pytest.approx(accepted, rel=0.4)


def with_head(method: DraftMethod, model: str = "llama-3.1-8b", **work: Any) -> ServingInputs:
    setting = setting_of(model, "vllm", draft_method=method, **{"draft_tokens": 3, **work})
    return replace(setting, draft=head_of(setting.model, method))


def test_a_head_of_eagle_3_for_8b_has_425_million_parameters() -> None:
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336
    # Queries, keys and values read two vectors; three states become one; logits of 32,000 tokens.
    beside = 4096 * (4096 + 2 * 1024) + 3 * 4096 * 4096 + 32_000 * 4096
    assert (layer + beside) / 1e6 == pytest.approx(425, abs=1)
    found = draft_weights(with_head(DraftMethod.EAGLE3), replicas())
    assert float(found) == 2 * (layer + beside)
    eagle = draft_weights(with_head(DraftMethod.EAGLE), replicas())
    assert float(eagle) == 2 * (layer + 2 * 4096 * 4096)
    halves = draft_weights(with_head(DraftMethod.EAGLE), replicas(tensor_parallel=2.0))
    assert float(halves) == float(eagle) / 2


def test_the_module_of_deepseek_v3_has_11_5_billion_parameters() -> None:
    """README_WEIGHTS.md of DeepSeek-V3: 11.5B beside the shared embedding and logits."""
    setting = with_head(DraftMethod.MTP, "deepseek-v3", draft_tokens=1)
    assert float(draft_weights(setting, replicas())) / 2 / 1e9 == pytest.approx(11.5, abs=0.15)


@pytest.mark.parametrize("method", [DraftMethod.EAGLE, DraftMethod.EAGLE3])
def test_a_head_caches_keys_and_values_of_a_layer(method: DraftMethod) -> None:
    plain, drafted = setting_of(engine="vllm"), with_head(method)
    own, more = (float(sequence_bytes(each, replicas(), 1600)) for each in (plain, drafted))
    assert more / own == pytest.approx(33 / 32)


def test_words_found_in_the_text_have_no_weights() -> None:
    assert not draft_weights(with_head(DraftMethod.NGRAM), replicas())


def test_a_head_drafts_a_token_after_the_other_in_the_step_of_the_model() -> None:
    batch = decode_batch(setting_of(), replicas().concurrency)
    one, three, tree = (
        float(drafting_time(with_head(DraftMethod.EAGLE3, **work), replicas(), batch))
        for work in (
            {"draft_tokens": 1},
            {"draft_tokens": 3},
            {"draft_tokens": 63, "draft_steps": 3},
        )
    )
    assert three == pytest.approx(3 * one)
    assert three < tree < 1.5 * three
    # A layer and 32,000 logits of an H100: 0.70 GB at 3.35 TB/s, and the starts of some kernels.
    assert 0.6e9 / 3.35e12 < one < 4 * 0.7e9 / 3.35e12


def test_what_is_accepted_is_assumed_by_method_and_open() -> None:
    modules = plan_of("deepseek-v3", draft_tokens=1)
    assert modules.defaults["acceptance_rate"].startswith("0.8 (as published for mtp")
    assert modules.problem.inputs.workload.draft_method is DraftMethod.MTP
    assert plan_of(draft_tokens=3).defaults["acceptance_rate"].startswith("0.65 (as published")
    asked = {"workload": "serve", "model": "llama-3.1-8b", "num_gpus": 1, "gpu": "h100"}
    settings = {"settings": {"concurrency": ["8"]}, "engine": "vllm", "draft_method": "eagle3"}
    for rate, is_open in ((None, True), (0.7, False)):
        plan = make_single_plan(
            make_request({**asked, **settings, "draft_tokens": 3, "acceptance_rate": rate})
        )
        chosen = EvaluatedChoice(
            request=plan.request, space=plan.space, candidates=evaluate(plan).candidates
        )
        facts = {fact.name: [*fact.tried] for fact in open_serving(chosen)}
        assert facts.get("acceptance rate") == (["0.6", "0.75"] if is_open else None)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"draft_steps": 2}, "draft_steps needs draft_tokens"),
        ({"draft_tokens": 2, "draft_steps": 3}, "give no more"),
        ({"draft_tokens": 2, "draft_method": "egale"}, "Known: draft_model, mtp, eagle"),
        ({"draft_tokens": 2, "draft_method": "mtp"}, "has no modules"),
        ({"draft_tokens": 2, "draft_method": "draft_model"}, "needs --draft-model"),
    ],
)
def test_a_draft_that_cannot_be_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(PlannerError, match=said):
        plan_of(**asked)


def decode_time(gpu: str, drafted: int, accepted: float) -> float:
    asked = {
        "workload": "inference",
        "model": "qwen3.5-27b",
        "gpu": gpu,
        "num_gpus": 1,
        "engine": "llama.cpp",
        "input_tokens": 512,
        "output_tokens": 512,
        "settings": {"concurrency": 1, "quantization": "q4_k_m"},
    }
    drafts = {"draft_tokens": drafted, "acceptance_rate": accepted} if drafted else {}
    found = evaluate(make_single_plan(make_request({**asked, **drafts})))
    return float(np.ravel(found.candidates.value("decode_latency"))[0])


@pytest.mark.parametrize(
    ("gpu", "drafted", "accepted", "gain"),
    [  # github.com/sudoingX/qwen38-mtp, pull requests 21, 42, 62, 85 and 43
        ("rtx3090", 2, 0.845, 1.54),
        ("rtx3090", 4, 0.833, 1.66),
        ("rtx5080", 2, 0.85, 1.90),
        ("rtx5090", 3, 0.85, 2.09),
        ("rtx5090", 4, 0.857, 2.45),
    ],
)
def test_gains_of_drafts_in_llama_cpp_are_as_published(
    gpu: str, drafted: int, accepted: float, gain: float
) -> None:
    """The accepted share of drafted tokens is stated; each is accepted with one probability."""
    found = decode_time(gpu, 0, 0.0) / decode_time(gpu, drafted, accepted)
    assert found == pytest.approx(gain, rel=0.1)
