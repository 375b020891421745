"""``planner validate --log``: a log beside its plan, and the row that calibration takes."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rows import each

import planner
from planner.__main__ import run
from planner.optimize.source import first_row
from planner.validation.accuracy import joined, predict
from planner.validation.run_tables import read_runs
from planner.workloads.build_request import make_request
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan

LOGS = Path(__file__).parent / "printed"
TRAINED: dict[str, Any] = {
    "model": "llama-2-13b",
    "num_gpus": 64,
    "gpu": "h100-sxm-80gb",
    "framework": "megatron-lm",
    "sequence_length": 4096,
    "settings": {
        "tensor_parallel": 4,
        "global_batch_size": 512,
        "micro_batch_size": 2,
        "zero_stage": 1,
        "sequence_parallel": True,
        "recompute": "none",
    },
}
SERVED: dict[str, Any] = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "num_gpus": 1,
    "gpu": "h100-sxm-80gb",
    "engine": "vllm",
    "input_tokens": 1000,
    "output_tokens": 200,
    "settings": {"concurrency": 64},
}
ROLLED: dict[str, Any] = {
    "workload": "rl",
    "model": "qwen2.5-7b",
    "num_gpus": 8,
    "gpu": "h100-sxm-80gb",
    "framework": "verl",
    "prompts_per_step": 128,
    "samples_per_prompt": 8,
    "input_tokens": 131,
    "output_tokens": 1024,
    "settings": {"zero_stage": 3, "recompute": "full", "rollout_tensor_parallel": 2},
}
Validate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Validate:
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["validate", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


def made(path: Path, asked: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """A plan file, and the row of its configuration."""
    request = {**asked, "settings": {**asked["settings"], **settings}}
    plan = make_single_plan(make_request(request))
    row = first_row(evaluate(plan).candidates.columns())
    path.write_text(SavedPlan.of(plan, row).to_toml())
    return dict(row)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    made(tmp_path / "plan.toml", TRAINED)
    return tmp_path / "plan.toml"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    made(tmp_path / "served.toml", SERVED)
    return tmp_path / "served.toml"


def megatron_log(path: Path, seconds: float, batch: int, memory_mib: float | None = None) -> None:
    """A log of twenty steps, the first two slow."""
    lines = [
        f" iteration {step:8d}/      20 | consumed samples: {batch * step:12d} | elapsed time per "
        f"iteration (ms): {1e3 * seconds * (4 if step < 3 else 1):.1f} | learning rate: 3E-05 | "
        f"global batch size: {batch:5d} | lm loss: 9.0E+00 |"
        for step in range(1, 21)
    ]
    if memory_mib:
        lines.append(f"[Rank 0] (after 2 iterations) memory (MB) | max allocated: {memory_mib:.2f}")
    path.write_text("\n".join(lines) + "\n")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_log_of_training_beside_its_plan(validate: Validate, trained: Path) -> None:
    code, out, err = validate("--log", LOGS / "megatron.log", "--plan", trained)
    assert (code, err) == (0, "")
    predicted = planner.estimate(**TRAINED).table()["step_time_s"][0]
    line = next(line for line in out.splitlines() if line.startswith("step time "))
    error = f"{100 * (predicted / 8.02 - 1):+.1f}"
    assert line.split()[2:8] == ["8.02", "s", f"{predicted:.2f}", "s", error, "%"]
    assert "peak memory, allocated" in out
    assert "slower than 1.5 medians: step 11 1.6 times after an evaluation" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("seconds", [1.0, 1.15, 3.0])
def test_whether_a_measurement_is_in_the_interval_is_told(
    validate: Validate, tmp_path: Path, seconds: float
) -> None:
    row = made(tmp_path / "plan.toml", TRAINED)
    megatron_log(tmp_path / "run.log", row["step_time_s"] * seconds, 512)
    _, out, _ = validate("--log", tmp_path / "run.log", "--plan", tmp_path / "plan.toml")
    line = next(line for line in out.splitlines() if line.startswith("step time "))
    assert line.endswith("no" if seconds == 3.0 else "yes")
    assert f"{100 * (1 / seconds - 1):+.1f} %" in line.replace("-0.0", "+0.0")


def test_memory_is_compared_with_what_its_kind_sees(validate: Validate, tmp_path: Path) -> None:
    row = made(tmp_path / "plan.toml", TRAINED)
    outside = ("reserved", "communication_buffers", "fragmentation")
    seen = row["peak_memory_gib"] - sum(row[f"memory_{part}_gib"] for part in outside)
    megatron_log(tmp_path / "run.log", row["step_time_s"], 512, seen * 1024)
    _, out, _ = validate("--log", tmp_path / "run.log", "--plan", tmp_path / "plan.toml")
    line = next(line for line in out.splitlines() if line.startswith("peak memory, allocated"))
    assert "+0.0 %" in line.replace("-0.0", "+0.0")


def test_predict_launch_measure_calibrate_is_a_loop(
    validate: Validate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machines a quarter slower than predicted: what is calibrated predicts them nearer."""
    layouts = (
        {"tensor_parallel": 4},
        {"tensor_parallel": 2, "micro_batch_size": 1},
        {"tensor_parallel": 8, "micro_batch_size": 4},
    )
    table, errors = tmp_path / "runs.csv", []
    for number, layout in enumerate(layouts):
        plan, log = tmp_path / f"{number}.toml", tmp_path / f"{number}.log"
        row = made(plan, TRAINED, **layout)
        megatron_log(log, 1.25 * row["step_time_s"], 512)
        code, _, err = validate("--log", log, "--plan", plan, "--output", table, "--quiet")
        assert (code, err) == (0, "")
    assert len(rows(table)) == 3
    profile = tmp_path / "mine.toml"
    told = "--parameter=execution.elementwise_passes"
    assert run(["calibrate", str(table), "--output", str(profile), told, "--quiet"]) == 0
    capsys.readouterr()
    for layout in layouts:
        settings = {**TRAINED["settings"], **layout}
        fitted = planner.estimate(**{**TRAINED, "settings": settings, "framework": str(profile)})
        shipped = planner.estimate(**{**TRAINED, "settings": settings})
        measured = 1.25 * shipped.table()["step_time_s"][0]
        errors.append(abs(fitted.table()["step_time_s"][0] / measured - 1))
    assert max(errors) < 0.1  # of the shipped profile: 0.2


