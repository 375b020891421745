"""What is written for a plan is what the parser of its program takes: names, types and choices.

`planner/launch/accepted` has the options of each parser; `test_real_parsers` asks some of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import pytest
from test_option_tables import WRITTEN, accepted
from worked.asked import job
from worked.plans import PLANS
from worked.said import FLAG, said

from planner.launch.option_table import OptionTable
from planner.launch.target import LaunchTarget
from planner.launch.targets import target_of

# Of a process, not of its program.
PROCESS = {"nodes", "gpus per node", "copies", "command", "type", "unexpressed"}
TRAINER = ("transformers", "deepspeed", "accelerate")
# Options whose values are the user's or follow from the job, beside those of the tables.
OTHERS = {
    "megatron-lm": "--tokenizer-model --data-path --split --lr --lr-decay-style --save --load",
    "megatron-bridge": "tokenizer.tokenizer_model optimizer.lr checkpoint.save checkpoint.load "
    "checkpoint.pretrained_checkpoint dataset.data_path dataset.dataset_root",
    "torchtitan": "--checkpoint.enable --dataloader.dataset --dump_folder --hf_assets_path "
    "--metrics.log_freq",
    "axolotl": "--learning-rate --output-dir datasets",
    "maxtext": "run_name base_output_directory tokenizer_path dataset_type hf_path learning_rate",
    "verl": "data.train_files data.val_files trainer.default_local_dir",
    "nemo-rl": "--config checkpointing.checkpoint_dir",
    "openrlhf": "--data.prompt_dataset --reward.remote_url --ckpt.output_dir",
    "vllm": "--host --port --master-addr --master-port --node-rank --spec-model",
    "sglang": "--host --port --model-path --node-rank --dist-init-addr "
    "--disaggregation-bootstrap-port --speculative-draft-model-path --lora-target-modules",
    "tensorrt-llm": "--host --port --config speculative_config.speculative_model",
    "llama-server": "--host --port --model --spec-draft-model --no-cache-prompt",
    "dynamo": "--host --port --model --model-path --served-model-name --override-engine-args "
    "--disaggregation-mode --disaggregation-transfer-backend --kv-transfer-config --spec-model "
    "--disaggregation-bootstrap-port --speculative-draft-model-path --lora-target-modules",
}
OTHERS["megatron-deepspeed"] = f"{OTHERS['megatron-lm']} --data-impl"
for name in TRAINER:
    OTHERS[name] = (
        "--config_file --config_name --model_name_or_path --tokenizer_name --dataset_name "
        "--do_train --learning_rate --logging_steps --output_dir --deepspeed --fsdp --fsdp_config "
        "fsdp_config.version --gradient_accumulation_steps"
    )
# Without which a program does not start; of alternatives one.
REQUIRED = {
    "megatron-lm": "--num-layers|--hybrid-layer-pattern --hidden-size --num-attention-heads "
    "--max-position-embeddings --seq-length --micro-batch-size --train-iters --lr "
    "--tokenizer-type --tokenizer-model",
    "megatron-bridge": "train.train_iters train.global_batch_size train.micro_batch_size "
    "model.seq_length dataset.seq_length|dataset.dataset_root",
    "axolotl": "base_model datasets --learning-rate micro_batch_size gradient_accumulation_steps",
    "maxtext": "run_name base_output_directory model_name|base_emb_dim hf_path steps hardware",
    "verl": "data.train_files data.val_files actor_rollout_ref.model.path",
    "nemo-rl": "--config defaults policy.model_name cluster.num_nodes cluster.gpus_per_node",
    "openrlhf": "--actor.model_name_or_path --data.prompt_dataset --reward.remote_url",
    "sglang": "--model-path",
    "llama-server": "--model",
    **dict.fromkeys(TRAINER, "--model_name_or_path|--config_name --dataset_name --output_dir"),
}
REQUIRED["megatron-deepspeed"] = (
    f"{REQUIRED['megatron-lm']} --deepspeed --deepspeed_config --data-path"
)


def _is_number(kind: Callable[[str], object]) -> Callable[[str], bool]:
    def is_one(text: str) -> bool:
        try:
            kind(text)
        except ValueError:
            return False
        return True

    return is_one


FITS: Mapping[str, Callable[[str], bool]] = {
    "int": _is_number(int),
    "float": _is_number(float),
    "bool": lambda text: text.lower() in ("true", "false"),
}
TYPES = {"PositiveInt": "int", "NonNegativeInt": "int", "NonNegativeFloat": "float"}
NULL = ("null", "None")
VARIABLE = r"\$|\b(COPY|NODE_RANK)\b"


def fault(row: Mapping[str, str], text: str) -> str:
    """Why a parser does not take a text for an option; empty where it does."""
    if row["nargs"] == "0" or text == FLAG:
        takes_none = row["nargs"] in ("0", "?", "*") or row["type"].startswith("bool")
        return "" if text == FLAG and takes_none else f"{text} of {row['type'] or 'a value'}"
    if re.search(VARIABLE, text) or (text in NULL and row["default"] in ("None", "null", "")):
        return ""
    words = text.split() if row["nargs"] in ("+", "*") or "list" in row["type"].lower() else [text]
    kinds = [TYPES.get(kind, kind) for kind in re.split(r"\s*\|\s*", row["type"])]
    choices = [word.rpartition(".")[2] for word in filter(None, row["choices"].split("|"))]
    if choices and ("str" not in kinds[1:] + kinds[:-1]):  # else another text may do, too
        return "" if {*words} <= {*choices, *row["choices"].split("|")} else f"{text} of {choices}"
    if not set(kinds) <= FITS.keys():
        return ""  # a text, or a type of the program
    return "" if all(any(FITS[kind](word) for kind in kinds) for word in words) else f"{text}"


def written(target: LaunchTarget, plan: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Processes of a worked plan with their options."""
    draft = target.make_draft(job(PLANS[target.name][plan]))
    names = [process.name for process in (*draft.processes, *draft.benchmark)]
    for name in names or ["serve"]:
        if name in ("router", "benchmark") and "benchmark" not in target.name:
            continue
        options = said(draft, name)
        yield (
            name,
            {
                option: text
                for option, text in options.items()
                if option not in PROCESS and not re.fullmatch(r"[A-Z0-9_]+", option)
            },
        )


