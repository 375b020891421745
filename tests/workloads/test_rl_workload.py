"""Reinforcement learning from the command line and from Python, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import planner
from planner.__main__ import run
from planner.configurations.possible_parts import split_mesh
from planner.errors import SearchSpaceError, SpecError
from planner.question.terms import terms_of
from planner.show.presenters.plots.charts import part_bars
from planner.specs.catalogue import Catalogue
from planner.ui.pages.result_tables import breakdowns
from planner.workloads.assumptions import PlanNotes
from planner.workloads.make_plan import make_plan
from planner.workloads.rl.results import RlRuns, layout, plan_words, splits
from planner.workloads.rl.space import make_rl_question
from planner.workloads.rl.workload import RL

ASKED = {
    "workload": "rl",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "num_gpus": 16,
    "output_tokens": 1000,
    "output_cap": 4096,
    "input_tokens": 128,
}
SMALL = {
    "tensor_parallel": [1, 2],
    "pipeline_parallel": [1, 2],
    "recompute": ["none", "full"],
    "rollout_tensor_parallel": [1, 2],
}


def words(command, *more):
    plain = ("--workload", "rl", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "16")
    return (command, *plain, "--output-tokens", "1000", "--output-cap", "4096", *more)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The plan that a search of what takes turns recommends, and its rows."""
    folder = tmp_path_factory.mktemp("searched")
    plan, rows = folder / "plan.toml", folder / "found.json"
    asked = words("search", "--set", "placement=colocated", "--save-plan", plan, "--json", rows)
    assert run([*map(str, asked), "--quiet"]) == 0
    return plan, rows


def test_every_objective_and_limit_is_an_attribute():
    for name in terms_of("rl", "objective", "limit"):
        assert hasattr(RlRuns, name), name


def test_the_search_finds_the_best_of_all():
    found = planner.search(**ASKED, settings=SMALL, objectives=("step_time",))
    seen = []
    planner.search(
        **ASKED,
        settings=SMALL,
        objectives=("step_time",),
        sink=lambda table: seen.append(pd.DataFrame(table)),
    )
    rows = pd.concat(seen)
    assert found.table["step_time_s"][0] == pytest.approx(rows["step_time_s"].min())
    assert {*rows["placement"]} == {"colocated", "async"}
    apart = rows[rows["placement"] != "colocated"]
    assert (apart["train_gpus"] + apart["rollout_gpus"] == 16).all()


def test_a_mesh_is_judged_as_its_rows_are():
    (source,) = make_plan(planner.Request(**ASKED, settings=SMALL)).problem.sources
    (part, _), *_ = split_mesh(source.mesh.table(), None, 2**20)
    whole, rows = source.judged(part), np.arange(0, part.size, 37)
    alone = source.judged(part.rows(rows))
    for name in ("step_time", "peak_memory", "cost"):
        expected = whole.at(whole.value(name), rows)
        feasible = whole.at(np.broadcast_to(whole.rejected_by, whole.shape), rows) == 0
        assert np.ravel(alone.value(name) + np.zeros(alone.shape))[feasible] == pytest.approx(
            expected[feasible]
        )


def test_optuna_finds_about_the_same():
    whole = planner.search(**ASKED, settings=SMALL, objectives=("step_time",))
    sampled = planner.search(
        **ASKED, settings=SMALL, objectives=("step_time",), driver="optuna", trials=100
    )
    best, other = (one.table["step_time_s"][0] for one in (whole, sampled))
    assert other <= 1.2 * best


def test_a_plan_is_estimated_again(planner, tmp_path):
    plan, again = tmp_path / "plan.toml", tmp_path / "again.json"
    ran = planner(*words("search", "--save-plan", plan))
    assert ran.exit_code == 0, ran.err
    assert "RECOMMENDED  " in ran.out
    whole = planner("estimate", "--plan", plan, "--json", again, "--full")
    assert whole.exit_code == 0, whole.err
    assert "is the bottleneck by" in whole.out
    (row,) = json.loads(again.read_text())["rows"]
    assert row["step_time_s"] > 0
    assert row["bottleneck"] in ("trainer", "rollout")


