"""ColossalAI: ``colossalai run`` of its applications and benchmark, which is read and not written.

Source: hpcaitech/ColossalAI at 4f9953b, ``applications/Colossal-LLaMA/train.py``,
``applications/ColossalChat/examples/training_scripts``, ``examples/language/llama/benchmark.py``:
``models/colossalai.csv`` has what their parsers take where a command says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import LaunchError
from planner.launch.option_table import shipped_rows
from planner.launch.targets.trained import as_it_is, ranks_of, read_alone
from planner.launch.understood import Gathered, Reading, flag, number, told

_PLUGINS = {"zero1": 1, "zero2": 2, "zero2_cpu": 2, "low_level_zero": 1, "ddp": 0, "torch_ddp": 0,
            "torch_ddp_fp16": 0, "fsdp": 3, "fsdp_cpu": 3, "torch_fsdp": 3}  # fmt: skip
_HYBRID = ("3d", "3d_cpu")
_CHUNKED = ("gemini", "gemini_auto")
_SCRIPTS = {row["script"]: row for row in shipped_rows("models/colossalai.csv")}
_SIZES = {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"}
_BENCHMARK = "benchmark"
_RANK = 8
_NEAREST = (
    "ColossalAI's plugin {plugin} has no profile of its own: predicted as {profile}, the nearest."
)


def starts(words: Sequence[str]) -> bool:
    """Whether a command trains with one of its plugins; ``colossalai run`` is taken off before.

    >>> starts(["train_sft.py", "--plugin", "zero2"]), starts(["train_sft.py", "--lr", "1e-4"])
    (True, False)
    """
    known = {*_PLUGINS, *_HYBRID, *_CHUNKED}
    pairs = zip(words, [*words[1:], ""], strict=True)
    is_told = any(
        (name in ("--plugin", "-p") and value in known)
        or (name.startswith("--plugin=") and name.partition("=")[2] in known)
        for name, value in pairs
    )
    return is_told or (_script(words) == _BENCHMARK and {"-g", "-x"} <= {*words})


def _script(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2].removesuffix(".py") if words else ""


def _tell(reading: Reading, found: Gathered) -> None:
    """What no row tells of a command."""
    script = _script([word_option.single or "" for word_option in reading.found.positional])
    row = _SCRIPTS.get(script, {})
    plugin = told(reading, "--plugin", "-p") or "gemini"
    if plugin in _CHUNKED:
        raise LaunchError(
            f"{reading.place}: plugin {plugin} keeps weights and states in chunks that move "
            "between the GPUs and host memory as it runs: no profile and no published runs of that "
            "are here. zero2, 3d and the others are predicted; the same training under ZeRO-3 is "
            "with --framework deepspeed, without --from."
        )
    found.assume("training_objective", row.get("objective", "sft"), "that of the script")
    precision = row.get("precision", "fp16")
    found.assume("precision", precision, f"{precision} is that of the script")
    _model(reading, found, is_benchmark=script == _BENCHMARK)
    _batch(reading, found, row, _split(reading, found, plugin))
    _adapter(reading, found)


def _model(reading: Reading, found: Gathered, *, is_benchmark: bool) -> None:
    named = ("--pretrained", "--pretrain", "--model_name_or_path", "--config", "-c")
    model = next(filter(None, map(reading.text, named)), None)
    if model is None and is_benchmark:
        model = "7b"
    found.need("model", model and _SIZES.get(model, model))


def _split(reading: Reading, found: Gathered, plugin: str) -> int | None:
    """Who shares the model, the profile that is nearest, and the ranks that share the batch."""
    values = found.values
    stage = number(reading, "--zero", "--zero_stage") or 0
    mode, ranks = told(reading, "--sp_mode") or "split_gather", number(reading, "--sp") or 1
    is_sequence = flag(reading, "--enable_sequence_parallelism") or ranks > 1
    is_context = is_sequence and mode not in ("split_gather", "ring")
    sizes = {name: int(values[f"{name}_parallel"]) for name in ("tensor", "pipeline")}
    values["context_parallel"] = ranks if is_context else 1
    if is_context:
        values["cp_comm_type"] = "a2a"
    values["sequence_parallel"] = is_sequence and not is_context and sizes["tensor"] > 1
    split = max(*sizes.values(), int(values["context_parallel"]))
    profile = "Megatron-LM" if plugin in _HYBRID and split > 1 else "DeepSpeed"
    if plugin in _HYBRID:
        values["zero_stage"] = stage
        if profile == "Megatron-LM" and stage > 1:
            values["zero_stage"] = 1
            found.notes.append("ZeRO-2 beside a split model is predicted as ZeRO-1.")
    else:
        values["zero_stage"] = _PLUGINS[plugin]
        profile = "FSDP" if "fsdp" in plugin else profile
    if plugin.endswith("_cpu"):
        values["offload"] = "optimizer_weights" if "fsdp" in plugin else "optimizer"
    values["framework"] = profile
    found.notes.append(_NEAREST.format(plugin=plugin, profile=profile))
    return ranks_of(reading, found, **sizes, context=int(values["context_parallel"]))


def _batch(reading: Reading, found: Gathered, row: dict[str, str], ranks: int | None) -> None:
    """Sequences of a process and of a step, and their length."""
    values = found.values
    length = number(reading, "--max_length", "--max_len", "-l")
    if length is None and row:
        found.assume("sequence_length", int(row["length"]), f"{row['length']} is the script's")
    else:
        found.need("sequence_length", length)
    own = number(reading, "--batch_size", "--micro_batch_size", "-b")
    batch = own or (int(row["batch"]) if row else None)
    steps = number(reading, "--accumulation_steps") or (int(row["accumulation"]) if row else 1)
    micro = batch
    if int(values["pipeline_parallel"]) > 1:
        micro = number(reading, "--microbatch_size", "--mbs") or 1
    found.need("micro_batch_size", micro)
    if ranks is not None and batch:
        values["global_batch_size"] = batch * steps * ranks


def _adapter(reading: Reading, found: Gathered) -> None:
    values = found.values
    rank = number(reading, "--lora_rank") or _rank_beside(reading)
    if rank is None:
        values.pop("lora_rank", None)
        values["adapter"] = "none"
        return
    values |= {"adapter": "lora", "lora_rank": rank}
    found.notes.append("Adapters are predicted on all linear layers.")
    values["lora_targets"] = "all_linear"


def _rank_beside(reading: Reading) -> int | None:
    """The rank in the file of ``--lora_config``, PEFT's where none stands beside."""
    name = reading.text("--lora_config")
    if name is None:
        return None
    document = reading.found.files.get(name)
    given = document.options.get("r") if document is not None else None
    rank = (given.single if given is not None else None) or ""
    return int(rank) if rank.isdecimal() else _RANK


TARGET = read_alone("colossalai", _tell, spelled=as_it_is, starts=starts)
