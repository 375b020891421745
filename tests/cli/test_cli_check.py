"""``planner check``: a guard before a command, in one line, with an exit code."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from rows import each

import planner as package
from planner.__main__ import run
from planner.errors import InfeasibleError, LaunchError

SERVE = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2"
LARGE = "vllm serve meta-llama/Llama-3.1-70B-Instruct"
TRAIN = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096
    --num-attention-heads 32 --ffn-hidden-size 11008 --swiglu --seq-length 4096
    --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 128
    --tensor-model-parallel-size 2 --use-distributed-optimizer --bf16 --vocab-size 32000"""


@pytest.fixture
def check(planner, tmp_path, monkeypatch):
    """Run a check of a command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda command, *options: planner("check", *options, "--", *shlex.split(command))


def test_a_server_that_fits_is_one_line(check):
    done = check(SERVE, "--gpu", "h100")
    assert (done.exit_code, done.err) == (0, "")
    (line,) = done.out.splitlines()
    assert re.match(
        r"Fits: peak [\d.]+ of 79.1 GiB \(> 99 % likely\); 1,024 tokens in, 1,024 out, "
        r"concurrency \d+ each: TTFT \d+ ms \(", line
    )  # fmt: skip
    assert "tok/s/GPU" in line
    assert "90 % intervals; " in line
    assert line.endswith("(2 x h100-sxm-80gb)")


def test_a_training_that_fits_is_one_line(check):
    done = check(TRAIN, "--gpu", "h100")
    assert done.exit_code == 0, done.err
    (line,) = done.out.splitlines()
    assert line.startswith("Fits: peak ")
    assert "; batch 128 x 4,096 tokens: step time " in line


def test_a_command_that_cannot_fit_is_one_line_and_an_exit_code(check):
    done = check(LARGE, "--gpu", "l4")
    assert (done.exit_code, done.out) == (InfeasibleError.exit_code, "")
    (line,) = done.err.splitlines()
    assert line.startswith("Does not fit: ")
    assert line.endswith("(1 x l4-24gb)")


def test_the_gpu_that_planner_assumes_is_named_as_such(check):
    assert "h100-sxm-80gb, assumed: set --gpu)" in check(SERVE).out


@each(
    ("command", "unread"),
    [
        (f"{SERVE} --max-tool-turns 4", "--max-tool-turns"),
        (f"{LARGE} --max-tool-turns 4", "--max-tool-turns"),
        ("trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options a.yaml", "a.yaml (not found)"),
    ],
)
def test_an_incomplete_reading_says_so_first(check, command, unread):
    done = check(command, "--gpu", "l4")

    line = done.out or done.err
    assert line.startswith(f"Incomplete reading, {unread} may change this. ")


@pytest.mark.slow
@each(
    "line",
    [
        SERVE,
        f"env A=1 nohup {SERVE}",
        "bash run.sh 2",
        "./run.sh 2",
        "sh -c './run.sh 2'",
        "bash outer.sh",
        "srun -N 1 bash run.sh 2",
        "docker compose -f compose.yaml up",
        "kubectl apply -f pod.yaml",
    ],
)
def test_scripts_and_documents_of_a_command_are_read(planner, line, tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    folder.joinpath("run.sh").write_text(SERVE.replace("size 2", "size $1"))
    folder.joinpath("outer.sh").write_text("cd . && bash run.sh 2\n")
    arguments = SERVE.removeprefix("vllm serve ")
    service = {"image": "vllm/vllm-openai", "command": f"--model {arguments}"}
    folder.joinpath("compose.yaml").write_text(json.dumps({"services": {"a": service}}))
    container = {"name": "a", "image": "vllm/vllm-openai", "args": ["--model", *arguments.split()]}
    pod = {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [container]}}
    folder.joinpath("pod.yaml").write_text(json.dumps(pod))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = planner("check", "--gpu", "h100", "--", *shlex.split(line))
    assert done.exit_code == 0, done.err
    assert done.out.endswith("(2 x h100-sxm-80gb)\n")


def test_variables_of_the_shell_reach_its_scripts(check, tmp_path, monkeypatch):
    (tmp_path / "run.sh").write_text(SERVE.replace("size 2", "size ${TP:-1}"))
    assert "(1 x h100" in check("bash run.sh", "--gpu", "h100").out
    monkeypatch.setenv("TP", "4")
    assert "(4 x h100" in check("bash run.sh", "--gpu", "h100").out


@pytest.mark.slow
def test_options_behind_the_dashes_are_those_of_the_command(check, tmp_path, capsys):
    """None is taken for one of planner, or for a word of its help."""
    (tmp_path / "run.sh").write_text(f"{SERVE}\n")
    for words in (
        "--help",
        "-h search",
        "--debug",
        "--tensor-parallel 4",
        "--set tp=4",
        "--gpu l4",
    ):
        done = check(f"bash run.sh {words}", "--gpu", "h100")
        assert done.out.endswith("(2 x h100-sxm-80gb)\n"), words
    assert run(["check", "--gpu", "h100", "--", *shlex.split(SERVE), "--debug"]) == 0
    assert run(["check", "--", "ls", "--debug"]) == LaunchError.exit_code
    assert "Traceback" not in capsys.readouterr().err
    assert run(["--debug", "check", "--", "ls"]) == LaunchError.exit_code
    assert "Traceback" in capsys.readouterr().err


def test_what_nothing_reads_is_no_verdict(check):
    done = check("make all")
    assert (done.exit_code, done.out) == (LaunchError.exit_code, "")
    assert "starts nothing that is supported: it runs make" in done.err
    assert "it runs train.sh (not found)." in check("bash train.sh").err


def test_what_the_command_lacks_is_set_before_the_dashes(check):
    done = check("torchrun --nproc_per_node 8 -m axolotl.cli.train none.yaml", "--gpu", "h100")
    assert done.exit_code == LaunchError.exit_code
    assert "--from" not in done.err
    expected = (
        "does not specify the model (--model); none.yaml (not found) may. Set it before --.\n"
    )
    assert done.err.endswith(expected)
    set_too = check("torchrun --nproc_per_node 8 -m axolotl.cli.train none.yaml",
                    "--gpu", "h100", "--model", "llama-2-7b", "--set", "zero=3")  # fmt: skip
    assert set_too.exit_code == 0, set_too.err


def test_the_verdict_is_that_of_the_file(check, planner, tmp_path):
    """The line of a command is the estimate of a script with it."""
    (tmp_path / "run.sh").write_text(f"{TRAIN}\n".replace("\n ", " \\\n"))
    assert check("bash run.sh", "--gpu", "h100", "--json", "check.json").exit_code == 0
    planner("estimate", "--from", "run.sh", "--gpu", "h100", "--json", "file.json")
    checked, of_file = (
        json.loads((tmp_path / name).read_text()) for name in ("check.json", "file.json")
    )
    assert checked["rows"] == of_file["rows"]


def test_python_has_it():
    answer = package.check(shlex.split(LARGE), gpu="l4")
    assert answer.rejected_by == "out_of_memory"
    with pytest.raises(LaunchError, match="starts nothing that is supported"):
        package.check("ls -la")