def test_a_colocated_plan_runs_on_other_gpus(planner, searched):
    plan, _ = searched
    ran = planner("estimate", "--plan", plan, "--gpus", "32")
    assert ran.exit_code == 0, ran.err


@pytest.mark.slow
def test_steps_are_sized_by_a_deadline(planner):
    ran = planner(
        "size", "--workload", "rl", "--model", "llama-3.1-8b", "--gpu", "h100",
        "--output-tokens", "1000", "--output-cap", "4096", "--steps", "500", "--deadline", "1d",
        "--full",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.err
    told = " ".join(ran.out.split())
    assert "of 24.0 h at 90 %" in told, ran.out
    assert "no published runs of this kind" not in told


def test_cost_and_calendar_time_are_as_sure_as_the_step():
    row = planner.estimate(**ASKED, settings={"recompute": "full"}).to_frame().iloc[0]
    step = [row[f"step_time{end}_s"] for end in ("_low", "", "_high")]
    calendar = [row[f"calendar_time{end}_days"] for end in ("_low", "", "_high")]
    assert calendar == pytest.approx([calendar[1] * one / step[1] for one in step], rel=0.1)
    assert row["cost_low_usd"] < row["cost_usd"] * step[0] / step[1]
    assert row["cost_high_usd"] > row["cost_usd"] * step[2] / step[1]


@pytest.mark.slow
def test_a_plan_is_explained_against_another_length(planner):
    against = ("--set", "recompute=full", "--against", "output_tokens=2000")
    ran = planner(*words("explain", *against))
    assert ran.exit_code == 0, ran.err
    assert "output tokens" in ran.out


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--set", "staleness=2"), "staleness 2 of colocated; nearest: staleness=0"),
        (("--framework", "prime-rl", "--set", "placement=one_step_off"), "nearest: staleness=1"),
        (("--set", "partial_rollout=true"), "can in async; nearest: partial_rollout=false"),
        (("--set", "placement=async", "--set", "partial_rollout=true"), "nearest: staleness=1"),
        (("--set", "placement=async", "--set", "train_gpus=20"), "nearest: train_gpus=15"),
        (("--set", "train_gpus=8"), "nearest: train_gpus=16"),
        (("--set", "placement=async", "--set", "train_gpus=5"), "nearest: train_gpus=4"),
        (("--gpus", "100"), "nearest: prompts_per_step=75"),
        (("--set", "placement=async", "--set", "train_gpus=12", "--prompts", "6", "--set",
          "pp=2", "--global-batch-size", "32"), "nearest: global_batch_size=24"),
        (("--set", "rollout_gpu_memory=0.05"), "nearest: rollout_gpu_memory=0.2"),
        (("--set", "rollout_ep=2"), "of the engine, expert_parallel"),
        (("--set", "tp=3"), "tensor x context x pipeline parallel must divide"),
        (("--set", "micro_batch_size=2"), "give --micro-batch-tokens"),
        (("--micro-batch-tokens", "1000"), "--micro-batch-tokens 5120 or more"),
        (("--output-cap", "500"), "--output-cap of 1,000 or more"),
        (("--global-batch-size", "500"), "nearest: global_batch_size=512"),
        (("--set", "placement=async", "--set", "train_gpus=4", "--set",
          "rollout_tensor_parallel=8"), "nearest: rollout_tensor_parallel=6"),
        (("--framework", "trl", "--set", "placement=async"), "TRL has colocated, separate"),
        (("--framework", "megatron-lm"), "generates no answers"),
        (("--engine", "tensorrt-llm"), "it has vllm and sglang"),
        (("--model", "bge-m3"), "BGE-M3 generates no answers"),
        (("--algorithm", "reinforce"), "Known: grpo, dapo, rloo, ppo"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_said_with_the_nearest(planner, monkeypatch, more, told):
    # What else helps takes longer to find out, and is told below.
    monkeypatch.setattr("planner.show.presenters.infeasible.suggest_feasible", lambda *asked: [])
    ran = planner(*words("estimate", *more))
    assert ran.exit_code != 0
    assert told in " ".join(ran.err.split()), ran.err


def test_what_helps_is_told(planner):
    ran = planner(*words("estimate", "--set", "staleness=2"))
    assert "Try --set placement=async or `planner search`" in ran.err


@pytest.mark.parametrize(
    ("settings", "framework", "short", "long"),
    [
        ({}, "nemo-rl", "colocated 16: dp / 16 x tp1", "colocated 16: dp / 16 x tp1"),
        ({"placement": "async", "staleness": 2, "partial_rollout": True}, "nemo-rl",
         "async(2 partial) 8+8: dp / 8 x tp1",
         "async 8+8: dp / 8 x tp1, staleness 2, partial rollouts"),
        ({"placement": "one_step_off", "staleness": 1}, "verl",
         "one_step_off 8+8: dp / 8 x tp1", "one_step_off 8+8: dp / 8 x tp1"),
    ],
)  # fmt: skip
def test_a_layout_says_its_staleness_once(settings, framework, short, long):
    found = planner.estimate(**ASKED, framework=framework, settings=settings)
    row = {name: values[0] for name, values in found.table().items()}
    assert layout(row) == short
    assert plan_words(row) == long


@pytest.mark.slow
def test_the_longest_answer_that_fits_is_told():
    settings = {"recompute": "full"}
    found = planner.max_length(**ASKED, settings=settings)
    assert (found.name, found.current) == ("output_cap", 4096)
    for cap, fits in ((found.largest, True), (found.largest + 1, False)):
        again = planner.estimate(**{**ASKED, "output_cap": cap}, settings=settings)
        assert (again.rejected_by == "") is fits
    budget = planner.max_length(**ASKED, settings=settings, micro_batch_tokens=8192)
    assert budget.largest == 8192 - 128
    assert budget.ends_at == "micro_batch_tokens"


def test_micro_batches_are_no_number_of_sequences():
    with pytest.raises(SearchSpaceError, match="run planner max-length"):
        planner.max_batch(**ASKED, settings={"recompute": "full"})


def test_a_host_that_is_full_is_a_rule():
    found = planner.search(**{**ASKED, "node_host_memory": "100GiB"}, settings=SMALL)
    assert found.rejected_by["out_of_host_memory"] > 0


def test_algorithms_have_their_models():
    def work(**more):
        (source,) = make_plan(planner.Request(**ASKED, **more)).problem.sources
        return source.inputs.workload

    assert work().reference_model
    assert not work(algorithm="dapo").reference_model
    assert work(algorithm="ppo").critic
    with pytest.raises(SearchSpaceError, match="is unknown"):
        work(algorithm="none")


@pytest.mark.slow
def test_an_explanation_tells_the_phases_and_what_they_are_made_of(planner, searched, tmp_path):
    told = tmp_path / "told.json"
    ran = planner("explain", "--plan", searched[0], "--json", told, "--full")
    assert ran.exit_code == 0, ran.err
    assert "1 node fewer: 8 GPUs: step time" in ran.out
    row = json.loads(told.read_text())["row"]
    update = f"update {row['update_memory_gib']:.1f}"
    assert update in ran.out.partition("Memory of the fullest GPU")[2]
    steps = {step["step"]: step for step in json.loads(told.read_text())["steps"]}
    assert all("other" not in step["bounds_s"] for step in steps.values())
    phases = {part["operator"]: part for part in steps["step"]["operators"]}
    assert phases["generate"]["bound"] == "memory"
    assert phases["update"]["bound"] == "compute"
    decode, generate = steps["decode"], phases["generate"]
    assert generate["bounds_s"]["memory"] / generate["time_s"] == pytest.approx(
        decode["bounds_s"]["memory"] / decode["time_s"]
    )
    for told in ("generate", "Time of a training step", "Time of a decode step", "What if"):
        assert told in ran.out, told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("placement=async", "train_gpus=4", "staleness=1"),
         "8:8 is the fastest split in whole nodes, its step"),
        (("placement=async", "train_gpus=8", "staleness=1"), "no other split in whole nodes"),
        (("placement=separate", "train_gpus=8"), "take turns, each idle while the other works"),
        (("placement=async", "train_gpus=8"), "async with staleness 1 takes"),
    ],
)  # fmt: skip
def test_the_split_and_what_takes_turns_are_told(planner, more, told):
    sets = [each for one in (*more, "recompute=full") for each in ("--set", one)]
    ran = planner(*words("estimate", *sets), "--full")
    assert ran.exit_code == 0, ran.err
    assert told in " ".join(ran.out.split()), ran.out


