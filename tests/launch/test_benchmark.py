"""The commands that measure what was predicted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import planner
from planner.errors import LaunchError
from planner.launch.target import Process, ShellVariable
from planner.launch.write.benchmark import length_notes, serving_benchmark, training_benchmark
from planner.launch.write.write_launch import WrittenLaunch, make_launch
from planner.question.request import Request

ACCEPTED = Path(planner.__file__).parent / "launch" / "accepted"


def command(engine: str, **given: object) -> tuple[str, ...]:
    load = {"model": "m", "input_tokens": 1000, "output_tokens": 200, "concurrency": 64, **given}
    return serving_benchmark(engine, **load)  # type: ignore[arg-type]


def value(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


def test_vllm_is_offered_the_load_of_the_plan() -> None:
    words = command("vllm", request_rate=2.5, concurrency=None, result_file="r.json")
    assert words[:3] == ("vllm", "bench", "serve")
    assert value(words, "--request-rate") == "2.5"
    assert value(words, "--num-prompts") == "750"  # five minutes of arrivals
    assert value(words, "--random-input-len") == "1000"
    assert value(words, "--random-output-len") == "200"
    assert value(words, "--result-filename") == "r.json"
    assert "--max-concurrency" not in words
    assert "--ignore-eos" in words


@pytest.mark.parametrize(
    ("engine", "prefix", "rest"),
    [
        ("vllm", "--random-prefix-len", "--random-input-len"),
        ("tensorrt-llm", "--random-prefix-len", "--random-input-len"),
        ("sglang", "--gsp-system-prompt-len", "--gsp-question-len"),
        ("llama-cpp", "--prefix-prompt-length", "--isl"),
    ],
)
def test_the_cached_share_of_the_prompt_is_a_common_prefix(
    engine: str, prefix: str, rest: str
) -> None:
    words = command(engine, prefix_cache_hit_rate=0.3)
    assert (value(words, prefix), value(words, rest)) == ("300", "700")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama-cpp"])
def test_clients_that_wait_send_ten_requests_each(engine: str) -> None:
    words = command(engine, concurrency=64)
    numbers = {"--num-prompts", "--request-count"} & set(words)
    assert [value(words, one) for one in numbers] == ["640"]
    assert "64" in words


def spread(low: float, high: float) -> float:
    """The variation of lengths that are drawn uniformly."""
    return (high - low) / math.sqrt(12) / ((high + low) / 2)


def test_vllm_draws_lengths_that_vary_as_planned() -> None:
    words = command("vllm", input_variation=0.3, output_variation=0.5)
    widths = json.loads(value(words, "--random-range-ratio"))
    assert spread(1 - widths["input"], 1 + widths["input"]) == pytest.approx(0.3, rel=2e-3)
    assert spread(1 - widths["output"], 1 + widths["output"]) == pytest.approx(0.5, rel=2e-3)
    # All that varies of a prompt is behind its common beginning.
    words = command("vllm", input_variation=0.3, output_variation=0.5, prefix_cache_hit_rate=0.4)
    assert value(words, "--random-range-ratio") == "0.866"
    assert value(command("vllm"), "--random-range-ratio") == "0"
    assert value(command("vllm", output_variation=1.0), "--random-range-ratio").endswith("0.99}")


def test_sglang_draws_them_below_the_longest() -> None:
    words = command("sglang", input_variation=0.3, output_variation=0.3)
    longest, ratio = (
        float(value(words, name)) for name in ("--random-input-len", "--random-range-ratio")
    )
    assert longest * (1 + ratio) / 2 == pytest.approx(1000, rel=1e-2)
    assert spread(ratio, 1) == pytest.approx(0.3, rel=1e-2)
    assert value(command("sglang"), "--random-range-ratio") == "1"
    assert value(command("sglang"), "--random-input-len") == "1000"


def test_others_draw_them_with_one_range_or_normally() -> None:
    varied = {"input_variation": 0.2, "output_variation": 0.4}
    assert value(command("tensorrt-llm", **varied), "--random-range-ratio") == "0.52"
    words = command("llama-cpp", **varied)
    assert (value(words, "--isl-stddev"), value(words, "--osl-stddev")) == ("200", "80")
    # Answers shorter than the mean must be allowed.
    assert not any("min_tokens" in word for word in words)
    assert any("min_tokens" in word for word in command("llama-cpp"))


@pytest.mark.parametrize(
    ("engine", "prompts", "answers", "prefix", "words"),
    [
        ("vllm", 0.0, 0.0, False, ()),
        ("vllm", 0.2, 0.4, True, ()),
        ("vllm", 0.2, 1.0, False, ("57% at most",)),
        ("sglang", 0.2, 0.4, False, ("their mean",)),
        ("sglang", 0.4, 0.4, True, ("equal lengths",)),
        ("tensorrt-llm", 0.2, 1.0, False, ("their mean", "57% at most")),
        ("llama.cpp", 0.2, 1.0, False, ()),
    ],
)
def test_what_is_drawn_otherwise_is_told(
    engine: str, prompts: float, answers: float, prefix: bool, words: tuple[str, ...]
) -> None:
    notes = length_notes(
        engine, input_variation=prompts, output_variation=answers, has_prefix=prefix
    )
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_a_plan_of_varied_lengths_is_measured_with_them() -> None:
    asked = {"input_tokens": 1000, "output_tokens": 200, "output_variation": 0.5}
    request = Request(
        workload="serve",
        model="llama-3.1-8b",
        gpu="h100-sxm",
        num_gpus=1,
        engine="sglang",
        settings={"concurrency": 16},
        **asked,  # type: ignore[arg-type]
    )
    (script,) = (
        file
        for file in make_launch(request, "sglang", "script").files
        if file.name == "benchmark.sh"
    )
    assert "--random-range-ratio 0.396" in script.text
    assert "their mean" in " ".join(script.text.split())


def test_names_stay_one_word_whatever_they_hold() -> None:
    assert "a b; $(x)" in command("vllm", model="a b; $(x)")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"concurrency": None}, "rate or a concurrency"),
        ({"request_rate": 0.0}, "above 0"),
        ({"output_tokens": 0.5}, "tokens of prompts and answers"),
        ({"prefix_cache_hit_rate": 1.0}, "0 to below 1"),
    ],
)
def test_impossible_loads_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        command("vllm", **given)


def test_trainers_print_every_step() -> None:
    words = training_benchmark("megatron-lm", steps=30)
    assert value(words, "--log-interval") == "1"
    assert value(words, "--train-iters") == "30"
    assert "--log-throughput" in words
    assert training_benchmark("accelerate") == training_benchmark("transformers")


def test_an_unknown_trainer_is_told_with_the_known_ones() -> None:
    with pytest.raises(LaunchError, match=r"Did you mean torchtitan\?"):
        training_benchmark("torchtitann")


@pytest.mark.parametrize(
    ("target", "table"),
    [
        ("megatron-lm", "megatron-lm-0.19.2"),
        ("megatron-bridge", "megatron-bridge-0.6.2"),
        ("torchtitan", "torchtitan-0.3.0"),
        ("transformers", "transformers-5.23.0"),
        ("axolotl", "axolotl-0.21.0"),
        ("maxtext", "maxtext-0.2.5"),
        ("verl", "verl-0.9.0"),
        ("nemo-rl", "nemo-rl-0.7.0"),
        ("openrlhf", "openrlhf-0.11.0"),
    ],
)
def test_trainers_know_the_options(target: str, table: str) -> None:
    lines = (ACCEPTED / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
    known = {plain(line.split("\t")[0]) for line in lines}
    words = training_benchmark(target)
    options = [word.partition("=")[0] for word in words if word.startswith("--") or "=" in word]
    assert options
    assert [option for option in options if plain(option) not in known] == []


def plain(option: str) -> str:
    """An option as tables and commands both may spell it."""
    return option.removeprefix("--").replace("-", "_")


TRAINERS = {
    "megatron-lm": "megatron-lm",
    "megatron-bridge": "megatron-bridge",
    "megatron-deepspeed": "megatron-deepspeed",
    "deepspeed": "deepspeed",
    "accelerate": "hf-trainer-fsdp",
    "torchtitan": "torchtitan",
    "transformers": "hf-trainer-fsdp",
    "axolotl": "hf-trainer-bf16",
    "maxtext": "megatron-bridge",
}


def training(target: str, **asked: object) -> WrittenLaunch:
    stage = 1 if "mega" in TRAINERS[target] else 3
    question = {
        "workload": "train",
        "model": "llama-2-7b",
        "gpu": "b200",
        "num_gpus": 8,
        "framework": TRAINERS[target],
        "total_tokens": 1e10,
        "settings": {"global_batch_size": 64, "zero_stage": stage},
    }
    return make_launch(Request(**{**question, **asked}), target, "script")  # type: ignore[arg-type]


def options_of(process: Process) -> list[str]:
    """The options of a process, without their values."""
    firsts = [argument.words[0] for argument in process.arguments]
    words = [word.prefix if isinstance(word, ShellVariable) else word for word in firsts]
    return [word.partition("=")[0] for word in words if word.startswith("-") or "=" in word]


@pytest.mark.parametrize("target", TRAINERS)
def test_a_training_has_a_benchmark_beside_it(target: str) -> None:
    launch = training(target)
    (script,) = (file for file in launch.files if file.name == "benchmark.sh")
    assert "benchmark.sh" in " ".join(launch.starts)
    for word in training_benchmark(target):
        assert word in script.text
    (process,) = launch.draft.benchmark
    options = options_of(process)
    assert len(options) > 5
    assert [one for one in options if options.count(one) > 1] == []
    others = set(options_of(launch.draft.processes[0])) - set(options)
    assert not {
        one for one in others if "save" not in one and "checkpoint" not in one and "load" not in one
    }


@pytest.mark.parametrize("target", ["transformers", "accelerate", "deepspeed", "axolotl"])
def test_a_benchmark_replaces_no_results_of_the_job(target: str) -> None:
    (process,) = training(target).draft.benchmark
    words = [word for argument in process.arguments for word in argument.words]
    folders = [
        word for word in words if isinstance(word, ShellVariable) and word.name == "OUTPUT_DIR"
    ]
    assert [word.suffix for word in folders] == ["/benchmark"]


def test_nothing_follows_a_subcommand() -> None:
    (process,) = training("torchtitan").draft.benchmark
    last = process.arguments[-1].words[0]
    assert str(last).startswith("activation-checkpoint:")
    assert "--checkpoint.enable" not in options_of(process)
