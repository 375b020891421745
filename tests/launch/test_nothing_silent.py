"""What a file sets changes its reading, or is listed; it is never dropped without a word."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.launch.option_table import ParserOption
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.incomplete import undecided_options
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import readers

MODEL = "Qwen/Qwen2.5-7B-Instruct"
COMMANDS = {
    "vllm": f"vllm serve {MODEL} --max-model-len 8192",
    "sglang": f"python3 -m sglang.launch_server --model-path {MODEL} --context-length 8192",
    "tensorrt-llm": f"trtllm-serve {MODEL} --max_seq_len 8192",
    "tgi": f"text-generation-launcher --model-id {MODEL} --max-total-tokens 8192",
    "lmdeploy": f"lmdeploy serve api_server {MODEL} --session-len 8192",
    "llama-server": "llama-server -m Qwen2.5-7B-Instruct-Q4_K_M.gguf --ctx-size 8192",
    "megatron-lm": "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --vocab-size 32000 --bf16 --micro-batch-size 1 --seq-length 4096",
}


def _read(folder: Path, files: dict[str, str]) -> ImportedLaunch:
    for name, text in files.items():
        (folder / name).write_text(text)
    return read_launch(folder / next(iter(files)))


def _other_value(option: ParserOption) -> list[str]:
    """A value that is not the default; none for a flag."""
    choices = [choice for choice in option.choices if choice != option.default]
    if option.is_flag or choices:
        return choices[:1]
    return ["3" if "int" in option.type else "0.37" if "float" in option.type else "xyz"]


@pytest.mark.parametrize("target", COMMANDS)
def test_an_accepted_option_changes_the_reading_or_is_listed(
    target: str, seed: int, tmp_path: Path
) -> None:
    draw = random.Random(f"{seed} {target}")
    base = _read(tmp_path, {"base.sh": COMMANDS[target]})
    options = readers()[target].options.options
    flags = [name for name in options if name.startswith("--")]
    for name in draw.sample(sorted(flags), 12):
        if name in base.command.options:
            continue
        words = " ".join([COMMANDS[target], name, *_other_value(options[name])])
        try:
            found = _read(tmp_path, {"run.sh": words})
        except PlannerError:
            continue
        assert found.values != base.values or name in {line.option for line in found.lines}, name


AXOLOTL = "base_model: Qwen/Qwen2.5-7B\nsequence_len: 2048\nmicro_batch_size: 2\n"
ZERO = {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}


@pytest.mark.parametrize(
    ("files", "key", "status"),
    [
        (
            {"run.sh": "axolotl train c.yaml", "c.yaml": f"{AXOLOTL}my_parallel_degree: 4\n"},
            "my_parallel_degree",
            Status.UNKNOWN,
        ),
        (
            {"run.sh": "axolotl train c.yaml", "c.yaml": f"{AXOLOTL}tiled_mlp: true\n"},
            "tiled_mlp",
            Status.NOT_MODELLED,
        ),
        (
            {
                "run.sh": "deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-7B "
                "--output_dir o --per_device_train_batch_size 1 --deepspeed z.json",
                "z.json": json.dumps({**ZERO, "my_fast_path": True}),
            },
            "my_fast_path",
            Status.UNKNOWN,
        ),
    ],
)
def test_keys_of_a_named_configuration_are_listed(
    files: dict[str, str], key: str, status: Status, tmp_path: Path
) -> None:
    found = _read(tmp_path, files)

    (line,) = (line for line in found.lines if line.option == key)
    assert line.status is status
    assert str(line).startswith(f"{[*files][1]} line ")


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("4.0", "4"),
        ("${my_batch}", "8"),
        ("${oc.env:BATCH,16}", "16"),
        ("${BATCH:-16}", "16"),
        ("${BATCH}", None),
        ("{{ batch }}", None),
    ],
)
def test_a_reference_is_its_value_or_unknown(text: str, batch: str | None, tmp_path: Path) -> None:
    document = f"{AXOLOTL}my_batch: 8\n".replace("micro_batch_size: 2", f"micro_batch_size: {text}")
    document = document.replace("{{ batch }}", "'{{ batch }}'")

    found = _read(tmp_path, {"c.yaml": document})

    if batch is None:
        assert "micro_batch_size" in {*undecided_options(found), *found.missing_terms({})}
    else:
        assert str(found.values["micro_batch_size"]) == batch


OPENRLHF = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B"
SERVE = f"vllm serve {MODEL}"


@pytest.mark.parametrize(
    ("files", "undecided"),
    [
        ({"run.sh": f"{OPENRLHF} --zero_stage $STAGE"}, "--zero_stage"),
        ({"run.sh": f"{SERVE} $(cat args.txt)"}, "$(cat args.txt)"),
        ({"run.sh": f"cat args.txt | xargs python3 -m {SERVE}"}, "the words of xargs"),
        (
            {"run.sh": "./inner.sh $ARGS", "inner.sh": f'{SERVE} "$@"'},
            "the arguments of inner.sh",
        ),
        (
            {"run.sh": "sed -i 's/2048/4096/' c.yaml\naxolotl train c.yaml", "c.yaml": AXOLOTL},
            "the changes of sed in c.yaml",
        ),
    ],
)
def test_what_only_a_run_determines_stands_in_the_first_line(
    files: dict[str, str], undecided: str, tmp_path: Path
) -> None:
    files = {
        name: text.replace("python3 -m vllm serve", "python3 -m vllm.entrypoints.cli.main serve")
        for name, text in files.items()
    }
    assert undecided in undecided_options(_read(tmp_path, files))


def test_an_inner_script_gets_its_arguments(tmp_path: Path) -> None:
    files = {"run.sh": "./inner.sh --num-shard 4", "inner.sh": f'{COMMANDS["tgi"]} "$@"'}

    assert str(_read(tmp_path, files).values["tensor_parallel"]) == "4"


def test_a_variable_of_an_engine_may_change_the_result(tmp_path: Path) -> None:
    script = f"export VLLM_ROCM_USE_AITER=1\nexport VLLM_LOGGING_LEVEL=DEBUG\n{SERVE}\n"

    assert _read(tmp_path, {"run.sh": script}).not_modelled == ["VLLM_ROCM_USE_AITER"]


@pytest.mark.parametrize("prefix", ["", "my_launcher ", "run_server x "])
def test_an_engine_behind_a_function_is_known(prefix: str, tmp_path: Path) -> None:
    command = f"{prefix}{SERVE} --tensor-parallel-size 2"

    assert str(_read(tmp_path, {"run.sh": command}).values["tensor_parallel"]) == "2"


@pytest.mark.parametrize(("option", "recipe"), [("", None), ("--fp8-recipe mxfp8", "mxfp8")])
def test_the_scaling_of_megatron_is_read(option: str, recipe: str | None, tmp_path: Path) -> None:
    command = f"{COMMANDS['megatron-lm']} --fp8-format hybrid {option}"

    assert _read(tmp_path, {"run.sh": command}).values.get("fp8_recipe") == recipe


def test_an_option_that_no_row_reads_is_not_called_understood(tmp_path: Path) -> None:
    command = f"{COMMANDS['megatron-lm']} --moe-permute-fusion --use-checkpoint-args"
    statuses = {line.option: line.status for line in _read(tmp_path, {"run.sh": command}).lines}
    assert statuses["--moe-permute-fusion"] is Status.NOT_MODELLED
