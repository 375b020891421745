"""What `accelerate launch` sets of a configuration file: {"yaml": text, "argv": [...]}."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import fake_gpu

fake_gpu.install({})
# ruff: noqa: E402
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin, ParallelismConfig
from accelerate.utils.launch import prepare_multi_gpu_env

PARALLELISM = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size", "total_size")
FSDP = ("fsdp_version", "reshard_after_forward", "activation_checkpointing", "cpu_offload")
DEEPSPEED = ("zero_stage", "offload_optimizer_device", "offload_param_device")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(case["yaml"])
        file.flush()
        words = ["--config_file", file.name, *case.get("argv", []), "train.py"]
        args, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
    os.environ.update({k: str(v) for k, v in prepare_multi_gpu_env(args).items()})
    found = {
        "num_processes": args.num_processes,
        "num_machines": args.num_machines,
        "mixed_precision": args.mixed_precision,
        "use_fsdp": args.use_fsdp,
        "use_deepspeed": args.use_deepspeed,
        "use_parallelism_config": args.use_parallelism_config,
        "gradient_accumulation": args.gradient_accumulation_steps,
    }
    if args.use_parallelism_config:
        parallelism = ParallelismConfig()
        found["parallelism"] = {name: getattr(parallelism, name) for name in PARALLELISM}
        total = parallelism.total_size
        if total > 1 and total != args.num_processes:
            raise ValueError(f"a layout of {total} on {args.num_processes} processes")
    if args.use_fsdp:
        plugin = FullyShardedDataParallelPlugin()
        found["fsdp"] = {name: str(getattr(plugin, name)) for name in FSDP}
    if args.use_deepspeed:
        found["deepspeed"] = {name: getattr(args, name) for name in DEEPSPEED}
    return found
