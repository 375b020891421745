"""Every option that a parser accepts is read, or harmless with a reason, or reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from make_public_launches import Case, cases
from rows import each

from planner.base import read_files
from planner.errors import LaunchError
from planner.launch.option_table import matches_option
from planner.launch.read import harmless
from planner.launch.read.harmless import harmless_reason
from planner.launch.read.import_launch import import_launch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers

TABLE = Path(harmless.__file__).with_name("harmless.toml")
SIZES = re.compile(
    r"parallel_(size|degree)|(^|_)[tpcde]p_size|offload|quantiz|recompute|precision|rampup|"
    r"cache_dtype|spec(ulative)?_|draft_|batch_size|context_length|num_layers|prob_"
)
"""What no pattern may catch unawares: names of what changes time or memory."""
OF_OTHERS = re.compile(
    r"eval|valid|^test_|_log|^log|metrics|profil|debug|trace|revision|save_|_poll|_prio|loss_scale"
    r"|hysteresis|^tokenizer\.|size_local|initial_load"
)
"""What has such a word in its name and belongs to evaluation, reports or saving."""
CHANGE_RESULTS = {
    "vllm": (
        "--prefill-context-parallel-size", "--block-size",
        "--enable-dbo", "--limit-mm-per-prompt", "--compilation-config", "--attention-backend",
        "--num-gpu-blocks-override", "--async-scheduling", "--api-server-count", "--ubatch-size",
    ),
    "sglang": (
        "--attn-cp-size", "--moe-dp-size", "--attention-backend", "--page-size",
        "--enable-two-batch-overlap", "--num-continuous-decode-steps", "--max-total-tokens",
    ),
    "llama-server": ("--cache-type-k-draft", "--swa-full", "--spec-draft-n-min"),
    "tensorrt-llm": ("moe_config.backend", "stream_interval", "allreduce_strategy"),
    "tgi": ("--max-batch-total-tokens",),
    "megatron-lm": ("--rampup-batch-size", "--moe-expert-capacity-factor"),
    "axolotl": ("tiled_mlp", "expert_parallel_save_dispatch"),
    "verl": ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",),
}  # fmt: skip


def _tools() -> Iterator[LaunchTarget]:
    for target in readers().values():
        yield from filter(None, (target, target.step))


def _spelled(option: str) -> str:
    return option.rpartition(" ")[2].lstrip("-").replace("-", "_").lower()


def _is_read(target: LaunchTarget, option: str) -> bool:
    return option in target.table.options or matches_option(option, target.table.used)


def _classes() -> Iterator[tuple[LaunchTarget, str, str]]:
    """Every accepted option with why it is harmless; those that a row reads are left out."""
    for target in _tools():
        for option in target.options.options:
            if not _is_read(target, option):
                yield target, option, harmless_reason(option, [], target.workloads)


def test_no_target_calls_a_section_of_options_harmless() -> None:
    named = {(one.name, option) for one in _tools() for option in one.table.ignored}
    assert not {one for one in named if one[1].endswith("*")}


def test_no_pattern_catches_what_changes_time_or_memory() -> None:
    caught = {
        (reason, option)
        for _, option, reason in _classes()
        if reason and SIZES.search(_spelled(option)) and not OF_OTHERS.search(_spelled(option))
    }
    assert not caught


def test_no_row_is_without_a_reason_or_an_option() -> None:
    rows: Any = read_files.read_toml(TABLE, LaunchError)["harmless"]
    assert rows
    for row in rows:
        assert row["why"]
        assert row["options"]
        assert row.get("of", "train") in ("train", "serve", "unknown")


@each("name, option", [(name, one) for name, many in CHANGE_RESULTS.items() for one in many])
def test_what_is_known_to_change_results_is_never_harmless(name: str, option: str) -> None:
    target = readers()[name]
    target = target.step if name == "verl" and target.step else target

    assert target.options.find(option) is not None, option
    assert _is_read(target, option) or not harmless_reason(option, ["8"], target.workloads)


@each(
    "option, texts, default, is_harmless",
    [
        ("--enable-lora-x", ["false"], "", True),  # switched off
        ("--block-size", ["16"], "16", True),
        ("--block-size", ["32"], "16", False),
        ("--use-it", ["false"], "True", False),
        ("--dtype", ["bfloat16"], "auto", True),
        ("--dtype", ["float32"], "auto", False),
        ("--new-option", [], "", False),  # a flag
    ],
)
def test_a_default_is_harmless(
    option: str, texts: list[str], default: str, is_harmless: bool
) -> None:
    assert bool(harmless_reason(option, texts, ["serve"], default)) is is_harmless


READ = [case for case in cases() if not case.refused]
# Without it a document is no longer one of its program.
TELLS_THE_PROGRAM = {"train_dataset"}


@pytest.mark.few(15)
@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_what_is_called_unread_changes_nothing_when_it_goes(case: Case) -> None:
    """An option that is reported as without effect, or as not modelled, is not read secretly."""
    whole = read_launch(case.path)
    values = import_launch(whole.path, whole.target, whole.command, None).values
    for line in [
        *whole.lines_with_status(Status.NOT_MODELLED),
        *whole.lines_with_status(Status.IGNORED),
    ]:
        if line.option in TELLS_THE_PROGRAM:
            continue
        options = {k: one for k, one in whole.command.options.items() if k != line.option}
        unknown = tuple(one for one in whole.command.unknown if one.option != line.option)
        without = replace(whole.command, options=options, unknown=unknown)
        assert import_launch(whole.path, whole.target, without, None).values == values, line.option


@each(
    "command, option",
    [
        ("vllm serve MODEL -tp 8 --block-size 64", "block-size"),
        ("python -m sglang.launch_server --model-path MODEL --tp 8 --moe-dp-size 8", "moe-dp"),
    ],
)  # fmt: skip
def test_the_screen_names_what_may_change_the_result(
    command: str, option: str, planner: Command, tmp_path: Path
) -> None:
    (tmp_path / "serve.sh").write_text(
        command.replace("MODEL", "deepseek-ai/DeepSeek-V3") + " --port 8000\n"
    )
    result = planner("estimate", "--from", tmp_path / "serve.sh", "--gpu", "h200", *LENGTHS)

    text = " ".join(result.out.split())
    assert re.search(rf"May change the result: .*not modelled: --{option}", text), text
    assert "ignored: --port" in text


LENGTHS = ("--input-tokens", "1000", "--output-tokens", "100")


def test_an_optimizer_of_a_fork_is_not_understood(tmp_path: Path) -> None:
    """A fork that shards states by an option of its own, as Megatron-LLaMA did (its issue 16)."""
    (tmp_path / "t.sh").write_text(
        "torchrun --nproc_per_node 8 pretrain_llama.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
        "--vocab-size 32000 --bf16 --layerwise-distributed-optimizer\n"
    )
    lines = {line.option: line for line in read_launch(tmp_path / "t.sh").lines}

    line = lines["--layerwise-distributed-optimizer"]
    assert line.status is Status.UNKNOWN
    assert line.meaning.startswith("not understood: may change the result")