@pytest.mark.parametrize(
    ("asked", "log"),
    [(TRAINED, "megatron.log"), (SERVED, "vllm.json"), (ROLLED, "verl.log")],
)
def test_a_shared_row_is_read_predicted_and_anonymous(
    validate: Validate, tmp_path: Path, asked: dict[str, Any], log: str
) -> None:
    plan, own = tmp_path / "plan-of-alice.toml", tmp_path / "secret-host-log.txt"
    own.write_text((LOGS / log).read_text())
    made(plan, asked)
    shared, output = tmp_path / "shared.csv", tmp_path / "own.csv"
    told = ("--log", own, "--plan", plan, "--share", shared, "--output", output)
    code, out, err = validate(*told)
    assert (code, err) == (0, "")
    assert out.count("[ ]") == 6
    assert "planner validate" in out
    (row,), (mine,) = rows(shared), rows(output)
    assert row["id"].startswith("shared-")
    assert row["source"] == "shared run"
    for name in ("secret", "alice", str(tmp_path), "own measurement"):
        assert name not in shared.read_text(), name
    assert row["framework"] == mine["framework"].lower()
    texts = ("id", "source", "notes", "framework")
    assert {n: c for n, c in row.items() if c and n not in texts} == {
        n: c for n, c in mine.items() if c and n not in texts
    }
    validate(*told, "--quiet")
    assert rows(shared) == [row], "the same run has the same id"
    assert [run.cells["id"] for run in read_runs(shared).rows] == [row["id"]]
    predictions = [tmp_path / "predicted.csv", tmp_path / "own_predicted.csv"]
    for table, predicted in zip((shared, output), predictions, strict=True):
        code, _, err = validate(table, "--output", predicted, "--quiet")
        assert (code, err) == (0, "")
    (of_shared,), (of_own,) = map(rows, predictions)
    names = [name for name in of_shared if name.startswith("predicted_")]
    assert any(of_shared[name] for name in names)
    assert [of_shared[name] for name in names] == [of_own[name] for name in names]


