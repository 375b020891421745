from __future__ import annotations

import os
from pathlib import Path

import pytest
from rows import each

from planner import __main__ as entry

LLAMA = ("search", "--model", "llama-7b", "--gpus", "8", "--space", "small")

BAD_INPUT = {
    "unknown model": (("search", "--model", "lama-65b", "--gpus", "8"), 2, "mean llama-65b?"),
    "unknown GPU": ((*LLAMA, "--gpu", "h10"), 2, "Unknown GPU 'h10'"),
    "unknown cluster": ((*LLAMA, "--cluster", "dgx-h10"), 2, "Unknown cluster"),
    "unknown space": (("search", "--model", "llama-7b", "--gpus", "8", "--space", "x"), 3, "'x'"),
    "unknown framework": ((*LLAMA, "--framework", "x"), 2, "Unknown framework 'x'"),
    "unknown parameter": ((*LLAMA, "--set", "tensor_paralel=2"), 3, "tensor_parallel"),
    "unknown value": ((*LLAMA, "--set", "recompute=some"), 3, "none, selective, full"),
    "no value": ((*LLAMA, "--set", "tensor_parallel"), 3, "name=value"),
    "two in one": ((*LLAMA, "--set", "tp=2,pp=4"), 3, "give --set tp=2 --set pp=4"),
    "unknown objective": ((*LLAMA, "--objective", "speed"), 3, "Unknown objective 'speed'"),
    "unknown unit": ((*LLAMA, "--memory-headroom", "5 stone"), 3, "--memory-headroom 5 stone"),
    "no unit of a short time": (
        (*LLAMA, "--workload", "serve", "--tpot", "20"),
        3,
        "--tpot 20: needs a unit, as in 20ms or 20s",
    ),
    "a limit of one plan": (
        ("estimate", *LLAMA[1:5], "--step-time", "5s"),
        2,
        "A limit chooses among plans: `planner search` takes it",
    ),
    "no confidence": ((*LLAMA, "--confidence", "1.5"), 3, "or a percentage such as 90%"),
    "no such confidence": ((*LLAMA, "--confidence", "99%"), 3, "or 50% to 95%, not"),
    "no unit": ((*LLAMA, "--step-time", "5"), 3, "--step-time 5: needs a unit"),
    "tokens": ((*LLAMA, "--tokens", "many"), 3, "--tokens many"),
    "GPUs with a separator": (("search", "--model", "llama-7b", "--gpus", "2,048"), 3, "'048'"),
    "tokens without a unit": ((*LLAMA, "--tokens", "1.4"), 3, "1.4 tokens; give a unit"),
    "length of zero": (
        (*LLAMA, "--sequence-length", "0"),
        3,
        "a whole number of at least 1",
    ),
    "GPU of another cluster": (
        (*LLAMA, "--gpu", "a100", "--cluster", "gb200-nvl72"),
        2,
        "gb200-nvl72 has gb200-nvl72, not a100-sxm-80gb",
    ),
    "prefill GPU of another cluster": (
        (*LLAMA[:5], "--workload", "serve", "--cluster", "dgx-h100", "--prefill-gpu", "h200"),
        2,
        "dgx-h100 has h100-sxm-80gb, not h200",
    ),
    "rate above the peak": (
        (*LLAMA, "--gpu", "h100", "--flops-efficiency", "1.2 PFLOP/s", "--set", "precision=bf16"),
        3,
        "flops_efficiency in bf16 = 1.2 PFLOP/s is 1.213 of the peak",
    ),
    "no number of GPUs": (("search", "--model", "llama-7b", "--gpus", "0"), 3, "of at least 1"),
    "too many GPUs": (
        ("search", "--model", "llama-7b", "--gpus", "9" * 30),
        3,
        "at most 10,000,000",
    ),
    "negative price": ((*LLAMA, "--price", "-3"), 3, "USD per GPU-hour"),
    "negative tokens": ((*LLAMA, "--tokens", "-5B"), 2, "total_tokens"),
    "negative length": ((*LLAMA, "--sequence-length", "-1"), 3, "of at least 1, not '-1'"),
    "efficiency above 1": ((*LLAMA, "--flops-efficiency", "1.5"), 3, "flops_efficiency"),
    "unknown adapter": ((*LLAMA, "--adapter", "qlor"), 3, "mean qlora?"),
    "no rank": ((*LLAMA, "--adapter", "lora", "--lora-rank", "0"), 3, "from 1 to 100,000, not 0"),
    "unknown targets": (
        (*LLAMA, "--adapter", "lora", "--lora-targets", "all-linears"),
        3,
        "mean all_linear?",
    ),
    "rank without adapter": ((*LLAMA, "--lora-rank", "8"), 3, "lora_rank needs an adapter"),
    "no folder of specs": ((*LLAMA, "--specs", "/nowhere"), 2, "/nowhere: there is no such"),
    "all with optuna": (
        (*LLAMA, "--all", "--driver", "optuna", "--csv", "-"),
        3,
        "--driver exhaustive",
    ),
    "all without a file": ((*LLAMA, "--all"), 3, "--all needs --csv or --json."),
    "sampler without optuna": ((*LLAMA, "--sampler", "tpe"), 3, "--sampler needs --driver optuna."),
    "trials without optuna": ((*LLAMA, "--trials", "9"), 3, "--trials needs --driver optuna."),
    "seed without optuna": ((*LLAMA, "--seed", "9"), 3, "--seed needs --driver optuna."),
    "specs of sweep show": (
        ("sweep", "show", "x", "--specs", "y"),
        2,
        "--where compares the names that the sweep has.",
    ),
    "study file": ((*LLAMA, "--storage", "s.db"), 2, "planner 0.1.0 was the last version with it."),
    "rows of no table": ((*LLAMA, "--top", "3", "--quiet"), 3, "--top needs the report"),
    "all of no report": ((*LLAMA, "--full", "--quiet"), 3, "--full needs the report"),
    "acceptance without drafts": (
        (*LLAMA[:5], "--workload", "serve", "--acceptance-rate", "0.7"),
        3,
        "--acceptance-rate needs --draft-tokens.",
    ),
    "burst of a training": (("estimate", *LLAMA[1:5], "--burst", "9"), 3, "--workload serve"),
    "several configurations": (
        ("estimate", "--model", "llama-7b", "--gpus", "8,16"),
        3,
        "2 configurations",
    ),
    "folder of the output": ((*LLAMA, "--csv", "/nowhere/a.csv"), 8, "no folder /nowhere"),
    "output is a folder": ((*LLAMA, "--json", "/tmp"), 8, "is a folder"),
    "output without a name": ((*LLAMA, "--csv", "", "--json", "x"), 8, "is a folder"),
    "one file twice": ((*LLAMA, "--csv", "a", "--json", "a"), 8, "two different files"),
    "GPUs missing": (("search", "--model", "llama-7b"), 3, "--gpus"),
    "no option": (("search", "--gpus", "8"), 2, "--model"),
    "model without option": (("search", "llama-7b"), 2, "as in --model llama-65b."),
    "start of an option": ((*LLAMA, "--seq", "4096"), 2, "mean --sequence-length?"),
    "part of an option": (("size", *LLAMA[1:3], "--rate", "4"), 2, "mean --request-rate?"),
    "unknown kind": (("specs", "list", "gpu5"), 2, "gpus"),
    "unknown spec": (("specs", "show", "gpus", "h10"), 2, "Unknown GPU"),
}


