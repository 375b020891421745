"""Batch scripts: what they ask of the scheduler and what their steps start."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from launched import TARGET, job_of, process, run, write

from planner.launch.target import NODE_RANK, CommandWords, LaunchDraft, ShellVariable
from planner.launch.wrappers.write_slurm import make_files, time_limit

GIVEN = {"SLURM_JOB_NODELIST": "nodes", "SLURM_CPUS_ON_NODE": "96"}


def started(folder: Path, draft: LaunchDraft, **environment: str) -> list[dict[str, object]]:
    files = make_files(TARGET, job_of(), draft)
    write(folder, files)
    given = {**GIVEN, "SLURM_SUBMIT_DIR": str(folder), **environment}
    said, ended = run(folder, files[0].name, ["torchrun", "train", "serve", "route"], given)
    assert ended.returncode == 0, ended.stderr
    return said


def directives(text: str) -> dict[str, str]:
    found = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.M)
    return dict(found)


def test_one_task_on_each_node(tmp_path: Path) -> None:
    data = ShellVariable(name="DATA_PATH", meaning="data")
    odd = ["it's", "$(touch hit)", "one\ntwo", 'a "b"']
    one = process("train.py", data, *odd, launcher="torchrun", num_nodes=2)
    said = started(tmp_path, LaunchDraft(processes=(one,)), DATA_PATH="a b")
    common = ["--master-addr", "node0", "--master-port", "29500", "train.py", "a b", *odd]
    said.sort(key=lambda each: each["words"][5])
    for rank, each in enumerate(said):
        ranks = ["--nnodes", "2", "--nproc-per-node", "8", "--node-rank", str(rank)]
        assert each["words"] == [*ranks, *common]
    assert len(said) == 2
    assert not (tmp_path / "hit").exists()
    asked = directives((tmp_path / "train.sbatch").read_text())
    assert asked["nodes"] == "2"
    assert asked["gpus-per-node"] == "8"
    assert {"exclusive", "requeue"} <= set(asked)


def test_the_limit_is_the_upper_end_of_the_prediction() -> None:
    text = make_files(TARGET, job_of(), LaunchDraft(processes=(process("train"),)))[0].text
    days, hours = re.fullmatch(r"(\d+)-(\d\d):00:00", directives(text)["time"]).groups()
    high = job_of().row["calendar_time_high_days"]
    assert 0 <= int(days) + int(hours) / 24 - high < 1 / 24
    assert "save a checkpoint every" in text


@pytest.mark.parametrize(
    ("days", "text"), [(0.001, "0-01:00:00"), (1, "1-00:00:00"), (2.05, "2-02:00:00")]
)
def test_limits_are_whole_hours(days: float, text: str) -> None:
    assert time_limit(days) == text


def test_a_part_of_a_node_is_not_the_whole() -> None:
    part = LaunchDraft(processes=(process("train", gpus_per_node=2),))
    text = make_files(TARGET, job_of(), part)[0].text
    asked = directives(text)
    assert asked["gpus-per-node"] == "2"
    assert "exclusive" not in asked
    assert "--cpus-per-gpu" in text


def test_pools_have_nodes_and_gpus_of_their_own(tmp_path: Path) -> None:
    urls = [ShellVariable(name=name, meaning="") for name in ("PREFILL_URL_1", "DECODE_URL_0")]
    port = ShellVariable(name="PORT", meaning="")
    follower = (CommandWords(words=("--headless",)),)
    draft = LaunchDraft(
        processes=(
            process("serve", "p", port, name="prefill", gpus_per_node=4, copies=2, port=8100),
            process("serve", "d", NODE_RANK, name="decode", num_nodes=2, copies=2, port=8200,
                    follower_arguments=follower),
            process("route", *urls, name="router", gpus_per_node=0, port=8000),
        )
    )  # fmt: skip
    said = started(tmp_path, draft, TOGETHER="7")
    found = sorted(
        (*each["words"], each["environment"].get("CUDA_VISIBLE_DEVICES")) for each in said
    )
    every = "0,1,2,3,4,5,6,7"
    assert found[:4] == [("d", "0", every)] * 2 + [("d", "1", "--headless", every)] * 2
    assert found[5:] == [("p", "8100", "0,1,2,3"), ("p", "8101", "4,5,6,7")]
    assert found[4][:2] == ("http://node0:8101", "http://node1:8200")
    masters = {e["environment"]["MASTER_ADDR"] for e in said if e["words"][0] == "d"}
    assert masters == {"node1", "node3"}
    steps = (tmp_path / "steps").read_text()
    assert "--nodelist=node1,node2" in steps
    assert "--nodelist=node3,node4" in steps
    assert directives((tmp_path / "launch.sbatch").read_text())["nodes"] == "5"


def test_copies_take_their_part_of_what_the_step_sees(tmp_path: Path) -> None:
    copies = process("serve", name="server", gpus_per_node=1, copies=4, port=8000)
    draft = LaunchDraft(processes=(copies,))
    said = started(tmp_path, draft, TOGETHER="4", STEP_GPUS="4,5,6,7")
    assert sorted(e["environment"]["CUDA_VISIBLE_DEVICES"] for e in said) == list("4567")


def test_a_benchmark_of_training_is_a_batch_job(tmp_path: Path) -> None:
    one = process("train.py", launcher="torchrun", num_nodes=2)
    draft = LaunchDraft(processes=(one,), benchmark=(replace(one, name="benchmark"),))
    first, second = make_files(TARGET, job_of(), draft)
    assert [first.start, second.start] == ["sbatch train.sbatch", "sbatch benchmark.sbatch"]
    asked = directives(second.text)
    assert (asked["nodes"], asked["gpus-per-node"], asked["time"]) == ("2", "8", "0-02:00:00")
    assert "requeue" not in asked
    assert "save a checkpoint every" not in second.text
    write(tmp_path, [second])
    given = {**GIVEN, "SLURM_SUBMIT_DIR": str(tmp_path)}
    said, ended = run(tmp_path, second.name, ["torchrun"], given)
    assert ended.returncode == 0, ended.stderr
    assert sorted(each["words"][5] for each in said) == ["0", "1"]


def test_ranks_of_mpi_are_tasks(tmp_path: Path) -> None:
    draft = LaunchDraft(processes=(process("train", launcher="mpirun", num_nodes=2),))
    said = started(tmp_path, draft)
    ranks = sorted(each["environment"]["NODE_RANK"] for each in said)
    assert ranks == ["0"] * 8 + ["1"] * 8
    assert "--mpi=pmix" in (tmp_path / "steps").read_text()


def test_defaults_reach_every_task(tmp_path: Path) -> None:
    folder = ShellVariable(name="FOLDER", meaning="", default="/a b")
    (said,) = started(tmp_path, LaunchDraft(processes=(process("train", folder),)))
    assert said["words"] == ["/a b"]


def test_a_task_knows_the_address_of_its_node(tmp_path: Path) -> None:
    own = ShellVariable(name="HOST_ADDRESS", meaning="")
    (said,) = started(tmp_path, LaunchDraft(processes=(process("train", own),)))
    name = subprocess.run(["hostname"], capture_output=True, text=True).stdout.strip()
    assert said["words"] == [name]
    assert "HOST_ADDRESS:" not in (tmp_path / "train.sbatch").read_text()


def test_it_is_not_run_without_the_scheduler(tmp_path: Path) -> None:
    files = make_files(TARGET, job_of(), LaunchDraft(processes=(process("train"),)))
    write(tmp_path, files)
    said, ended = run(tmp_path, "train.sbatch", ["train"])
    assert not said
    assert "not started by sbatch" in ended.stderr
