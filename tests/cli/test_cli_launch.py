"""``planner launch``, ``--launch`` and ``--from``: files out, and users' files in."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

DENSE = ("--model", "llama-2-13b", "--gpu", "h100", "--gpus", "16")
SERVED = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2")


def arguments(path: Path) -> list[str]:
    """The words of the array of a script that planner wrote, without comments."""
    lines = path.read_text().partition("ARGUMENTS=(\n")[2].partition("\n)")[0].splitlines()
    return [word for line in lines for word in shlex.split(line, comments=True)]


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_a_plan_becomes_files_that_say_it(planner, tmp_path) -> None:
    saved, folder = tmp_path / "p.toml", tmp_path / "run"
    planner("search", *DENSE, "--framework", "megatron-lm", "--save-plan", saved, "--quiet")
    done = planner("launch", "megatron-lm", "--plan", saved, "--output", folder)
    assert done.exit_code == 0
    from planner.workloads.saved_plan import SavedPlan

    plan, words = SavedPlan.read(saved).parameters, arguments(folder / "train.sh")
    assert value(words, "--tensor-model-parallel-size") == str(plan["tensor_parallel"])
    assert value(words, "--pipeline-model-parallel-size") == str(plan["pipeline_parallel"])
    assert value(words, "--micro-batch-size") == str(plan["micro_batch_size"])
    assert ("--use-distributed-optimizer" in words) == (plan["zero_stage"] > 0)
    assert SavedPlan.read(folder / "plan.toml").parameters == plan
    for name in json.loads((folder / "launch.json").read_text())["files"]:
        assert name in done.out


def test_a_search_writes_what_it_recommends_for_the_target(planner, tmp_path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    done = planner("search", *DENSE, "--launch", "megatron-lm", "--output", one)
    assert done.exit_code == 0
    assert "Megatron-LM" in done.out
    planner("launch", "megatron-lm", *DENSE, "--output", other, "--quiet")
    assert (one / "train.sh").read_text() == (other / "train.sh").read_text()


def test_a_target_knows_its_workload(planner, tmp_path) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2")
    done = planner("launch", "vllm", *asked, "--output", tmp_path / "one", "--quiet")
    assert done.exit_code == 0
    done = planner("search", *asked, "--launch", "vllm", "--output", tmp_path / "two", "--quiet")
    assert done.exit_code == 0
    plans = [(tmp_path / name / "plan.toml").read_text() for name in ("one", "two")]
    assert plans[0] == plans[1]
    assert 'workload = "serve"' in plans[0]


def test_limits_of_a_launch_count(planner, tmp_path) -> None:
    """No GPU reads 16 GB of weights in a microsecond."""
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--mode", "aggregated")
    launched = ("launch", "vllm", *asked, "--output", tmp_path / "one", "--quiet")
    assert planner(*launched).exit_code == 0
    done = planner(*launched, "--ttft", "1us")
    assert (done.exit_code, "miss time_to_first_token" in done.err) == (4, True)


def test_a_row_of_a_front_is_launched(planner, tmp_path) -> None:
    csv, result, folder = tmp_path / "f.csv", tmp_path / "f.json", tmp_path / "run"
    asked = (*DENSE, "--framework", "megatron-lm", "--sequence-length", "2048")
    planner("search", *asked, "--csv", csv, "--json", result, "--quiet")
    rows = json.loads(result.read_text())["rows"]
    assert len(rows) > 2
    for source in (csv, result):
        done = planner("launch", "megatron-lm", "--from", source, "--row", "2", "--output", folder)
        assert done.exit_code == 0
        words = arguments(folder / "train.sh")
        assert value(words, "--micro-batch-size") == str(rows[1]["micro_batch_size"])
        assert value(words, "--seq-length") == "2048"
    for row in ("0", str(len(rows) + 1)):
        refused = planner("launch", "megatron-lm", "--from", csv, "--row", row, "--output", folder)
        assert refused.exit_code == 6
        assert f"rows 1 to {len(rows)}, not {row}" in refused.err
    csv.with_name("f.manifest.json").unlink()
    assert planner("estimate", "--from", csv, "--row", "2", "--quiet").exit_code == 0


def test_a_row_gives_its_own_estimate(planner, tmp_path) -> None:
    csv, result, again = tmp_path / "f.csv", tmp_path / "f.json", tmp_path / "again.json"
    asked = ("--model", "llama-2-7b", "--gpus", "4", "--adapter", "lora", "--lora-rank", "64")
    planner("search", *asked, "--csv", csv, "--json", result, "--quiet")
    planner("estimate", "--from", csv, "--row", "1", "--json", again, "--quiet")
    first = json.loads(result.read_text())["rows"][0]
    assert json.loads(again.read_text())["rows"][0]["step_time_s"] == first["step_time_s"]


def test_a_scenario_of_a_sweep_is_launched(planner, tmp_path) -> None:
    sweep, folder = tmp_path / "sweep", tmp_path / "run"
    asked = ("--model", "llama-2-7b", "--gpu", "h100", "--gpus", "8,16", "--framework")
    planner("sweep", *asked, "megatron-lm", "--tokens", "1B", "--output", sweep, "--quiet")
    done = planner("launch", "megatron-lm", "--from", sweep, "--row", "1", "--output", folder)
    assert done.exit_code == 0
    assert "--nnodes 2" in (folder / "train.sh").read_text()
    for row, words in (("7", "no scenario 7"), (None, "choose one of its scenarios")):
        chosen = () if row is None else ("--row", row)
        refused = planner("launch", "megatron-lm", "--from", sweep, *chosen, "--output", folder)
        assert refused.exit_code == 6
        assert words in refused.err


def test_what_the_user_changed_is_not_replaced(planner, tmp_path) -> None:
    folder = tmp_path / "run"
    asked = ("launch", "megatron-lm", *DENSE, "--output", folder)
    assert planner(*asked).exit_code == 0
    assert planner(*asked, "--set", "tp=2").exit_code == 0  # as planner wrote it: replaced
    mine = (folder / "train.sh").read_text() + "# mine\n"
    (folder / "train.sh").write_text(mine)
    refused = planner(*asked)
    assert refused.exit_code == 8
    assert "was changed since planner wrote it" in refused.err
    assert (folder / "train.sh").read_text() == mine


def test_files_of_an_earlier_launch_go(planner, tmp_path) -> None:
    folder = tmp_path / "run"
    planner("launch", "vllm", *SERVED, "--output", folder, "--quiet")
    before = {path.name for path in folder.iterdir()}
    planner("launch", "megatron-lm", *DENSE, "--output", folder, "--quiet")
    after = {path.name for path in folder.iterdir()}
    assert "train.sh" in after
    assert before - after  # the server's


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("launch", "megatronlm", *DENSE, "--output", "x"), 6, "Did you mean megatron-lm"),
        (
            ("launch", "vllm", *DENSE, "--workload", "train", "--output", "x"),
            6,
            "cannot start a plan to train",
        ),
        (("launch", "megatron-lm", *DENSE), 6, "--output"),
        (("launch", "megatron-lm", *DENSE, "--output", "x", "--wrapper", "slrum"), 6, "slurm"),
        (("launch", "megatron-lm", *DENSE, "--row", "1", "--output", "x"), 3, "--row needs --from"),
        (("launch", "--quiet", "--model", "llama-7b"), 6, "Name the target first"),
        (("search", *DENSE, "--output", "x"), 3, "--output needs --launch"),
        (
            ("launch", "megatron-lm", *DENSE, "--framework", "nemo", "--output", "x"),
            6,
            "The plan is for NeMo",
        ),
        (
            ("launch", "megatron-lm", *DENSE, "--set", "mbs=512", "--output", "x"),
            4,
            "",
        ),
    ],
)
def test_faults_are_told_before_anything_is_written(
    planner, tmp_path, monkeypatch, words, code, said
) -> None:
    monkeypatch.chdir(tmp_path)
    done = planner(*words)
    assert done.exit_code == code
    assert said in done.err
    assert not list(tmp_path.iterdir())


def test_names_of_specs_are_quoted(planner, tmp_path) -> None:
    """A model's name reaches comments and words of scripts; none of it is run."""
    marker = tmp_path / "ran"
    shipped = Path(__file__).parents[2] / "planner" / "model_specs" / "llama-2-7b.toml"
    evil = f"x$(touch {marker})`touch {marker}`'\"; touch {marker} #"
    text = shipped.read_text().splitlines()
    lines = [f"name = {json.dumps(evil)}" if line.startswith("name =") else line for line in text]
    model = tmp_path / "evil.toml"
    model.write_text("\n".join(lines))
    folder = tmp_path / "run"
    done = planner(
        "launch", "megatron-lm", "--model", model, "--gpu", "h100", "--gpus", "8",
        "--output", folder, "--wrapper", "slurm",
    )  # fmt: skip
    assert done.exit_code == 0
    for path in folder.iterdir():
        if path.suffix in (".sh", ".sbatch"):
            subprocess.run(["bash", "-n", str(path)], check=True)
            subprocess.run(["bash", str(path)], check=False, capture_output=True, timeout=20)
    assert not marker.exists()


