"""What training minimizes: sequences of a sample, passes without gradients, reference weights."""

from typing import Any

import numpy as np
import pytest

import planner
from planner.errors import SearchSpaceError, SpecError
from planner.estimators.training.flops import matmul_parameters
from planner.estimators.training.training_estimate import Estimate
from planner.layers.model import count_parameters

PARAMETERS = 6_738_415_616
"""Of Llama 7B, arXiv:2302.13971."""


def trained(objective: str | None, **request: Any) -> Estimate:
    asked = {
        "model": "llama-7b",
        "num_gpus": 8,
        "framework": "deepspeed",
        "sequence_length": 2048,
        "global_batch_size": 64,
        "training_objective": objective,
        **request,
    }
    settings = {"zero_stage": 3, "micro_batch_size": 2, **request.get("settings", {})}
    estimate: Estimate = planner.estimate(**{**asked, "settings": settings}).estimate
    return estimate


def part(estimate: Estimate, name: str) -> float:
    return float(np.ravel(getattr(estimate.memory.fullest, name))[0])


def parts(estimate: Estimate) -> dict[str, float]:
    return {name: float(np.ravel(value)[0]) for name, value in estimate.time.parts().items()}


@pytest.mark.parametrize(("stage", "ranks"), [(3, 8), (2, 1), (1, 1)])
def test_a_reference_model_is_two_bytes_a_parameter_sharded_as_the_policy(stage, ranks) -> None:
    """DeepSpeed shards weights from ZeRO-3 on: 13.48 GB on one GPU, or 1.68 GB on each of 8."""
    sft, dpo = (trained(name, settings={"zero_stage": stage}) for name in ("sft", "dpo"))
    assert part(dpo, "weights") - part(sft, "weights") == pytest.approx(2 * PARAMETERS / ranks)
    assert part(dpo, "gradients") == part(sft, "gradients")
    assert part(dpo, "optimizer_states") == part(sft, "optimizer_states")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"precompute_ref_log_probs": True}, id="precomputed"),
        pytest.param({"adapter": "lora", "framework": "hf-trainer"}, id="adapters-switched-off"),
    ],
)
def test_no_reference_weights_where_none_are_needed(request_) -> None:
    sft, dpo = (
        trained(name, **(request_ if name == "dpo" or "adapter" in request_ else {}))
        for name in ("sft", "dpo")
    )
    assert part(dpo, "weights") == part(sft, "weights")


def test_a_pair_is_two_sequences() -> None:
    """ORPO of a pair takes what SFT of two sequences takes: time, FLOPs, memory but for the loss.

    Log-probabilities of all tokens take 14 bytes per logit, a cross-entropy 12.
    """
    pair = trained("orpo", settings={"micro_batch_size": 1}, global_batch_size=32)
    two = trained("sft", settings={"micro_batch_size": 2}, global_batch_size=64)
    assert pair.step_time == pytest.approx(two.step_time, rel=1e-12)
    assert part(pair, "working") == pytest.approx(2 * 2048 * 32000 * 14)
    assert part(two, "working") < part(pair, "working")
    assert pair.tokens_per_step == two.tokens_per_step == 64 * 2048
    assert pair.samples_per_second == pytest.approx(32 / two.step_time)
    assert pair.model_flops_utilization == pytest.approx(two.model_flops_utilization)


def test_dpo_is_one_forward_pass_more_than_orpo() -> None:
    """On one GPU nothing is exchanged: the reference takes what the policy's forward pass does."""
    asked = {"num_gpus": 1, "gpu": "b300", "settings": {"zero_stage": 0, "recompute": "full"}}
    dpo, orpo = (parts(trained(name, **asked)) for name in ("dpo", "orpo"))
    assert orpo["reference"] == 0
    assert dpo["reference"] == pytest.approx(orpo["forward"], rel=1e-9)
    assert {**dpo, "reference": 0.0} == pytest.approx(orpo)
    assert sum(dpo.values()) - sum(orpo.values()) == pytest.approx(dpo["reference"])


def test_parts_with_a_reference_add_up() -> None:
    for adapter in ("none", "lora", "qlora"):
        name = "deepspeed" if adapter == "none" else "hf-trainer"
        found = trained("dpo", adapter=adapter, framework=name)
        assert sum(parts(found).values()) == pytest.approx(float(np.ravel(found.step_time)[0]))