def test_what_only_its_owner_has_is_not_shared(validate: Validate, tmp_path: Path) -> None:
    from planner.specs.catalogue import Catalogue

    specs = tmp_path / "specs" / "models"
    specs.mkdir(parents=True)
    text = Catalogue(None).find("models", "llama-2-13b").read_text()
    shared, plan = tmp_path / "shared.csv", tmp_path / "plan.toml"
    for name in ("secret-13b", "llama-2-13b"):  # also under the name of a shipped one
        (specs / f"{name}.toml").write_text(re.sub(r"(?ms)^aliases = \[.*?\]\n", "", text))
        made(plan, {**TRAINED, "model": name, "specs": specs.parent})
        told = ("--log", LOGS / "megatron.log", "--plan", plan, "--share", shared)
        code, _, err = validate(*told, "--specs", specs.parent)
        assert code == 5
        assert f"The model {name} is yours" in err
        assert not shared.exists()
        (specs / f"{name}.toml").unlink()


def test_sharing_needs_a_log_and_a_file_of_its_own(validate: Validate, trained: Path) -> None:
    code, _, err = validate("--share", trained.parent / "a.csv")
    assert code == 2
    assert "--share belong to --log" in err
    told = ("--log", LOGS / "megatron.log", "--plan", trained)
    same = trained.parent / "a.csv"
    code, _, err = validate(*told, "--share", same, "--output", same)
    assert code == 2
    assert "two files" in err


def test_the_row_is_predicted_like_the_plan(validate: Validate, trained: Path) -> None:
    table, predicted = trained.parent / "runs.csv", trained.parent / "predicted.csv"
    validate("--log", LOGS / "megatron.log", "--plan", trained, "--output", table)
    assert validate(table, "--output", predicted)[0] == 0
    (row,) = rows(predicted)
    assert float(row["measured_step_time_s"]) == pytest.approx(8.02)
    assert (row["memory_kind"], row["measured_peak_memory_gib"]) == ("allocated", "42")
    expected = planner.estimate(**TRAINED).table()["step_time_s"][0]
    assert float(row["predicted_step_time_s"]) == pytest.approx(expected, rel=1e-6)
    assert row["assumed"] == "year: features as of now"


def test_rows_are_added_to_what_is_there_once(validate: Validate, trained: Path) -> None:
    table = trained.parent / "runs.csv"
    assert validate("--template", "training", "--output", table)[0] == 0
    before = table.read_text().splitlines()
    arguments = ("--log", LOGS / "megatron.log", "--plan", trained, "--output", table)
    assert "has the run:" in validate(*arguments)[1]
    after = table.read_text().splitlines()
    assert len(after) == len(before) + 1
    assert [line.split(",")[:3] for line in after[:4]] == [line.split(",")[:3] for line in before]
    assert "had the run already" in validate(*arguments)[1]
    assert table.read_text().splitlines() == after


def test_a_table_with_fewer_columns_gets_the_missing_ones(
    validate: Validate, trained: Path
) -> None:
    table = trained.parent / "runs.csv"
    table.write_text(
        "framework,model,sequence_length,gpu,num_gpus,mine,measured_step_time_s\n"
        "NeMo,llama-2-7b,4096,h100-sxm-80gb,8,x,2.5\n"
    )
    validate("--log", LOGS / "megatron.log", "--plan", trained, "--output", table)
    first, second = rows(table)
    assert (first["mine"], first["measured_step_time_s"], first["tensor_parallel"]) == (
        "x",
        "2.5",
        "",
    )
    assert (second["mine"], second["tensor_parallel"]) == ("", "4")


def test_a_table_of_another_kind_is_left_as_it_is(
    validate: Validate, trained: Path, served: Path
) -> None:
    table = trained.parent / "runs.csv"
    validate("--log", LOGS / "vllm.json", "--plan", served, "--output", table)
    before = table.read_text()
    code, _, err = validate("--log", LOGS / "megatron.log", "--plan", trained, "--output", table)
    assert code == 5
    assert "is a table of inference runs" in err
    assert table.read_text() == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deepspeed.log", ("num gpus: 16 in the log, 64 in the plan", "global batch size: 256")),
        ("torchtitan.log", ("num gpus: 8 in the log", "sequence length: 8192 in the log, 4096")),
        ("trainer.log", ("global batch size: 64 in the log, 512 in the plan",)),
        ("nemo.log", ("global batch size: 128 in the log, 512 in the plan",)),
    ],
)
def test_a_log_of_another_run_is_refused_with_the_numbers(
    validate: Validate, trained: Path, name: str, words: tuple[str, ...]
) -> None:
    table = trained.parent / "runs.csv"
    code, _, err = validate("--log", LOGS / name, "--plan", trained, "--output", table)
    assert code == 6
    assert all(word in err for word in words)
    assert not table.exists()