def test_the_split_of_one_node_is_of_its_gpus(planner):
    sets = ("placement=async", "train_gpus=1", "staleness=1", "zero=0", "recompute=full")
    pairs = [each for one in sets for each in ("--set", one)]
    ran = planner(*words("estimate", "--gpus", "8", "--model", "qwen3-1.7b", *pairs), "--full")
    assert ran.exit_code == 0, ran.err
    assert "is the fastest split, its step" in " ".join(ran.out.split()), ran.out


@pytest.mark.parametrize(
    ("count", "node", "expected"),
    [
        (32, 8, [8, 16, 24]),
        (8, 8, [1, 2, 3, 4, 5, 6, 7]),
        (4, 8, [1, 2, 3]),
        (1, 8, []),
        (72, 72, [9, 18, 27, 36, 45, 54, 63]),
        (2048, 8, [*range(16, 2048, 16)]),
    ],
)
def test_splits_are_whole_nodes_or_eighths_of_one(count, node, expected):
    """At most 128 of them: of 256 nodes, two at a time."""
    assert splits(count, node) == expected


def test_the_fastest_split_is_that_of_estimates():
    def runs(train_gpus):
        settings = {"placement": "async", "staleness": 1, "recompute": "full"}
        asked = {**ASKED, "num_gpus": 64, "space": "rl_single"}
        settings["train_gpus"] = train_gpus
        return planner.estimate(**asked, settings=settings).candidates

    trains, seconds = runs(32).fastest_split()
    times = {gpus: float(runs(gpus).step_time[0]) for gpus in range(8, 64, 8)}
    assert seconds == pytest.approx(min(times.values()))
    assert times[trains] == pytest.approx(seconds)
    assert seconds < times[32]