def test_flops_of_a_reference_are_two_per_parameter() -> None:
    """8 N + 16 L h s per token: 6 N + 12 L h s of the policy, 2 N + 4 L h s of the reference."""
    dpo = trained("dpo")
    per_token = 8 * matmul_parameters(dpo.inputs.model) + 16 * 32 * 4096 * 2048
    peak = 8 * dpo.inputs.machine.peak(np.int8(0))
    expected = dpo.tokens_per_second * per_token / peak
    assert dpo.model_flops_utilization == pytest.approx(expected, rel=1e-9)


def test_kto_is_one_sequence_with_gradients_and_three_without() -> None:
    """The policy reads another answer, the reference both: trl 1.10, trl/trainer/kto_trainer.py."""
    asked = {"num_gpus": 1, "gpu": "b300", "settings": {"zero_stage": 0, "recompute": "full"}}
    kto, sft = trained("kto", **asked), trained("sft", **asked)
    assert parts(kto)["reference"] == pytest.approx(3 * parts(sft)["forward"], rel=1e-9)
    assert kto.tokens_per_step == sft.tokens_per_step
    ready = trained("kto", precompute_ref_log_probs=True, **asked)
    assert parts(ready)["reference"] == pytest.approx(parts(sft)["forward"], rel=1e-9)
    assert part(ready, "weights") == part(sft, "weights")


def test_a_reward_model_has_one_number_in_place_of_logits() -> None:
    """Llama 7B without its 32,000 x 4,096 logits, and 4,096 weights of the score."""
    reward = trained("rm")
    assert count_parameters(reward.inputs.model).total == PARAMETERS - 32000 * 4096 + 4096
    assert part(reward, "working") < part(trained("orpo"), "working")
    names = {operator.name for operator, _ in reward.time.operator_times()}
    assert "score" in names
    assert not names & {"logits", "loss"}


def test_a_tied_reward_model_keeps_its_embedding() -> None:
    """Qwen2.5 0.5B: the embedding was the matrix of the logits, so that 896 weights come."""
    asked = {"model": "qwen2.5-0.5b", "settings": {"zero_stage": 1}}
    models = [trained(name, **asked).inputs.model for name in ("rm", "sft")]
    reward, usual = (count_parameters(model).total for model in models)
    assert reward - usual == 896


def test_logits_of_policy_and_reference_are_there_together() -> None:
    """Eager: 2 + 4 + 4 bytes of each, where one backward pass has 4 + 4 + 4 bytes."""
    asked = {"framework": "hf-trainer", "adapter": "lora", "model": "llama-3.1-8b"}
    dpo, orpo = (part(trained(name, **asked), "working") for name in ("dpo", "orpo"))
    assert dpo == pytest.approx(4 * 2048 * 128256 * 20)
    assert orpo == pytest.approx(4 * 2048 * 128256 * 14)


LOGITS_OF_A_PAIR = 2 * 2048 * 128256
ONE_GPU = {"model": "llama-3.1-8b", "adapter": "qlora", "num_gpus": 1, "global_batch_size": 4}


def _loss_of_pairs(objective: str, framework: str, pairs: int, loss: str = "auto") -> float:
    settings = {"zero_stage": 0, "micro_batch_size": pairs, "loss_kernel": loss}
    asked = {**ONE_GPU, "framework": framework, "settings": {**settings, "recompute": "full"}}
    return part(trained(objective, **asked), "working")


@pytest.mark.parametrize("framework", ["unsloth", "fsdp-bf16", "hf-trainer"])
def test_a_fused_cross_entropy_saves_nothing_of_the_logits_of_pairs(framework: str) -> None:
    """Chunks of a supervised loss do not hold for log-probabilities of all tokens."""
    for loss in ("auto", "fused", "chunked"):
        each = _loss_of_pairs("dpo", framework, 1, loss) / LOGITS_OF_A_PAIR
        assert each == pytest.approx(20), loss


def test_liger_takes_one_pair_at_a_time() -> None:
    """Liger-Kernel 0.6.2, chunked_loss/fused_linear_preference.py: chunk_size = 1."""
    one, four = (_loss_of_pairs("orpo", "hf-trainer", pairs, "linear") for pairs in (1, 4))
    assert one == pytest.approx(14 * LOGITS_OF_A_PAIR)
    assert four <= one * 1.2


@pytest.mark.parametrize("framework", ["hf-trainer", "unsloth", "fsdp-bf16", "deepspeed", "trl"])
def test_preferences_need_no_less_memory_than_supervised_samples(framework: str) -> None:
    adapter = {"adapter": "lora"} if framework in ("hf-trainer", "unsloth", "trl") else {}
    settings = {"zero_stage": 3 if not adapter else 0, "recompute": "full"}
    peaks = {
        name: float(
            np.ravel(
                trained(
                    name, model="llama-3.1-8b", framework=framework, settings=settings, **adapter
                ).peak_memory
            )[0]
        )
        for name in ("sft", "kto", "orpo", "dpo")
    }
    assert peaks["sft"] <= peaks["kto"] <= peaks["dpo"]
    assert peaks["sft"] < peaks["orpo"] <= peaks["dpo"]


