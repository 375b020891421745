"""What each target writes of plans, and reads of files, is what was worked out by hand.

The tables stand in ``worked``. ``TARGET.written.csv`` has a column for each plan, or for each of
its processes (PLAN/PROCESS), and a row for each option, empty where that one has it not; the last
column says how numbers come about. ``TARGET.read.csv`` has options as a user gives them and what
they say in our terms. ``~`` stands for a share of predicted memory: see `test_launch_numbers`.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from rows import each
from worked.asked import job
from worked.plans import PLANS
from worked.said import FLAG, said

from planner.documents.shell.edits import ParsedOption
from planner.launch.option_table import OptionRole, OptionRow, OptionTable
from planner.launch.read.parsed_launch import JobResources, ParsedCommand
from planner.launch.target import LaunchDraft
from planner.launch.targets import readers, target_of, targets

FOLDER = Path(__file__).parent / "worked"
ELSEWHERE = "~"
TOLD = ("Prefix", "0.7")  # words of notes
TRAINER = "transformers"
# Whose files have options of a table besides those of the target of its name.
WRITERS = {TRAINER: (TRAINER, "deepspeed", "accelerate"), "deepspeed": ("deepspeed", "axolotl")}


@cache
def rows_of(name: str) -> list[dict[str, str]]:
    path = FOLDER / f"{name}.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def columns(target: str) -> Iterator[str]:
    yield from (
        name
        for name in next(iter(rows_of(f"{target}.written")), ())
        if name not in ("option", "worked")
    )


@cache
def drafted(target: str, plan: str) -> LaunchDraft:
    return target_of(target).make_draft(job(PLANS[target][plan]))


@pytest.mark.few(60)
@pytest.mark.parametrize(
    ("target", "column"), [(target, column) for target in targets() for column in columns(target)]
)
def test_what_is_written(target: str, column: str) -> None:
    plan, _, process = column.partition("/")
    draft = drafted(target, plan)
    found = said(draft, process or "train")
    if process != "benchmark":
        told = {f"{remark.parameter}={remark.value}" for remark in draft.unexpressed}
        found |= {"unexpressed": " ".join(sorted(told))} if told else {}
    worked = {row["option"]: row[column] for row in rows_of(f"{target}.written") if row[column]}
    known = {name: ELSEWHERE if worked.get(name) == ELSEWHERE else found[name] for name in found}
    assert known == worked


READ = [
    pytest.param(target, row["options"], row["terms"], id=f"{target} {row['options']}")
    for target in readers()
    if (FOLDER / f"{target}.read.csv").exists()
    for row in rows_of(f"{target}.read")
]


@each(("target", "options", "terms"), READ)
def test_what_is_read(target: str, options: str, terms: str) -> None:
    answers = (readers() | targets())[target].read_settings(found_of(target, options))
    values = {**(answers.shape or {}), **answers.values}
    values |= {f"told:{word}": word in " ".join(answers.notes) for word in TOLD}
    worked = dict(word.split("=", 1) for word in shlex.split(terms))
    assert {name: str(values.get(name, "")) for name in worked} == worked


def found_of(target: str, text: str) -> ParsedCommand:
    """A command or document of ``text``: options, KEY=VALUE, @nodes=N, @each=N GPUs of a node."""
    options: dict[str, ParsedOption] = {}
    environment: dict[str, ParsedOption] = {}
    world: dict[str, ParsedOption] = {}
    positional: list[ParsedOption] = []
    last = ""
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if name in ("@nodes", "@each"):
            world["num_nodes" if name == "@nodes" else "gpus_per_node"] = stated(name, value)
        elif re.match("--?[A-Za-z]", word):
            last = word
            options[last] = stated(last)
        elif last:
            options[last] = stated(last, *options[last].texts, word)
        elif equals and name.isupper():
            environment[name] = stated(name, value)
        elif equals:
            options[name] = stated(name, value)
        else:
            positional.append(stated("", word))
    return ParsedCommand(
        target=target,
        name="x.sh",
        text="",
        options=options,
        environment=environment,
        positional=tuple(positional),
        resources=JobResources(**world),
    )


def stated(option: str, *texts: str) -> ParsedOption:
    return ParsedOption(
        option=option, texts=texts, line=1, spans=(None,) * len(texts), full_span=None
    )


_SHARDED = "Megatron's profiles plan ZeRO 0 and 1: 2 and 3 are read, and with them what they need"
_WEIGHTS = "no profile of it plans weights on the host: the options are read"
_COMPRESSED = "test_written_and_read.py writes and reads it for a model of compressed attention"
_WIDE = "kv_cache=not the default with --kv-cache-dtype bfloat16"
NOT_WORKED = {
    "vllm": {_WIDE: _COMPRESSED},
    "sglang": {_WIDE: _COMPRESSED},
    "megatron-lm": {
        "zero_stage=2 with --ckpt-format fsdp_dtensor": _SHARDED,
        "zero_stage=3 with --ckpt-format fsdp_dtensor": _SHARDED,
    },
    "megatron-bridge": {
        "zero_stage=2 with checkpoint.ckpt_format fsdp_dtensor": _SHARDED,
        "zero_stage=3 with checkpoint.ckpt_format fsdp_dtensor": _SHARDED,
        "offload=optimizer_weights with model.cpu_offloading true": _WEIGHTS,
    },
    "megatron-deepspeed": {
        "offload=optimizer_weights with zero_optimization.offload_param.device cpu": _WEIGHTS,
    },
    "dynamo": dict.fromkeys(
        (
            "pool=prefill reads dynamo.trtllm --disaggregation-mode prefill",
            "pool=decode reads dynamo.trtllm --disaggregation-mode decode",
        ),
        "workers are read as their engine's: tensorrt-llm.read.csv has them",
    ),
}
"""What no plan writes and no file tells, with the reason."""


@each("target", list(targets()))
def test_every_row_of_a_table_has_a_worked_value(target: str) -> None:
    """Rows of no option (omitted, derived, none, left) have no value that could be."""
    table = OptionTable.load(target)
    lacking = [
        f"{row.parameter}={row.value} {row.role} {row.option} {row.text}"
        for row in table.rows
        if row.role in (OptionRole.IS, OptionRole.WITH, OptionRole.ALWAYS, OptionRole.READS)
        and not (
            row.role is not OptionRole.READS and any(is_of(row, *cell) for cell in cells(target))
        )
        and not (
            row.role in (OptionRole.IS, OptionRole.READS)
            and any(is_of(row, *one) for one in given(target))
        )
    ]
    assert set(lacking) == set(NOT_WORKED.get(target, ()))


def is_of(row: OptionRow, option: str, text: str) -> bool:
    """Whether an option of a table of worked values is the one of a row."""
    own = row.option.rpartition(" ")[2].removeprefix("--")
    told = None if text == FLAG else text
    return own == option.removeprefix("--") and row.read(told) is not None


@cache
def cells(target: str) -> frozenset[tuple[str, str]]:
    """Every option with every text that the tables say of what is written."""
    return frozenset(
        (row["option"].removeprefix("ds_config.") if writer == "axolotl" else row["option"], cell)
        for writer in WRITERS.get(target, (target,))
        for row in rows_of(f"{writer}.written")
        for name, cell in row.items()
        if name not in ("option", "worked") and cell
    )


@cache
def given(target: str) -> frozenset[tuple[str, str]]:
    """Every option with its text that the tables say of what is read."""
    found = (found_of(target, row["options"]) for row in rows_of(f"{target}.read"))
    return frozenset(
        (name, " ".join(str(text) for text in one.texts) or FLAG)
        for each in found
        for name, one in each.options.items()
    )


def test_the_tables_are_whole() -> None:
    """No plan without a column, and no column without a plan."""
    for target in targets():
        assert {re.sub("/.*", "", column) for column in columns(target)} == set(PLANS[target])
