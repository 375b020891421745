"""Commands and documents by the rows of ``targets.csv``: whose they are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from rows import each

from planner.launch.option_table import is_command, is_document
from planner.launch.targets import readers

COMMANDS = [
    ("accelerate", "accelerate launch train.py", True),
    ("accelerate", "accelerate-launch train.py", True),
    ("accelerate", "accelerate config", False),
    ("axolotl", "axolotl train x.yaml", True),
    ("axolotl", "-m axolotl.cli.train x.yaml", True),
    ("axolotl", "axolotl fetch examples", False),
    ("gpt-neox", "./deepy.py train.py configs/20B.yml", True),
    ("gpt-neox", "deepy.py generate.py configs/20B.yml", False),
    ("llama-server", "/opt/llama-server-be0e35 -m x.gguf", True),
    ("llama-server", "C:\\llama\\llama-server.exe -m x.gguf", True),
    ("llm-foundry", "composer train/train.py train/yamls/pretrain/mpt-7b.yaml", True),
    ("llm-foundry", "composer -n 8 train.py --config=x", False),
    ("lmdeploy", "-m lmdeploy serve api_server model", True),
    ("lmdeploy", "lmdeploy chat model", False),
    ("maxtext", "python3 -m maxtext.trainers.pre_train.train base.yml", True),
    ("maxtext", "python3 /deps/MaxText/train.py base.yml", True),
    ("nanotron", "run_train.py --config-file x.yaml", True),
    ("nanotron", "run_train.py --config-file-of x.yaml", False),
    ("nemo-automodel", "automodel x.yaml", True),
    ("nemo-automodel", "examples/llm_finetune/finetune.py -c x", True),
    ("nemo-automodel", "finetune.py -c x", False),
    ("ollama", "ollama run llama3", True),
    ("ollama", "ollama list", False),
    ("sglang", "-m sglang.launch_server --model-path x", True),
    ("sglang", "sglang serve x", True),
    ("tgi", "text-generation-launcher --model-id x", True),
    ("tgi", "text-generation-launcher-old --model-id x", False),
    ("torchtitan", "run_train.sh --training.steps 10", True),
    ("torchtitan", "-m torchtitan.train --module llama3", True),
    ("torchtitan", "train.py --module llama3 --config llama3_8b", True),
    ("torchtitan", "train.py --job.config-file=x.toml", True),
    ("torchtitan", "train.py --config llama3_8b", False),
    ("torchtune", "lora_finetune_single_device --config llama3_1/8B_lora_single_device", True),
    ("torchtune", "dev grpo_full --config=x", True),
    ("torchtune", "lora_finetune_single_device x", False),
    ("xtuner", "xtuner/v1/train/cli/sft.py --load-from Qwen/Qwen3-8B", True),
    ("xtuner", "xtuner/v1/train/cli/sft.py --config x.py", False),
]
DOCUMENTS = [
    ("accelerate", {"distributed_type": "FSDP"}, True),
    ("accelerate", {"learning_rate": 1}, False),
    ("deepspeed", {"zero_optimization.stage": 3}, True),
    ("deepspeed", {"train_batch_size": 8}, True),
    ("deepspeed", {"train_batch_size": 8, "num-layers": 2}, False),
    ("axolotl", {"base_model": "m", "sequence_len": 2048}, True),
    ("axolotl", {"base_model": "m"}, False),
    ("gpt-neox", dict.fromkeys(["num-layers", "hidden-size", "num-attention-heads",
                                "pipe-parallel-size"]), True),
    ("gpt-neox", dict.fromkeys(["num-layers", "hidden-size", "num-attention-heads"]), False),
    ("llm-foundry", {"global_train_batch_size": 256,
                     "device_train_microbatch_size": "auto"}, True),
    ("maxtext", {"ici_fsdp_parallelism": 8}, True),
    ("maxtext", {"per_device_batch_size": 8, "base_config": "base.yml"}, True),
    ("maxtext", {"per_device_batch_size": 8}, False),
    ("nanotron", {"parallelism.dp": 8, "tokens.micro_batch_size": 4}, True),
    ("nemo-automodel", {"model._target_": "nemo_automodel.NeMoAutoModelForCausalLM"}, True),
    ("nemo-automodel", {"model._target_": "hydra.Model"}, False),
    ("nemo-automodel", {"model._target_": "nemo_automodel.X", "policy.model_name": "m"}, False),
    ("tensorrt-llm", {"context_servers.urls": "x", "generation_servers.urls": "y"}, True),
    ("tensorrt-llm", {"context_servers.urls": "x"}, False),
    ("tensorrt-llm", {"max_batch_size": 8, "kv_cache_config.dtype": "fp8"}, True),
    ("tensorrt-llm", {"max_batch_size": 8, "backend": "pytorch"}, True),
    ("tensorrt-llm", {"max_batch_size": 8, "backend": "tgi"}, False),
    ("torchtitan", {"job.dump_folder": "x", "training.seq_len": 4096}, True),
    ("torchtitan", {"training.seq_len": 4096}, False),
    ("torchtune", {"model._component_": "torchtune.models.llama3.llama3_8b",
                   "batch_size": 2}, True),
    ("torchtune", {"model._component_": "mine.llama3_8b", "batch_size": 2}, False),
]  # fmt: skip


# Programs in words of the Trainer's.
PROGRAMS = [
    ("ms-swift", "swift sft --model x", True),
    ("ms-swift", "/usr/bin/swift --debug rlhf", True),
    ("ms-swift", "swift infer", False),
    ("megatron-swift", "megatron sft --model x", True),
    ("megatron-swift", "megatron export", False),
    ("mlx-lm", "mlx_lm.lora --train", True),
    ("mlx-lm", "-m mlx_lm lora", True),
    ("mlx-lm", "mlx_lm.generate", False),
    ("llama-factory", "llamafactory-cli train x.yaml", True),
    ("llama-factory", "src/train.py x.yaml", True),
    ("llama-factory", "llamafactory-cli chat x.yaml", False),
    ("llama-factory-v1", "", False),
]
PROGRAM_DOCUMENTS = [
    ("megatron-swift", {"tuner_type": "lora", "micro_batch_size": 1, "global_batch_size": 4}, True),
    ("megatron-swift", {"tuner_type": "lora", "micro_batch_size": 1}, False),
    ("mlx-lm", {"model": "m", "iters": 100, "lora_parameters.rank": 8}, True),
    ("mlx-lm", {"model": "m", "iters": 100}, False),
    ("llama-factory-v1", {"model": "m", "train_dataset": "d", "dist_config.name": "fsdp2"}, True),
    ("llama-factory-v1", {"model": "m", "train_dataset": "d"}, False),
]


@each(("name", "command", "is_its"), PROGRAMS)
def test_commands_of_programs(name: str, command: str, is_its: bool) -> None:
    assert is_command(name, command.split()) is is_its


@each(("name", "document", "is_its"), PROGRAM_DOCUMENTS)
def test_documents_of_programs(name: str, document: Mapping[str, object], is_its: bool) -> None:
    assert is_document(name, document) is is_its


@each(("name", "command", "is_its"), COMMANDS)
def test_commands(name: str, command: str, is_its: bool) -> None:
    words = command.split() if "\\" in command else shlex.split(command)
    assert readers()[name].starts(words) is is_its


@each(("name", "document", "is_its"), DOCUMENTS)
def test_documents(name: str, document: Mapping[str, object], is_its: bool) -> None:
    assert readers()[name].is_of(document) is is_its