def test_memory_is_told_by_phase_of_either_side(planner, tmp_path):
    found = tmp_path / "found.json"
    settings = ("--set", "placement=async", "--set", "recompute=full", "--json", found)
    ran = planner(*words("estimate", *settings), "--full")
    assert ran.exit_code == 0, ran.err
    assert "rollout generate" in ran.out
    assert "trainer update" in ran.out
    (row,) = json.loads(found.read_text())["rows"]
    phases = [row[f"{name}_memory_gib"] for name in ("generate", "wake_up", "update")]
    assert row["peak_memory_gib"] == pytest.approx(max(phases))
    assert phases[1] == 0


def test_a_search_keeps_the_staleness_of_the_plan_it_begins_with(planner, tmp_path):
    plan = tmp_path / "plan.toml"
    ran = planner(*words("search", "--framework", "verl", "--set", "staleness=0",
                         "--save-plan", plan))  # fmt: skip
    assert ran.exit_code == 0, ran.err
    kept = planner("search", "--from", plan, "--csv", "-")
    assert kept.exit_code == 0, kept.err
    assert "Not changed, since it affects learning: staleness 0, partial_rollout no" in kept.err
    assert ",async," not in kept.out
    assert "Not changed" not in ran.out
    freed = planner("search", "--from", plan, "--set", "staleness=0,1", "--csv", "-")
    assert "Not changed" in freed.err
    assert "staleness 0" not in freed.err


@pytest.mark.slow
def test_a_page_shows_a_search(planner, searched, tmp_path):
    page = tmp_path / "page.html"
    assert planner("report", searched[1], "--output", page).exit_code == 0
    assert "colocated" in page.read_text(encoding="utf-8")


def test_a_page_shows_the_phases_that_a_step_waits_for(planner, tmp_path):
    found = tmp_path / "found.json"
    ran = planner(*words("search", "--set", "placement=async", "--json", found))
    assert ran.exit_code == 0, ran.err
    rows = json.loads(found.read_text())["rows"]
    assert all(row["hidden_phases"] for row in rows)
    bars, table, memory = breakdowns([str(number) for number in range(len(rows))], rows)
    assert max(memory.parts["memory"]) >= rows[0]["peak_memory_gib"] - 0.01
    assert memory.labels[:2] == ["0, generate", "0, update"]
    for number, row in enumerate(rows):
        assert sum(part[number] for part in bars.parts.values()) == pytest.approx(
            row["step_time_s"]
        )
    assert len(table.rows) == len(bars.parts) + 1


