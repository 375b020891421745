"""Less evidence never makes an interval narrower, on any GPU of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest

import planner
from planner.confidence import intervals
from planner.confidence.error_classes import gpu_class
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    SOFTWARE_ON_GPU,
    TRAINING_TABLES,
    ErrorTables,
    Rule,
    basis_of,
    interval_of,
    num_published_runs,
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
from planner.specs.gpu import is_assumed
from planner.workloads.make_plan import make_plan

BASES = ("measured", "transferred", "roofline", "assumed")
KINDS = ("dense", "moe")
SIZES: dict[ErrorTables, tuple[tuple[str, ...], ...]] = {
    TRAINING_TABLES: tuple(
        product(("gpu", "node", "cluster", "large"), ("pretrain", "finetune"), KINDS)
    ),
    INFERENCE_TABLES: tuple(
        product(("online", "disagg", "static_batch", "continuous_max_throughput"), KINDS)
    ),
}
QUANTITIES = {
    TRAINING_TABLES: ("step_time", "peak_memory"),
    INFERENCE_TABLES: ("time_to_first_token", "time_per_output_token", "throughput", "peak_memory"),
}
QUESTIONS: list[tuple[ErrorTables, Rule]] = [
    *((TRAINING_TABLES, framework_rule(label)) for label in framework_labels()),
    *((INFERENCE_TABLES, engine_rule(label)) for label in engine_labels()),
]


@pytest.mark.few(5)
@pytest.mark.parametrize(("tables", "rule"), QUESTIONS, ids=lambda one: getattr(one, "label", ""))
def test_less_evidence_is_never_narrower(tables: ErrorTables, rule: Rule) -> None:
    catalogue = Catalogue()
    loaded = [catalogue.load_gpu(name) for name in catalogue.names("gpus")]
    classes = {
        (gpu_class(one.spec), is_assumed(one.provenance, "gemm.bf16.compute_fraction"))
        for one in loaded
    }
    for quantity, rest in product(QUANTITIES[tables], SIZES[tables]):
        widths: dict[str, list[float]] = {name: [] for name in BASES}
        for silicon, assumed in classes:
            keys = (rule.label, silicon, *rest)
            basis = basis_of(rule, silicon, rest[-1], tables, is_assumed=assumed)
            low, high = interval_of(quantity, keys, tables, basis, rule.profile)
            widths[basis].append(math.log(high / low) if low else math.inf)
        for nearer, farther in combinations(BASES, 2):
            if widths[nearer] and widths[farther]:
                assert min(widths[farther]) >= max(widths[nearer]), (quantity, rest)


@pytest.mark.parametrize(
    ("profile", "gpu", "label", "rested"),
    [
        ("vllm", "h100-sxm-80gb", "vLLM", "vllm"),
        ("vllm", "mi300x", "vLLM", "vllm"),
        ("vllm-rocm", "mi300x", "vLLM", "vllm-rocm"),
        ("vllm-0.17", "h100-sxm-80gb", "vLLM", "vllm"),
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
    assert found["tpu-v6e"][1] > 1.2 * found["a100-sxm-80gb"][1]


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
    calibrated="none",
    fits="none",
    widening="wider.csv",
    places="places.csv",
)
KNOWN = """\
quantity,framework,gpu_class,scale,task,kind,level,low,high,rows,basis
step_time,,,node,,,0.9,0.5,4.0,50,publishers
step_time,mine,,node,,,0.9,0.85,1.30,20,publishers
step_time,mine,hopper,node,,,0.9,0.90,1.20,10,publishers
step_time,mine,ampere,node,,,0.9,0.80,1.25,10,publishers
step_time,other,amd,node,,,0.9,0.70,2.00,10,publishers
"""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "known.csv").write_text(KNOWN, encoding="utf-8")
    (tmp_path / "wider.csv").write_text("quantity,basis,factor,rows\n", encoding="utf-8")
    monkeypatch.setattr(intervals, "read_table", lambda name: read_table(name, tmp_path))
    yield
    read_table.cache_clear()
    for cached in (interval_of, intervals._intervals, intervals._widening):
        cached.cache_clear()
    intervals._gpu_classes_of_basis.cache_clear()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("silicon", "basis", "ends"),
    [
        ("hopper", "measured", (0.90, 1.20)),
        # Its own class, and those that this software was measured on: ampere.
        ("hopper", "transferred", (0.80, 1.25)),
        # A class without runs of its own has those of the software on any.
        ("blackwell", "transferred", (0.80, 1.30)),
        # On amd only another software has runs: those of this one on any class count there.
        ("hopper", "roofline", (0.80, 1.30)),
    ],
)
def test_a_transferred_interval_holds_the_classes_the_software_was_measured_on(
    silicon: str, basis: str, ends: tuple[float, float]
) -> None:
    keys = ("mine", silicon, "node", "pretrain", "dense")
    assert interval_of("step_time", keys, TABLES, basis) == pytest.approx(ends)


@pytest.mark.usefixtures("known")
def test_software_without_a_run_on_a_gpu_has_the_errors_of_all_software(tmp_path: Path) -> None:
    wider = "quantity,basis,factor,rows\nstep_time,place,1.5,80\n"
    (tmp_path / "wider.csv").write_text(wider, encoding="utf-8")
    keys = ("mine", "hopper", "node", "pretrain", "dense")
    found = interval_of("step_time", keys, TABLES, "measured", unmeasured=(SOFTWARE_ON_GPU,))
    assert found == pytest.approx((0.5**1.5, 4.0**1.5))


def test_runs_count_for_a_software_by_its_name_or_as_its_own_profile() -> None:
    def runs(framework: str, gpu: str, task: str = "pretrain") -> int:
        return num_published_runs(framework_rule(framework), gpu, TRAINING_TABLES, task)

    # Primus is measured there, which is only the closest to Megatron-LM's profile.
    assert runs("Primus", "mi325x") > 0
    assert runs("Megatron-LM", "mi325x") == 0
    # Runs of llm-foundry have FSDP's own profile.
    assert runs("FSDP", "a100-sxm-40gb") == runs("llm-foundry", "a100-sxm-40gb") > 0
    assert runs("llm-foundry", "a100-sxm-40gb", "finetune") == 0
    # Static batches on H100 were measured with TensorRT-LLM 0.x alone, which is the same engine.
    rule, h100 = engine_rule("tensorrt-llm", "1.2"), "h100-sxm-80gb"
    assert num_published_runs(rule, h100, INFERENCE_TABLES, "static_batch") > 100
    assert num_published_runs(rule, "mi300x-192gb", INFERENCE_TABLES, "online") == 0


def _width(gpu: str, framework: str, num_gpus: int) -> tuple[float, str, int]:
    asked = Request(
        model="llama-3.1-70b", gpu=gpu, num_gpus=num_gpus, total_tokens=1e12, framework=framework
    )
    sure = make_plan(asked).problem.sources[0].confidence(num_gpus)
    assert sure is not None
    low, high = sure.factors["step_time"]
    return math.log(high / low), sure.basis.partition(",")[0], sure.runs


@pytest.mark.parametrize("num_gpus", [8, 256, 1024])
def test_intervals_grow_as_evidence_shrinks(num_gpus: int) -> None:
    """Of the same framework, GPU by GPU, and where nobody knows what kernels reach."""
    known: list[float] = []
    for framework in ("nemo", "megatron-bridge", "megatron-lm", "torchtitan", "fsdp"):
        mine = [_width(gpu, framework, num_gpus) for gpu in ("h100", "a100", "b200", "gh200")]
        mine += [_width("mi325x", framework, num_gpus)]
        proven = [width for width, _, runs in mine if runs]
        others = [width for width, _, runs in mine if not runs]
        assert others
        assert proven
        assert max(proven) < min(others)
        known += others
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
    # 32 H200 have no published run of Megatron-Bridge: what is tuned there is less sure, too.
    assert ends[True][1] < 13 * 1.1
    assert ends[None][1] == pytest.approx(5 * ends[True][1])
