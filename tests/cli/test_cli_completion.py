"""What shells complete, asked as they ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from planner.cli import completion
from planner.question.terms import terms_of
from planner.specs.catalogue import names
from planner.workloads.serving.results import MODES

HEAVY = ("numpy", "pandas", "optuna", "planner.specs.catalogue")


def ask(capsys, monkeypatch, shell: str, *words: str) -> list[str]:
    """The completions of the last word."""
    from planner.__main__ import run

    monkeypatch.setenv("_PLANNER_COMPLETE", f"complete_{shell}")
    monkeypatch.delenv("_PLANNER_COMPLETE_PREFIX", raising=False)
    if shell == "bash":
        monkeypatch.setenv("COMP_WORDS", "\n".join(["planner", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", " ".join(["planner", *words]))
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    capsys.readouterr()
    assert run([]) == 0
    printed = capsys.readouterr().out
    monkeypatch.delenv("_PLANNER_COMPLETE_PREFIX", raising=False)
    return printed.split()


CASES = {
    "command": (("est",), ["estimate"]),
    "option": (("search", "--mod"), ["--model", "--modules-to-save", "--mode"]),
    "model": (("search", "--model", "llama-6"), ["llama-65b"]),
    "second GPU": (("search", "--gpu", "h100-sxm-80gb,b200"), ["h100-sxm-80gb,b200-sxm-180gb"]),
    "option with =": (("search", "--gpu", "=", "b200"), ["b200-sxm-180gb"]),
    "all": (("search", "--framework", "al"), ["all"]),
    "engine": (("estimate", "--engine", "tensorrt-llm"), None),
    "cluster": (("search", "--cluster", "dgx-h2"), ["dgx-h200"]),
    "space": (("search", "--space", "pretrain_d"), ["pretrain_dense"]),
    "workload": (("search", "--workload", "i"), ["inference"]),
    "workload with =": (("search", "--workload", "=", "s"), ["serve"]),
    "objective": (("search", "--objective", "cost,step"), ["cost,step_time"]),
    "objective of serving": (
        ("search", "--workload", "=", "serve", "--objective", "inter"), ["interactivity"],
    ),
    "parameters": (("search", "--set", "zero"), ["zero_stage=", "zero3_init=", "zero="]),
    "the only parameter": (("search", "--set", "zero_s"), [f"zero_stage={n}" for n in range(4)]),
    "value": (("search", "--set", "recompute", "=", "fu"), ["full"]),
    "no value yet": (("search", "--set", "sp", "="), ["true", "false"]),
    "second value": (("search", "--set", "recompute", "=", "none,fu"), ["none,full"]),
    "second setting": (("search", "--set", "tp", "=", "8", "--set", "zero", "=", "2"), ["2"]),
    "precision": (("search", "--precision", "bf1"), ["bf16"]),
    "precision of serving": (
        ("search", "--workload", "serve", "--precision", "w8a1"), ["w8a16"],
    ),
    "mode": (("search", "--mode", "d"), ["disaggregated"]),
    "adapter": (("search", "--adapter", "lora,ql"), ["lora,qlora"]),
    "driver": (("search", "--driver", "o"), ["optuna"]),
    "kind": (("specs", "show", "gp"), ["gpus"]),
    "spec of a kind": (("specs", "show", "clusters", "dgx-h2"), ["dgx-h200"]),
    "profile": (("calibrate", "runs.csv", "--framework", "sgl"), None),
    "nothing": (("search", "--set", "nothing", "="), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bash_completes(capsys, monkeypatch, case):
    words, expected = CASES[case]
    found = ask(capsys, monkeypatch, "bash", *words)
    if expected is None:
        assert found
        assert all(name.startswith(words[-1]) for name in found)
    else:
        assert found == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete(capsys, monkeypatch, shell):
    found = ask(capsys, monkeypatch, shell, "search", "--set", "recompute=fu")
    assert any("recompute=full" in line for line in found)
    found = ask(capsys, monkeypatch, shell, "search", "--set", "sequence_p")
    assert "sequence_parallel=true" in " ".join(found)
    found = ask(capsys, monkeypatch, shell, "search", "--gpu", "b200-s")
    assert "b200-sxm-180gb" in " ".join(found)


def test_every_spec_is_completed(capsys, monkeypatch):
    assert ask(capsys, monkeypatch, "bash", "search", "--model", "") == [*names("models"), "all"]


def test_own_specs_are_completed(capsys, monkeypatch, tmp_path):
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "zz-own.toml").write_text("")
    words = ("search", "--specs", str(tmp_path), "--gpu", "zz")
    assert ask(capsys, monkeypatch, "bash", *words) == ["zz-own"]


def test_the_words_are_those_of_the_package():
    assert completion.MODES == MODES
    assert all(names(kind) for kind in completion.KINDS)
    assert all(completion._values(term) for term in terms_of("train", "parameter").values())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_of_bash_works():
    folder = os.path.dirname(sys.executable)
    script = (
        'eval "$(python -m planner --show-completion bash)"\n'
        "planner() { python -m planner; }\nexport -f planner\n"
        "COMP_WORDS=(planner search --set tp =) COMP_CWORD=4\n"
        '_planner_completion planner\necho "${COMPREPLY[*]}"\n'
    )
    path = os.pathsep.join([folder, os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert ran.stdout.split() == ["1", "2", "4", "8", "16", "32", "64"], ran.stderr


def test_completion_imports_nothing_heavy():
    code = (
        "import sys; from planner.__main__ import run; run([]);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    asked = {"_PLANNER_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    asked["COMP_WORDS"] = "planner\nsearch\n--model\nllama-6"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked}
    )
    assert ran.stdout == "llama-65b\n"
    assert ran.stderr == "[]\n"