@each(("arguments", "exit_code", "words"), BAD_INPUT.values())
def test_bad_input_gives_one_message_and_its_exit_code(planner, arguments, exit_code, words):
    ran = planner(*arguments)
    assert ran.exit_code == exit_code
    assert words in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("content", ["name = [", "[1, 2]", '{"hidden_size": ', "\x00\x01", "{}"])
@pytest.mark.parametrize("name", ["bad.toml", "bad.json"])
def test_a_malformed_model_file_is_named(planner, tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    ran = planner("search", "--model", path, "--gpus", "8")
    assert ran.exit_code == 2
    assert str(path) in ran.err


def test_a_full_disk_is_told(planner):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    ran = planner(*LLAMA, "--csv", "/dev/full", "--quiet")
    assert ran.exit_code == 8
    assert "/dev/full: cannot be written" in ran.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_protected_folder_is_told(planner, tmp_path):
    tmp_path.chmod(0o500)
    ran = planner(*LLAMA, "--csv", tmp_path / "a.csv")
    assert ran.exit_code == 8


def test_nothing_feasible_leaves_no_file_and_keeps_the_old_one(planner, tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    assert planner(*LLAMA, "--step-time", "1ms", "--json", path).exit_code == 4
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def fail_with(error):
    def invoke(arguments):
        raise error

    return invoke


@pytest.mark.parametrize(
    ("error", "exit_code", "words"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),
        (BrokenPipeError(), 141, ""),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError: oops"),
    ],
    ids=["Ctrl-C", "closed pipe", "a fault of ours"],
)
def test_other_ends(monkeypatch, capsys, error, exit_code, words):
    monkeypatch.setattr(entry, "_invoke", fail_with(error))
    assert entry.run(["search"]) == exit_code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err
    assert err.count("\n") <= 2


def test_debug_shows_the_traceback(capsys):
    assert entry.run(["search", "--model", "nothing", "--gpus", "8", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "SpecError" in err


def test_a_question_set_as_a_parameter_names_its_option(planner):
    ran = planner("search", "--model", "llama-7b", "--gpus", "8", "--set", "pipeline_layout=8,8")
    assert ran.exit_code == 3
    assert ran.err.strip().endswith("is not a parameter of a space: give --pipeline-layout.")
