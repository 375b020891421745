from __future__ import annotations

import json
import re

import pytest

SMALL = ("search", "--model", "llama-65b", "--space", "small")

CASES = {
    "too little memory": (*SMALL, "--gpus", "8"),
    "a step too long": (*SMALL, "--gpus", "256", "--step-time", "5s"),
    "two limits": (*SMALL, "--gpus", "256", "--step-time", "5s", "--mfu", "80%"),
    "a precision the GPU lacks": (*SMALL, "--gpus", "256", "--set", "precision=fp8"),
    "an odd number of GPUs": (*SMALL, "--gpus", "7", "--set", "tensor_parallel=8"),
    "an odd batch": (*SMALL, "--gpus", "512", "--global-batch-size", "1021"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_every_remedy_helps(planner, arguments):
    ran = planner(*arguments)
    assert ran.exit_code == 4
    assert ran.out == ""
    assert ran.err.startswith("No configuration of ")
    assert max(len(line) for line in ran.err.splitlines()) <= 80
    tried = re.search(r"^Try (.*)\.$", ran.err, re.MULTILINE | re.DOTALL)
    assert tried is not None, ran.err
    for remedy in re.split(r", | or ", tried[1].replace("\n", " ")):
        assert planner(*applied(arguments, remedy), "--quiet").exit_code == 0


def applied(arguments: tuple[str, ...], remedy: str) -> list[str]:
    words = list(arguments)
    if remedy.startswith("leaving out"):
        name = remedy.split()[-1]
        at = next(i for i, word in enumerate(words) if word.startswith(f"{name}="))
        return words[: at - 1] + words[at + 1 :]
    for option in remedy.split(" with "):
        name, value = option.split()
        if name in words and name != "--set":
            at = words.index(name)
            words = words[:at] + words[at + 2 :]
        parameter = value.partition("=")[0] + "="
        at = next((i for i, word in enumerate(words) if word.startswith(parameter)), 0)
        if name == "--set" and at:
            words = words[: at - 1] + words[at + 1 :]
        words += [name, value]
    return words


def test_the_message_counts_and_names_the_nearest(planner):
    err = planner(*SMALL, "--gpus", "256", "--step-time", "5s").err
    assert re.search(r"^ +[\d,]+  miss step_time 5.00 s \(nearest: [\d.]+ s, ", err, re.MULTILINE)
    assert re.search(r"^ +[\d,]+  need more than 7\d\.\d+ GiB ", err, re.MULTILINE)
    counts = [int(n.replace(",", "")) for n in re.findall(r"^ +([\d,]+)  ", err, re.MULTILINE)]
    total = re.match(r"No configuration of ([\d,]+) ", err)
    assert total is not None
    assert sum(counts) == int(total[1].replace(",", ""))


def test_an_unknown_price_cannot_keep_a_cost(planner):
    ran = planner(*SMALL, "--gpus", "256", "--gpu", "h800", "--cost", "1MUSD")
    assert ran.exit_code == 3
    assert "No list has a price of h800-sxm-80gb: give --price." in ran.err


def test_an_estimate_too_large_still_shows_its_memory(planner):
    ran = planner("estimate", "--model", "llama-65b", "--gpus", "8")
    assert ran.exit_code == 4
    assert "optimizer states" in ran.out
    assert "does not fit" in ran.err
    assert ran.out.startswith("Does not fit: peak 501.7 of 79.1 GiB on the fullest GPU")
    quiet = planner("estimate", "--model", "llama-65b", "--gpus", "8", "--quiet")
    words = " ".join(quiet.err.split())
    assert re.search(
        r"peak 501\.7 GiB on the fullest GPU; 79\.1 GiB usable \(7\d\.\d GiB at this", words
    )


def test_no_more_room_is_named_than_a_gpu_has(planner):
    """An H200 has 139.7 GiB; peaks of Megatron-Bridge are predicted higher than they were."""
    asked = ("--model", "llama-3-70b", "--gpu", "h200", "--gpus", "8", "--sequence-length", "8192")
    one = (*asked, "--framework", "megatron-bridge", "--set", "tp=8", "--set", "mbs=2")
    ran = planner("estimate", *one, "--global-batch-size", "64", "--set", "recompute=none")
    words = " ".join(ran.out.split())
    assert "peak 248.5 of 139.7 GiB on the fullest GPU (< 1 % likely to fit)" in words
    searched = ("--model", "llama-65b", "--gpus", "16", "--gpu", "rtx4090", "--space", "small")
    (room,) = re.findall(r"need more than ([\d.]+) GiB", planner("search", *searched).err)
    assert float(room) <= 24.0


@pytest.mark.parametrize(
    ("framework", "options", "named"),
    [
        ("fsdp", ("tensor_parallel=2", "recompute=feed_forward"), None),
        ("deepspeed", ("zero_stage=3", "pipeline_parallel=2"), None),
        ("nemo", ("zero_stage=2", "tensor_parallel=2"), "zero_stage=2"),
    ],
)
def test_what_a_framework_lacks_is_named(planner, framework, options, named):
    settings = [part for option in options for part in ("--set", option)]
    asked = ["--model", "llama-2-7b", "--gpus", "8", "--framework", framework, *settings]
    ran = planner("estimate", *asked)
    assert ran.exit_code == 4
    expected = named or ", ".join(options)
    assert f"this combination: {expected}" in " ".join(ran.err.split())


def test_an_impossible_estimate_names_the_rule(planner):
    ran = planner("estimate", "--model", "llama-7b", "--gpus", "8", "--set", "tensor_parallel=3")
    assert ran.exit_code == 4
    assert "must divide the number of GPUs" in ran.err
    assert ran.out == ""


def test_json_has_the_memory_of_a_plan_that_does_not_fit(planner, tmp_path):
    # Before, programs got no file and could not tell how much memory is missing.
    script = tmp_path / "run.sh"
    script.write_text("vllm serve meta-llama/Llama-3.1-70B-Instruct\n")
    questions = {
        "flags": ("--model", "llama-65b", "--gpus", "8"),
        "file": ("--from", str(script), "--gpu", "h100", "--gpus", "1"),
    }
    for name, question in questions.items():
        path = tmp_path / f"{name}.json"
        assert planner("estimate", *question, "--json", str(path), "--quiet").exit_code == 4
        row = json.loads(path.read_text())["rows"][0]
        assert row["rejected_by"] == "out_of_memory"
        assert row["peak_memory_gib"] > 80
        assert row["fit_probability"] < 0.01