def test_zephyr_7b_dpo_fits_on_8_gpus_of_80_gb() -> None:
    """alignment-handbook, recipes/zephyr-7b-beta: ZeRO-3, 8 pairs of 1,024 tokens on each GPU."""
    asked = {"model": "mistral-7b", "gpu": "a100-sxm-80gb", "sequence_length": 1024}
    settings = {"micro_batch_size": 8, "recompute": "full"}
    assert trained("dpo", **asked, global_batch_size=128, settings=settings).rejected_by == 0


def test_grpo_takes_two_forward_passes_beside_a_sequence_that_is_trained() -> None:
    """The policy before the update and the reference; DAPO lacks the second, and its weights."""
    asked = {"num_gpus": 1, "gpu": "b300", "settings": {"zero_stage": 0, "recompute": "full"}}
    grpo, dapo, sft = (trained(name, **asked) for name in ("grpo", "dapo", "sft"))
    forward = parts(sft)["forward"]
    assert parts(grpo)["reference"] == pytest.approx(2 * forward, rel=1e-9)
    assert parts(dapo)["reference"] == pytest.approx(forward, rel=1e-9)
    assert part(grpo, "weights") - part(dapo, "weights") == pytest.approx(2 * PARAMETERS)
    assert part(grpo, "working") == part(sft, "working")
    assert grpo.tokens_per_step == sft.tokens_per_step
    assert parts(trained("PPO", **asked)) == parts(grpo)


@pytest.mark.parametrize("word", ["online-dpo", "XPO", "nash_md"])
def test_training_on_rollouts_is_refused(word) -> None:
    with pytest.raises(SpecError, match="rollouts"):
        trained(word)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"training_objective": "dpoo"}, "Did you mean dpo"),
        ({"training_objective": "rm", "precompute_ref_log_probs": True}, "dpo or kto"),
        ({"training_objective": "dpo", "mtp_num_layers": 1}, "multi-token"),
    ],
)
def test_what_makes_no_sense_is_refused(request_, told) -> None:
    with pytest.raises(SpecError, match=told):
        trained(request_.pop("training_objective"), **request_)


def test_an_objective_may_stand_among_what_is_best() -> None:
    asked = {"model": "llama-7b", "num_gpus": 8, "sequence_length": 2048}
    found = planner.search(**asked, objectives=["ipo", "cost"]).plan
    assert found.problem.inputs.workload.training_objective == "dpo"
    assert [objective.name for objective in found.problem.objectives] == ["cost"]
    with pytest.raises(SearchSpaceError, match="one of several"):
        planner.search(**asked, objectives=["dpo", "kto"])


def test_trl_keeps_no_logits_of_texts_and_all_of_answers() -> None:
    """TRL 1.6: chunked_nll for texts; selective_log_softmax, 8 bytes per logit, for answers."""
    asked: dict[str, Any] = {"framework": "trl", "model": "llama-3.1-8b", "adapter": "lora"}
    of_texts, of_answers = (part(trained(name, **asked), "working") for name in ("sft", "grpo"))
    logits = 2 * 2048 * 128_256
    assert of_answers == pytest.approx(8 * logits)
    assert of_texts < 2 * logits


@pytest.mark.parametrize(
    ("model", "expert_compute", "measured"),
    [("gemma-4-26b-a4b", "auto", 46e9), ("qwen3-30b-a3b", "loop", 17.5e9)],
)
def test_experts_in_one_tensor_stay_in_16_bits(model, expert_compute, measured) -> None:
    """With Transformers 5, unslothai/unsloth#5344; in 4 bits before, unslothai/unsloth#2500."""
    estimate = trained(
        "sft", model=model, framework="hf-trainer", adapter="qlora", num_gpus=1, gpu="h200",
        global_batch_size=4, settings={"zero_stage": 0, "expert_compute": expert_compute},
    )  # fmt: skip
    assert part(estimate, "weights") == pytest.approx(measured, rel=0.06)


def test_weights_of_experts_are_gathered_as_they_are_kept() -> None:
    asked = {"model": "qwen3-30b-a3b", "framework": "hf-trainer", "adapter": "qlora", "gpu": "h200"}
    wide, narrow = (
        part(trained("sft", **asked, settings={"expert_compute": word}), "gathered")
        for word in ("auto", "loop")
    )
    assert wide > 3 * narrow