def spelled(option: str, known: Mapping[str, Mapping[str, str]]) -> str:
    """An option as the tables have it: the critic's are the actor's, keys may be options."""
    name = option.removeprefix("ds_config.")
    name = name.replace("critic.megatron.", "actor_rollout_ref.actor.megatron.")
    spellings = (name, name.replace("-", "_"), name.lstrip("-").replace("-", "_"))
    return next((x for x in spellings if x in known), name)


@pytest.mark.few(15)
@pytest.mark.parametrize(
    ("name", "plan"), [(name, plan) for name, plans in PLANS.items() for plan in plans]
)
def test_a_written_option_is_one_that_the_parser_takes(name: str, plan: str) -> None:
    target = target_of(name)
    known = {**accepted(target_of("deepspeed")), **accepted(target)}
    tables = [target.table, *(OptionTable.load(x) for x in TRAINER)]
    of_plan = {row.option for table in tables for row in table.rows if row.role in WRITTEN}
    for _, options in written(target, plan):
        faults = {}
        for option, text in options.items():
            row = known.get(spelled(option, known))
            if row is None:
                faults[option] = "no such option"
            elif problem := fault(row, text):
                faults[option] = problem
            elif {option, spelled(option, known)}.isdisjoint({*of_plan, *OTHERS[name].split()}):
                faults[option] = "no plan needs it"
        assert not faults
        for alternatives in REQUIRED.get(name, "").split():
            assert not {*options}.isdisjoint(alternatives.split("|")), alternatives


@pytest.mark.parametrize(
    ("type_", "choices", "nargs", "text", "takes"),
    [
        ("int", "", "", "8", True),
        ("int", "", "", "0.5", False),
        ("int | float", "", "", "0.5", True),
        ("float", "", "", "half", False),
        ("bool", "", "", "True", True),
        ("bool", "", "", "1", False),
        ("flag", "", "0", FLAG, True),
        ("flag", "", "0", "true", False),
        ("int", "", "", FLAG, False),
        ("str", "full|selective", "", "full", True),
        ("str", "full|selective", "", "none", False),
        ("str", "a|b", "+", "a b", True),
        ("str", "a|b", "+", "a c", False),
        ("Literal['a', 'b']", "A.a|A.b", "", "a", True),
        ("int", "", "", "$PORT", True),
    ],
)
def test_what_a_type_takes(type_: str, choices: str, nargs: str, text: str, takes: bool) -> None:
    row = {"type": type_, "choices": choices, "nargs": nargs, "default": "1"}
    assert bool(fault(row, text)) is not takes