def test_tokens_of_a_gpu_and_a_step_are_those_of_the_plan(
    validate: Validate, tmp_path: Path, trained: Path
) -> None:
    assert validate("--log", LOGS / "maxtext.log", "--plan", trained)[0] == 0
    made(tmp_path / "other.toml", TRAINED, global_batch_size=1024)
    code, _, err = validate("--log", LOGS / "maxtext.log", "--plan", tmp_path / "other.toml")
    assert code == 6
    assert "tokens per gpu and step: 32768 in the log, 65536 in the plan" in err


def test_a_benchmark_of_serving_beside_its_plan(validate: Validate, served: Path) -> None:
    table = served.parent / "runs.csv"
    code, out, _ = validate("--log", LOGS / "vllm.json", "--plan", served, "--output", table)
    assert code == 0
    for label in ("time to first token ", "  p99", "request latency ", "output tokens/s"):
        assert any(line.startswith(label) for line in out.splitlines())
    assert "requests came at 4 per second" in out
    (row,) = rows(table)
    assert (row["mode"], row["request_rate"], row["concurrency"]) == ("online", "4", "")
    assert (row["input_tokens"], row["weight_precision"]) == ("1000", "bf16")
    assert float(row["measured_time_to_first_token_s"]) == pytest.approx(0.08)
    assert validate(table)[0] == 0


def test_another_load_than_the_plans_is_predicted_at_that_of_the_log(
    validate: Validate, served: Path
) -> None:
    _, out, _ = validate("--log", LOGS / "sglang.jsonl", "--plan", served)
    assert "the log has 32 requests at once, the plan 64" in " ".join(out.split())
    (line,) = (line for line in out.splitlines() if line.startswith("request latency "))
    lower = planner.estimate(**{**SERVED, "settings": {"concurrency": 32}})
    predicted = float(line.split()[4])
    assert predicted == pytest.approx(lower.table()["request_latency_s"][0], rel=0.05)


def test_other_lengths_than_the_plans_are_refused(validate: Validate, tmp_path: Path) -> None:
    made(tmp_path / "plan.toml", {**SERVED, "output_tokens": 400})
    code, _, err = validate("--log", LOGS / "vllm.json", "--plan", tmp_path / "plan.toml")
    assert code == 6
    assert "output tokens: 200 in the log, 400 in the plan" in err


@each(
    ("file", "keys", "name", "says"),
    [
        ("vllm.json", ["model_id"], "Qwen/Qwen3-8B", True),
        ("vllm.json", ["model_id"], "./my-llama", False),
        ("vllm.json", ["model_id"], "served", False),
        ("trtllm_bench.json", ["engine", "model"], "Qwen/Qwen3-8B", True),
        ("trtllm_bench.json", ["engine", "model"], "meta-llama/Llama-3.1-8B", False),
    ],
)
def test_a_log_that_names_another_model_is_refused(
    validate: Validate,
    served: Path,
    tmp_path: Path,
    file: str,
    keys: list[str],
    name: str,
    says: bool,
) -> None:
    report = json.loads((LOGS / file).read_text())
    table = report
    for key in keys[:-1]:
        table = table[key]
    table[keys[-1]] = name
    log = tmp_path / "bench.json"
    log.write_text(json.dumps(report))
    _, _, err = validate("--log", log, "--plan", served)
    assert (f"model: {name} in the log, Llama 3.1 8B in the plan" in err) == says


