"""Less evidence never makes an interval narrower, on any GPU of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import planner
from planner.confidence import intervals
from planner.confidence.error_classes import gpu_class
from planner.confidence.evidence import LOADS, Conditions, evidence_of
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    TRAINING_TABLES,
    ErrorTables,
    Rule,
    interval_of,
)
from planner.confidence.profile_rules import (
    engine_labels,
    engine_rule,
    first_run_slowdown,
    framework_labels,
    framework_rule,
    read_table,
    rule_of_profile,
)
from planner.errors import PlannerError
from planner.question.request import Request
from planner.specs.catalogue import Catalogue
from planner.workloads.make_plan import make_plan

BASES = ("measured", "transferred", "roofline", "assumed")
KINDS = ("dense", "moe")
MODES = (
    ("static_batch", ("", "")),
    ("continuous_max_throughput", ("", "")),
    *product(("online", "disagg"), product(("own", "tuned"), LOADS[1:])),
)
SIZES: dict[ErrorTables, tuple[tuple[str, ...], ...]] = {
    TRAINING_TABLES: tuple(
        product(("gpu", "node", "cluster", "large"), ("pretrain", "finetune"), KINDS)
    ),
    INFERENCE_TABLES: tuple((mode, *apart, kind) for (mode, apart), kind in product(MODES, KINDS)),
}
QUANTITIES = {
    TRAINING_TABLES: ("step_time",),
    INFERENCE_TABLES: ("time_to_first_token", "time_per_output_token", "throughput"),
}
QUESTIONS: list[tuple[ErrorTables, Rule]] = [
    *((TRAINING_TABLES, framework_rule(label)) for label in framework_labels()),
    *((INFERENCE_TABLES, engine_rule(label)) for label in engine_labels()),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("tables", "rule"), QUESTIONS, ids=lambda one: getattr(one, "label", ""))
def test_less_evidence_is_never_narrower(tables: ErrorTables, rule: Rule) -> None:
    catalogue = Catalogue()
    classes = {gpu_class(catalogue.load_gpu(name).spec) for name in catalogue.names("gpus")}
    for quantity, rest, silicon in product(QUANTITIES[tables], SIZES[tables], sorted(classes)):
        keys = (rule.label, silicon, *rest)
        ends = [interval_of(quantity, keys, tables, basis) for basis in BASES]
        lows, highs = zip(*ends, strict=True)
        assert list(lows) == sorted(lows, reverse=True), (quantity, keys)
        assert list(highs) == sorted(highs), (quantity, keys)


@pytest.mark.parametrize(
    ("profile", "gpu", "label", "rested"),
    [
        ("vllm", "h100-sxm-80gb", "vLLM", "vllm"),
        ("vllm", "mi300x", "vLLM", "vllm"),
        ("vllm-rocm", "mi300x", "vLLM", "vllm-rocm"),
        ("vllm-0.8", "h100-sxm-80gb", "vLLM", "vllm"),
        ("vllm-0.7", "h100-sxm-80gb", "vLLM V0", "vllm-v0"),
        ("llama-cpp", "h100-sxm-80gb", "llama.cpp", "llama-cpp"),
        ("llama-cpp-2024", "h100-sxm-80gb", "llama.cpp", "llama-cpp-2024"),
        ("deepspeed-inference", "h100-sxm-80gb", "DeepSpeed", "deepspeed-inference"),
    ],
)
def test_a_profile_rests_on_the_runs_that_are_predicted_with_it(
    profile: str, gpu: str, label: str, rested: str
) -> None:
    rule = rule_of_profile(Catalogue().load_engine(profile).spec, gpu)
    assert (rule.label, rule.profile) == (label, rested)


@pytest.mark.parametrize("workload", ["train", "fine-tune", "serve"])
def test_answers_are_less_sure_where_kernels_are_assumed(workload: str) -> None:
    """A TPU v6e beside an A100, by what an answer says."""
    asked: dict[str, object] = {"model": "llama-3.2-1b", "num_gpus": 1}
    if workload == "serve":
        asked |= {"workload": "serve", "engine": "vllm", "input_tokens": 512, "output_tokens": 128}
    else:
        asked |= {"framework": "deepspeed", "sequence_length": 512, "global_batch_size": 8}
        asked |= {"training_objective": "sft" if workload == "fine-tune" else "pretrain"}
    found = {}
    for gpu in ("a100-sxm-80gb", "tpu-v6e"):
        answer = planner.estimate(gpu=gpu, **asked)  # type: ignore[arg-type]
        (row,) = answer.to_frame().to_dict("records")
        sure = answer.plan.source_of(row).confidence(1)
        quantity = "throughput" if workload == "serve" else "step_time"
        found[gpu] = sure.basis, math.log(sure.factors[quantity][1] / sure.factors[quantity][0])
    assert found["tpu-v6e"][0] == "assumed"
    assert found["tpu-v6e"][1] >= 1.2 * found["a100-sxm-80gb"][1]


@pytest.mark.parametrize(
    ("gpu", "engine"),
    [
        ("7900xtx", "vllm"), ("b60", "vllm"), ("mi455x", "vllm"), ("vr200", "vllm"),
        ("m5-max", "llama-cpp-metal"),
    ],
)  # fmt: skip
def test_runs_of_a_maker_are_no_evidence_of_a_generation_that_nobody_measured(
    gpu: str, engine: str
) -> None:
    answer = planner.estimate(
        workload="serve", model="llama-3.2-1b", gpu=gpu, num_gpus=1, engine=engine
    )
    (row,) = answer.to_frame().to_dict("records")
    sure = answer.plan.source_of(row).confidence(1)
    assert sure.basis == "assumed"
    announced = {"mi455x": "AMD", "vr200": "NVIDIA"}
    said = answer.plan.defaults.get("figures", "")
    assert said.startswith(f"as {announced[gpu]} announced" if gpu in announced else "")
    assert bool(said) == (gpu in announced)


def test_a_generation_that_engines_of_today_left_behind_is_refused_with_a_way_out() -> None:
    asked = {"workload": "serve", "model": "llama-3.2-1b", "gpu": "p40", "num_gpus": 1}
    with pytest.raises(PlannerError, match="no kernels for pascal GPUs"):
        planner.estimate(engine="vllm", **asked)  # type: ignore[arg-type]
    with pytest.raises(PlannerError, match="name a --engine, such as llama-cpp"):
        planner.search(**asked)  # type: ignore[arg-type]
    assert planner.estimate(engine="llama-cpp", **asked)  # type: ignore[arg-type]


TABLES = ErrorTables(
    keys=("framework", "gpu_class", "scale", "task", "kind"),
    intervals="known.csv",
    fits="none",
    widening="wider.csv",
    evidence="runs.csv",
)
KNOWN = """\
quantity,framework,gpu_class,scale,task,kind,level,low,high,rows,basis
step_time,,,,pretrain,,0.9,0.5,4.0,50,publishers
step_time,mine,,node,pretrain,,0.9,0.85,1.30,20,publishers
step_time,mine,hopper,node,pretrain,,0.9,0.90,1.20,10,publishers
step_time,mine,ampere,node,pretrain,,0.9,0.80,1.25,4,publishers
"""
WIDER = "quantity,basis,factor,rows\nstep_time,measured,0.9,9\nstep_time,roofline,2,9\n"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "known.csv").write_text(KNOWN, encoding="utf-8")
    (tmp_path / "wider.csv").write_text(WIDER, encoding="utf-8")
    monkeypatch.setattr(intervals, "read_table", lambda name: read_table(name, tmp_path))
    yield
    read_table.cache_clear()
    for cached in (interval_of, intervals._intervals, intervals._widening):
        cached.cache_clear()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("silicon", "basis", "ends"),
    [
        ("hopper", "measured", (0.90**0.9, 1.20**0.9)),
        ("hopper", "transferred", (0.90, 1.20)),
        ("hopper", "roofline", (0.90**2, 1.20**2)),
        # Four runs are too few: those of the software on any GPU count.
        ("ampere", "transferred", (0.85, 1.30)),
        # Kernels that nobody measured: all of the same task.
        ("tpu", "assumed", (0.5**2, 4.0**2)),
    ],
)
def test_an_interval_is_the_most_specific_and_wider_with_less_evidence(
    silicon: str, basis: str, ends: tuple[float, float]
) -> None:
    keys = ("mine", silicon, "node", "pretrain", "dense")
    assert interval_of("step_time", keys, TABLES, basis) == pytest.approx(ends)


H100 = "h100-sxm-80gb"
CLOSED_DENSE = Conditions(gpu_class="hopper", work="closed")


@pytest.mark.parametrize(
    ("engine", "changed", "basis", "missing"),
    [
        ("vllm", {}, "measured", ()),
        (
            "vllm",
            {"layout": "offload"},
            "transferred",
            ("offloading",),
        ),
        ("vllm", {"work": "open"}, "transferred", ()),  # measured on cards alone
        (
            "vllm",
            {"layer_kinds": "state", "number_format": "4-bit"},
            "transferred",
            ("linear attention or state-space layers",),
        ),
        ("vllm", {"gpu_class": "card"}, "transferred", ()),
        ("sglang", {"gpu_class": "card"}, "roofline", ("such GPUs",)),
    ],
)
def test_a_basis_is_by_the_conditions_of_published_runs(
    engine: str, changed: dict[str, str], basis: str, missing: tuple[str, ...]
) -> None:
    conditions = replace(CLOSED_DENSE, **changed)
    found = evidence_of(engine_rule(engine, "0.19"), H100, conditions, INFERENCE_TABLES)
    assert (found.basis, found.missing) == (basis, missing)


def test_runs_count_for_a_software_by_its_name_or_as_its_own_profile() -> None:
    def runs(framework: str, gpu: str, work: str = "pretrain", layout: str = "") -> int:
        where = Conditions(gpu_class="", work=work, layout=layout)
        return evidence_of(framework_rule(framework), gpu, where, TRAINING_TABLES).runs

    # Primus is measured there, which is only the closest to Megatron-LM's profile.
    assert runs("Primus", "mi325x") > 0
    assert runs("Megatron-LM", "mi325x") == 0
    # Runs of llm-foundry have FSDP's own profile.
    assert runs("FSDP", "a100-sxm-40gb") == runs("llm-foundry", "a100-sxm-40gb") > 0
    assert runs("llm-foundry", "a100-sxm-40gb", "finetune") == 0
    # Runs of a layout are no evidence of another one.
    assert runs("Megatron-LM", "a100-sxm-80gb", layout="pipeline") > 0
    assert runs("llm-foundry", "a100-sxm-40gb", layout="pipeline") == 0
    # Static batches on H100 were measured with TensorRT-LLM 0.x alone, which is the same engine.
    static = Conditions(gpu_class="hopper", work="static")
    assert evidence_of(engine_rule("tensorrt-llm", "1.2"), H100, static, INFERENCE_TABLES).runs > 99


def test_a_plan_with_pipeline_stages_says_that_no_published_run_has_them() -> None:
    asked = {"workload": "serve", "model": "llama-3.1-70b", "gpu": "h100", "engine": "tensorrt-llm"}
    found = {}
    for stages in (1, 4):
        settings = {"tensor_parallel": 4 // stages, "pipeline_parallel": stages, "concurrency": 16}
        answer = planner.estimate(**asked, num_gpus=4, settings=settings)  # type: ignore[arg-type]
        (row,) = answer.to_frame().to_dict("records")
        sure = answer.source.confidence_of(row)
        found[stages] = sure.is_proven, "pipeline parallelism" in sure.missing
    assert found == {1: (True, False), 4: (False, True)}


def _width(gpu: str, framework: str, num_gpus: int) -> tuple[float, str, int]:
    asked = Request(
        model="llama-3.1-70b", gpu=gpu, num_gpus=num_gpus, total_tokens=1e12, framework=framework
    )
    sure = make_plan(asked).problem.sources[0].confidence(num_gpus)
    assert sure is not None
    low, high = sure.factors["step_time"]
    return math.log(high / low), sure.basis.partition(",")[0], sure.runs


@pytest.mark.parametrize("num_gpus", [8, 256, 1024])
def test_intervals_are_widest_where_nobody_knows_what_kernels_reach(num_gpus: int) -> None:
    for framework in ("nemo", "megatron-bridge", "megatron-lm", "torchtitan", "fsdp"):
        known = [_width(gpu, framework, num_gpus)[0] for gpu in ("h100", "a100", "b200", "mi325x")]
        assert max(known) < _width("rubin", "torchtitan", num_gpus)[0]


def test_a_first_run_where_published_runs_are_recipes_is_less_sure() -> None:
    """Five times: 64 GPUs for 50 hours, where 32 take 20; Megatron-Bridge issue 4214."""
    assert first_run_slowdown("Megatron-Bridge") == 64 * 50 / (32 * 20)
    assert first_run_slowdown("HF Trainer") == 1  # published runs are people's own


def _step(**asked: object) -> tuple[float, float, float, str]:
    """Step time, the ends of its interval [s], and the basis."""
    asked = {"model": "llama-3-8b", "gpu": "h100", "num_gpus": 8, "framework": "nemo"} | asked
    found = planner.estimate(**asked)  # type: ignore[arg-type]
    (row,) = found.to_frame().to_dict("records")
    basis = found.plan.source_of(row).confidence(8).basis
    return row["step_time_s"], row["step_time_low_s"], row["step_time_high_s"], basis


def test_fine_tuning_is_a_first_run_until_somebody_says_it_is_tuned() -> None:
    unsaid, first, tuned = (
        _step(training_objective="sft", tuned=tuned) for tuned in (None, False, True)
    )
    assert unsaid[:3] == first[:3]
    time, low, high, plain = tuned
    assert unsaid[:3] == pytest.approx((2 * time, low, 5 * high))
    assert unsaid[3] == f"{plain}, first run (--tuned otherwise)"
    usual, first = (_step(tuned=tuned) for tuned in (None, False))
    assert first[:3] == pytest.approx((2 * usual[0], usual[1], 5 * usual[2]))
    assert "first" not in usual[3]
    # Of other frameworks people's own runs were published: nothing to add.
    own = [_step(training_objective="sft", framework="hf-trainer", tuned=t) for t in (None, True)]
    assert own[0] == own[1]


def test_experts_without_a_run_like_it_may_be_as_slow_as_first_runs() -> None:
    """Qwen3-30B-A3B on 8 B200: 150 TFLOP/s of 2,250; yanring/Megatron-MoE-ModelZoo issue 7."""
    asked = {
        "model": "qwen3-30b-a3b",
        "gpu": "b200",
        "num_gpus": 8,
        "framework": "megatron-lm",
        "sequence_length": 4096,
        "global_batch_size": 64,
        "settings": {"micro_batch_size": 1, "expert_parallel": 8, "recompute": "none"},
    }
    rows = {}
    for tuned in (None, True):
        (rows[tuned],) = planner.estimate(**asked, tuned=tuned).to_frame().to_dict("records")  # type: ignore[arg-type]
    row = rows[None]
    measured = row["step_time_s"] * row["model_flops_utilization"] / (150 / 2250)
    assert row["step_time_s"] == rows[True]["step_time_s"]
    assert rows[True]["step_time_high_s"] < measured < row["step_time_high_s"]
    dense = [_step(gpu="gb200", tuned=tuned) for tuned in (None, True)]
    assert dense[0] == dense[1]


def test_published_first_runs_lie_in_their_interval() -> None:
    """Qwen3-30B-A3B on 32 H200, 512 samples of up to 4,096 tokens: 13 s; NeMo-RL issue 966."""
    asked = {
        "model": "qwen3-30b-a3b",
        "gpu": "h200",
        "num_gpus": 32,
        "framework": "megatron-bridge",
        "sequence_length": 4096,
        "global_batch_size": 512,
        "training_objective": "sft",
        "settings": {"micro_batch_size": 8, "expert_parallel": 8, "recompute": "full"},
    }
    ends = {}
    for tuned in (None, True):
        (row,) = planner.estimate(**asked, tuned=tuned).to_frame().to_dict("records")  # type: ignore[arg-type]
        ends[tuned] = row["step_time_low_s"], row["step_time_high_s"]
    assert ends[None][0] < 13 < ends[None][1]
    # A first run is slower than what was measured of tuned ones, whose errors are narrow.
    assert ends[True][1] < 13 < 2 * ends[True][1]
    assert ends[None][1] == pytest.approx(5 * ends[True][1])