def test_files_of_planner_know_their_gpu(planner, tmp_path) -> None:
    folder, copied = tmp_path / "run", tmp_path / "train.sh"
    planner("launch", "megatron-lm", *DENSE, "--output", folder, "--quiet")
    done = planner("estimate", "--from", folder / "train.sh", "--full")
    assert done.exit_code == 0
    assert "From plan.toml in the same folder: gpu h100" in " ".join(done.out.split())
    copied.write_text((folder / "train.sh").read_text())  # without the plan beside it
    alone = " ".join(planner("estimate", "--from", copied, "--full").out.split())
    assert "From plan.toml" not in alone
    assert "assumes gpu h100-sxm-80gb (h100-sxm-80gb is in its text or its path)" in alone


def test_files_of_planner_know_the_format_of_their_checkpoint(planner, tmp_path) -> None:
    """TensorRT-LLM takes it from the checkpoint: no option says it."""
    folder, one, other = tmp_path / "run", tmp_path / "one.json", tmp_path / "other.json"
    asked = ("--model", "llama-3.1-70b", "--gpu", "h100", "--gpus", "8", "--mode", "aggregated")
    planner("launch", "tensorrt-llm", *asked, "--precision", "fp8", "--output", folder, "--quiet")
    done = planner("estimate", "--from", folder / "serve.sh", "--json", one, "--quiet")
    assert done.exit_code == 0
    planner("estimate", "--plan", folder / "plan.toml", "--json", other, "--quiet")
    rows = [json.loads(path.read_text())["rows"][0] for path in (one, other)]
    assert rows[0]["quantization"] == rows[1]["quantization"] == "fp8"
    assert rows[0]["tensor_parallel"] == rows[1]["tensor_parallel"]