def test_what_no_column_tells_is_no_row(validate: Validate, tmp_path: Path) -> None:
    settings = {"concurrency": 64, "kv_offload": 0.5}
    made(tmp_path / "plan.toml", {**SERVED, "settings": settings})
    code, out, err = validate("--log", LOGS / "vllm.json", "--plan", tmp_path / "plan.toml",
                              "--output", tmp_path / "runs.csv")  # fmt: skip
    assert code == 5
    assert "which share of weights and cache is offloaded" in " ".join(err.split())
    assert "time to first token" in out
    assert not (tmp_path / "runs.csv").exists()


def test_what_requests_have_in_common_stands_in_the_row(validate: Validate, tmp_path: Path) -> None:
    told = {"shared_prefix_tokens": 500, "draft_tokens": 3, "acceptance_rate": 0.6,
            "draft_method": "eagle3", "lora_rank": 16, "max_loras": 4}  # fmt: skip
    settings = {"concurrency": 64, "gpu_memory_utilization": 0.8}
    made(tmp_path / "plan.toml", {**SERVED, **told, "settings": settings})
    table = tmp_path / "runs.csv"
    code, _, _ = validate("--log", LOGS / "vllm.json", "--plan", tmp_path / "plan.toml",
                          "--output", table)  # fmt: skip
    (row,) = rows(table)
    del told["draft_method"]
    assert code == 0
    assert {name: float(row[name]) for name in told} == told
    assert float(row["gpu_memory_utilization"]) == 0.8


def bench(path: Path, **changes: Any) -> Path:
    found = json.loads((LOGS / "vllm.json").read_text())
    number = int(found["completed"])
    totals = {"total_input_tokens": 1000 * number, "total_output_tokens": 200 * number}
    load = {"max_concurrency": 64, "request_rate": "inf"}
    path.write_text(json.dumps({**found, **load, **totals, **changes}))
    return path