@pytest.mark.parametrize(
    ("settings", "phases"),
    [
        ({}, ["generate", "wake up", "update"]),
        ({"placement": "async", "train_gpus": 8, "staleness": 1}, ["generate", "update"]),
    ],
)
def test_bars_of_memory_are_of_each_phase(settings, phases):
    found = planner.estimate(**ASKED, settings={"recompute": "full", **settings})
    runs = found.candidates
    memory = {
        bar.title.removeprefix("Memory of the fullest GPU, "): bar
        for bar in part_bars(found.plan, runs)
        if bar.unit == "GiB"
    }
    assert [*memory] == phases
    assert max(bar.total for bar in memory.values()) == pytest.approx(
        float(runs.peak_memory[0]) / 2**30
    )


def test_both_lanes_are_drawn(planner, tmp_path):
    picture = tmp_path / "step.svg"
    more = ("--set", "placement=async", "--set", "recompute=full", "--timeline", picture)
    ran = planner(*words("estimate", *more))
    assert ran.exit_code == 0, ran.err
    assert "rollout, 8 GPUs" in picture.read_text(encoding="utf-8")


LORA = {"adapter": "lora", "lora_rank": 32, "lora_targets": "all_linear"}


def test_adapters_are_kept_by_a_plan_and_told(planner, tmp_path):
    plan, told = tmp_path / "plan.toml", tmp_path / "told.json"
    lora = ("--adapter", "lora", "--lora-rank", "32", "--lora-targets", "all_linear")
    ran = planner(*words("search", "--framework", "verl", *lora, "--save-plan", plan))
    assert ran.exit_code == 0, ran.err
    assert "the engine gets the adapters only" in " ".join(ran.out.split())
    assert 'adapter_sync = "adapter"' in plan.read_text()
    again = planner("estimate", "--plan", plan, "--json", told)
    assert again.exit_code == 0, again.err
    assert json.loads(told.read_text())["rows"][0]["adapter"] == "lora"


def test_adapters_are_compared_with_all_weights():
    found = planner.search(**{**ASKED, **LORA, "adapter": "none,lora"}, settings=SMALL)
    assert {*found.table["adapter"]} <= {"none", "lora"}
    settings = {"recompute": "full", "tensor_parallel": 2}
    adapted, whole = (
        planner.estimate(**ASKED, **more, settings=settings).to_frame() for more in (LORA, {})
    )
    assert adapted["update_memory_gib"][0] < whole["update_memory_gib"][0]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"adapter": "lora", "framework": "slime"}, "slime trains no adapters"),
        ({"adapter": "qlora", "framework": "verl"}, "verl trains lora on generated answers"),
        ({"adapter": "prompt"}, "not prompt"),
        ({"adapter_sync": "merged"}, "give --adapter lora"),
        ({"adapter": "lora", "adapter_sync": "all"}, "Known: adapter, merged"),
        ({"lora_rank": 8}, "lora_rank needs an adapter"),
        (
            {"algorithm": "ppo", "framework": "trl"},
            "TRL trains no critic, which ppo needs here",
        ),
        ({"critic": True, "framework": "prime-rl"}, "prime-rl trains no critic"),
    ],
)
def test_what_a_framework_cannot_train_is_refused(more, told):
    with pytest.raises((SearchSpaceError, SpecError), match=told):
        planner.estimate(**ASKED, **more)


def test_frameworks_without_adapters_or_a_critic_are_no_choice():
    catalogue = Catalogue()
    frameworks = [catalogue.load_framework(name).spec for name in ("verl", "trl", "slime", "fsdp")]
    for more, suited in (
        ({}, ["verl", "TRL", "slime"]),
        ({"adapter": "lora"}, ["verl", "TRL"]),
        ({"adapter": "qlora"}, ["TRL"]),
        ({"algorithm": "ppo"}, ["verl", "slime"]),
        ({"algorithm": "ppo", "critic": False}, ["verl", "TRL", "slime"]),
        ({"adapter": "lora", "critic": True}, ["verl"]),
    ):
        request = planner.Request(**ASKED, **more)
        question = make_rl_question(request, catalogue, PlanNotes(catalogue=catalogue))
        assert [each.name for each in frameworks if RL.suits(question, each)] == suited