def test_a_file_of_one_engine_becomes_the_same_plan_in_another(planner, tmp_path):
    path, folder = tmp_path / "sglang.sh", tmp_path / "vllm"
    path.write_text(
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 "
        "--max-running-requests 64 --context-length 8192\n"
    )
    done = planner("launch", "vllm", "--from", path, "--gpu", "h100", "--output", folder)
    assert done.exit_code == 0
    assert "The same plan: as sglang" in done.out
    text = (folder / "serve.sh").read_text()
    for option in ("--tensor-parallel-size 2", "--max-num-seqs 64", "--max-model-len 8192"):
        assert option in text


def test_a_plan_that_fits_in_the_other_framework_alone_is_written(planner, tmp_path):
    file = "tests/launch/public/accelerate-context-parallel/config.yaml"
    asked = ("--from", file, "--model", "llama-3.1-8b", "--gpu", "h100")
    own = planner("estimate", *asked)
    assert own.exit_code == 4
    assert "Does not fit" in own.out
    done = planner("launch", "torchtitan", *asked, "--output", tmp_path / "titan")
    assert done.exit_code == 0
    assert (tmp_path / "titan" / "train.sh").exists()


def test_what_tunes_another_framework_goes_and_is_named(planner, tmp_path):
    config, script = tmp_path / "ds.json", tmp_path / "run.sh"
    config.write_text('{"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 5e8}}')
    script.write_text(
        "deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen3-8B --bf16 "
        "--deepspeed ds.json --per_device_train_batch_size 1 --gradient_checkpointing true\n"
    )
    asked = ("--from", script, "--gpu", "h100", "--output")
    done = planner("launch", "torchtitan", *asked, tmp_path / "titan")
    assert done.exit_code == 0
    text = " ".join(done.out.split())
    assert "The same plan without stage3 max live parameters: as DeepSpeed" in text
    # Megatron-FSDP shards weights there: no other stage is taken.
    bridged = planner("launch", "megatron-bridge", *asked, tmp_path / "bridge")
    assert "instead of 3" not in bridged.out
    plan = (tmp_path / "bridge" / "plan.toml").read_text()
    assert "zero_stage = 3" in plan


def test_what_the_other_framework_lacks_is_named(planner, tmp_path):
    """torchtitan shards gradients too (stage 2) where Megatron-LM shards the optimizer alone."""
    done = planner(
        "launch", "torchtitan", "--from", "docs/samples/pretrain.sh", "--gpu", "h100",
        "--output", tmp_path / "titan",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "The same plan but zero stage 2 instead of 1" in " ".join(done.out.split())
    assert "parallelism.tensor_parallel_degree 8" in (tmp_path / "titan" / "train.sh").read_text()
    same = planner(
        "launch", "megatron-lm", "--from", "docs/samples/pretrain.sh", "--gpu", "h100",
        "--output", tmp_path / "own",
    )  # fmt: skip
    assert "The same plan" not in same.out