def test_requests_of_one_length_stay_together(validate: Validate, served: Path) -> None:
    folder, found = served.parent, {}
    number = int(json.loads((LOGS / "vllm.json").read_text())["completed"])
    lists = {
        "sums": {},
        "each": {"input_lens": [1000] * number, "output_lens": [200] * number},
        "drawn": {
            "input_lens": [500, 1500] * (number // 2),
            "output_lens": [100, 300] * (number // 2),
        },
        "odd": {"total_input_tokens": 1000 * number + 1},
    }
    for name, changes in lists.items():
        log, table = bench(folder / f"{name}.json", **changes), folder / f"{name}.csv"
        assert validate("--log", log, "--plan", served, "--output", table)[0] == 0
        (found[name],) = rows(table)
    assert [found[name]["equal_lengths"] for name in lists] == ["1", "1", "", ""]
    assert found["drawn"]["input_variation"] == "0.5"
    assert found["each"]["input_variation"] == ""
    # Answers add up to the same whole number for each request, prompts do not.
    assert float(found["odd"]["input_variation"]) == 1
    assert found["odd"]["output_variation"] == ""


def first_token(out: str) -> tuple[float, float]:
    """Measured and predicted."""
    (line,) = (line for line in out.splitlines() if line.startswith("time to first token"))
    words = line.split()
    factors = {"ms": 1.0, "s": 1000.0}
    return float(words[4]) * factors[words[5]], float(words[6]) * factors[words[7]]


def test_their_first_tokens_wait_for_part_of_a_wave(validate: Validate, served: Path) -> None:
    folder = served.parent
    _, alike, _ = validate("--log", bench(folder / "a.json"), "--plan", served)
    odd = bench(folder / "b.json", input_lens=[500, 1500], output_lens=[100, 300])
    _, drawn, _ = validate("--log", odd, "--plan", served)
    assert first_token(alike)[1] > 2 * first_token(drawn)[1]


def test_a_plan_to_train_and_a_log_of_serving_do_not_meet(
    validate: Validate, trained: Path
) -> None:
    code, _, err = validate("--log", LOGS / "vllm.json", "--plan", trained)
    assert code == 6
    assert "The log is from serving" in err


@pytest.mark.parametrize(("micro", "predicted"), [(2, "no"), (64, "yes")])
def test_a_run_that_ran_out_of_memory_is_a_measurement(
    validate: Validate, tmp_path: Path, micro: int, predicted: str
) -> None:
    plan, log, table = tmp_path / "plan.toml", tmp_path / "run.log", tmp_path / "runs.csv"
    made(plan, TRAINED, micro_batch_size=micro, global_batch_size=1024)
    log.write_text(
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    code, out, _ = validate("--log", log, "--plan", plan, "--output", table)
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("ran out of memory"))
    assert line.split()[4:6] == ["yes", predicted]
    (row,) = rows(table)
    assert (row["measured_out_of_memory"], row["measured_step_time_s"]) == ("1", "")
    verdict = "1 of 1" if predicted == "no" else "0 of 1"
    assert f"ran out, said to fit {verdict}" in " ".join(validate(table)[1].split())


def test_the_folder_of_a_launch_has_its_plan(validate: Validate, trained: Path) -> None:
    assert trained.name == "plan.toml"
    assert validate("--log", LOGS / "megatron.log", "--plan", trained.parent)[0] == 0


def test_requests_that_all_come_at_once_have_no_predicted_percentiles(
    validate: Validate, served: Path, tmp_path: Path
) -> None:
    table = (LOGS / "vllm.log").read_text().replace("Maximum request concurrency", "Not read")
    (tmp_path / "all.log").write_text(table)
    _, out, _ = validate("--log", tmp_path / "all.log", "--plan", served)
    assert "all requests were sent at the start" in out
    (line,) = (line for line in out.splitlines() if line.startswith("  p99") and "900 ms" in line)
    assert line.split()[3] == "-"


def test_a_profile_that_a_row_cannot_name_is_told(validate: Validate, tmp_path: Path) -> None:
    made(tmp_path / "plan.toml", {**TRAINED, "framework": "hf-fsdp"},
         tensor_parallel=1, sequence_parallel=False, zero_stage=3)  # fmt: skip
    megatron_log(tmp_path / "run.log", 10.0, 512)
    _, out, _ = validate("--log", tmp_path / "run.log", "--plan", tmp_path / "plan.toml")
    assert "HF Trainer FSDP is the profile HF Trainer bf16" in " ".join(out.split())


def test_the_json_of_a_search_is_a_plan_too(validate: Validate, trained: Path) -> None:
    found = SavedPlan.read(trained).to_dict()
    path = trained.with_suffix(".json")
    path.write_text(json.dumps({"recommended": found}))
    assert validate("--log", LOGS / "megatron.log", "--plan", path)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--log", "x.log"), "needs --plan FILE"),
        (("--plan", "x.toml"), "belong to --log FILE"),
        (("--log-format", "megatron"), "belong to --log FILE"),
        (("runs.csv", "--log", "x.log", "--plan", "x.toml"), "leave out RUNS"),
        (("--log", "x.log", "--plan", "x.toml", "--output", "-"), "not to stdout"),
    ],
)
def test_options_that_do_not_belong_together(
    validate: Validate, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = validate(*arguments)
    assert code == 2
    assert words in err


def test_the_same_in_python(trained: Path) -> None:
    found = planner.validate_log(LOGS / "megatron.log", trained)
    step, rate, *memory = found.quantities
    expected = planner.estimate(**TRAINED).table()["step_time_s"][0]
    assert (step.name, step.measured) == ("step_time_s", pytest.approx(8.02))
    assert step.predicted is not None
    assert step.predicted.value == pytest.approx(expected)
    assert step.error == pytest.approx(expected / 8.02 - 1)
    assert rate.measured == pytest.approx(512 * 4096 / 64 / 8.02)
    assert [one.kind for one in memory] == ["allocated", "reserved"]
    assert found.cells["measured_step_time_s"] == "8.02"


def test_a_log_of_rollouts_beside_its_plan_by_phase(validate: Validate, tmp_path: Path) -> None:
    """Medians of steps 2 and 3; verl's generation has the switch in it, its transfer a line."""
    row = made(tmp_path / "plan.toml", ROLLED)
    arguments = ("--log", LOGS / "verl.log", "--plan", tmp_path / "plan.toml")
    code, out, err = validate(*arguments)
    assert (code, err) == (0, "")
    lines = {line[:18].strip(): line[18:].split() for line in out.splitlines()}
    predicted = {
        "step time": (103, row["step_time_s"]),
        "time generate": (51.0, row["time_generate_s"] + row["time_switch_s"]),
        "time reference": (8.25, row["time_reference_s"]),
        "time update": (30.5, row["time_update_s"]),
        "time sync": (2.1, row["time_sync_s"]),
    }
    for name, (measured, expected) in predicted.items():
        assert float(lines[name][0]) == pytest.approx(measured, rel=0.01), name
        seconds = float(lines[name][2]) * {"s": 1.0, "ms": 1e-3}[lines[name][3]]
        assert seconds == pytest.approx(expected, rel=0.01), name


def test_phases_that_a_log_has_together_are_compared_together(
    validate: Validate, tmp_path: Path
) -> None:
    """NeMo-RL has one line of all log-probabilities, and one of weights and GPUs handed over."""
    row = made(tmp_path / "plan.toml", ROLLED)
    arguments = ("--log", LOGS / "nemo_rl.log", "--plan", tmp_path / "plan.toml")
    code, out, err = validate(*arguments)
    assert (code, err) == (0, "")
    lines = {line[:15].strip(): line[15:].split() for line in out.splitlines()}
    predicted = {
        "time generate": (51.0, row["time_generate_s"]),
        "time logprobs": (18.75, row["time_old_logprob_s"] + row["time_reference_s"]),
        "time refit": (2.1, row["time_switch_s"] + row["time_sync_s"]),
    }
    for name, (measured, expected) in predicted.items():
        assert float(lines[name][0]) == pytest.approx(measured, rel=0.01), name
        assert float(lines[name][2]) == pytest.approx(expected, rel=0.01), name
    assert "generation holds" not in out


def test_a_step_of_trl_is_several_of_the_optimizer(validate: Validate, tmp_path: Path) -> None:
    """Of ten lines each two are a generation: the medians are those of 61 and 62 s."""
    made(tmp_path / "plan.toml", ROLLED, global_batch_size=512)
    log = LOGS / "trl_grpo.log"
    code, out, err = validate("--log", log, "--plan", tmp_path / "plan.toml")
    assert (code, err) == (0, "")
    step = next(line.split() for line in out.splitlines() if line.startswith("step time"))
    assert float(step[2]) == pytest.approx(62.0)
    short = tmp_path / "short.log"
    short.write_text(log.read_text().splitlines()[0] + "\n")
    code, _, err = validate("--log", short, "--plan", tmp_path / "plan.toml")
    assert code
    assert "one step of the plan has 2" in err


def test_the_row_of_a_log_of_rollouts_is_calibrated(validate: Validate, tmp_path: Path) -> None:
    """Its generation, which holds the switch, is left out; lengths are those of the log."""
    made(tmp_path / "plan.toml", ROLLED)
    table = tmp_path / "steps.csv"
    arguments = ("--plan", tmp_path / "plan.toml", "--output", table)
    code, _, err = validate("--log", LOGS / "verl.log", *arguments)
    assert (code, err) == (0, "")
    (run,) = read_runs(table).rows
    assert run.number("measured_step_time_s") == pytest.approx(102.8)
    assert run.number("measured_generate_s") is None
    assert run.number("measured_logprob_s") == pytest.approx(18.75)
    assert (run.count("prompts_per_step"), run.count("output_tokens")) == (128, 1024)
    (row,) = joined(read_runs(table), predict(read_runs(table)))
    assert row.prediction.values["step_time_s"] == pytest.approx(
        made(tmp_path / "again.toml", ROLLED)["step_time_s"], rel=0.02
    )


def test_a_log_of_rollouts_is_of_no_other_plan(
    validate: Validate, trained: Path, tmp_path: Path
) -> None:
    code, _, err = validate("--log", LOGS / "verl.log", "--plan", trained)
    assert code
    assert "is from reinforcement learning (verl)" in err
    made(tmp_path / "rl.toml", ROLLED)
    code, _, err = validate("--log", LOGS / "megatron.log", "--plan", tmp_path / "rl.toml")
    assert code
    assert "is from training (Megatron), the plan is for rl" in err
    made(tmp_path / "short.toml", {**ROLLED, "output_tokens": 400})
    code, _, err = validate("--log", LOGS / "verl.log", "--plan", tmp_path / "short.toml")
    assert code
    assert "output tokens: 1024 in the log, 400 in the plan" in err