@pytest.mark.parametrize(
    ("framework", "told", "places"),
    [("verl", None, 256), ("slime", None, 512), ("verl", 300, 300), ("trl", None, 1024)],
)
def test_an_engine_has_the_places_that_its_framework_gives_it(framework, told, places):
    """Else its own, 1,024 of vLLM; 4,096 answers wait for the one engine."""
    asked = {**ASKED, "prompts_per_step": 512, "samples_per_prompt": 8, "num_gpus": 8}
    settings = {"rollout_tensor_parallel": 8, "rollout_gpu_memory": 0.7, "zero_stage": 3}
    settings = settings if framework != "slime" else {**settings, "zero_stage": 1}
    found = planner.estimate(**asked, framework=framework, max_num_seqs=told, settings=settings)
    assert found.candidates.step.rollout.places.ravel()[0] == places


def test_adapters_are_not_written(planner, tmp_path):
    ran = planner(*words("launch", "verl", "--framework", "verl", "--adapter", "lora",
                         "--output", tmp_path / "made"))  # fmt: skip
    assert ran.exit_code != 0
    assert "adapter lora is not written" in " ".join(ran.err.split())


def test_columns_of_the_question_have_the_order_of_the_table() -> None:
    """A set in between gave each process its own order."""
    source = planner.estimate(**ASKED).candidates.source
    shared = [name for name in source.question_columns if hasattr(source.inputs.workload, name)]
    table = [name for name in terms_of("rl", "question") if name in shared]
    assert len(table) > 5
    assert [name for name in shared if name in table] == table


@pytest.mark.slow
def test_a_step_fits_as_likely_as_its_trainer_in_the_room_that_the_engine_leaves() -> None:
    """A larger engine and longer micro-batches leave less; another place leaves all."""

    def chance(**settings: object) -> float:
        asked = {**ASKED, "framework": "verl", "settings": {"zero_stage": 3, **settings}}
        return planner.estimate(**asked).table()["fit_probability"].item()

    colocated = {"placement": "colocated", "offload_train": False}
    small, large = (
        chance(**colocated, rollout_gpu_memory=share, rollout_tensor_parallel=2)
        for share in (0.5, 0.75)
    )
    assert 0 <= large < small <= 1
    separate = {"placement": "separate", "train_gpus": 8, "rollout_gpu_memory": 0.9}
    assert chance(**separate) > 0.9


TWO_TYPES = {**ASKED, "rollout_gpu": "a100", "price": "h100=4,a100=1", "max_steps": 10}


def test_two_types_of_gpus_are_searched_priced_and_estimated_again(tmp_path, capsys):
    """Hourly costs add up by side; engines are never colocated with a trainer of another type."""
    found = planner.search(**TWO_TYPES, settings=SMALL, objectives=("cost",))
    row = {name: values[0] for name, values in found.table.items()}
    assert row["placement"] != "colocated"
    assert (row["gpu"], row["rollout_gpu"]) == ("h100-sxm-80gb", "a100-sxm-80gb")
    hourly = 4 * row["train_gpus"] + row["rollout_gpus"]
    assert row["cost_usd"] == pytest.approx(hourly * row["calendar_time_days"] * 24)
    plan = tmp_path / "plan.toml"
    asked = words(
        "search", "--rollout-gpu", "a100", "--price", "h100=4,a100=1", "--save-plan", plan
    )
    assert run([*map(str, asked), "--quiet"]) == 0
    capsys.readouterr()
    assert run(["estimate", "--plan", str(plan), "--full"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "per GPU-hour of a100-sxm-80gb" in told
    refused = planner.estimate(**TWO_TYPES, settings={"placement": "colocated"})
    assert refused.rejected_by == "gpu_types"


def test_several_rollout_gpus_are_compared():
    found = planner.search(**{**TWO_TYPES, "rollout_gpu": "a100,h100"}, settings=SMALL)
    assert {*found.to_frame()["rollout_gpu"]} <= {"a100-sxm-80gb", "h100-sxm-80gb"}
    assert len(found.problem.sources) == 2
