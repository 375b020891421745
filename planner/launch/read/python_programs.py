"""Python programs and notebooks: their calls as options of the tools that they call.

Read as text, never run. Sources of names and defaults: vLLM 0.33 ``vllm/entrypoints/llm.py``;
SGLang 0.5 ``srt/entrypoints/engine.py``; TensorRT-LLM ``llmapi/llm.py``; LMDeploy 0.16
``lmdeploy/api.py`` and ``messages.py``; PEFT 0.21
``tuners/lora/config.py`` and ``utils/other.py``; Transformers 5 ``utils/quantization_config.py``;
Unsloth at 0050c73, ``unsloth/models/loader.py`` (``from_pretrained``: 4 bits, 2,048 tokens) and
``llama.py`` (``get_peft_model``: rank 16, all matrices, checkpoints of layers in host memory).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.base import read_files
from planner.documents.python_calls import (
    Call,
    UnknownValue,
    Value,
    parse_calls,
    parse_functions,
    to_shell_word,
)
from planner.documents.shell.edits import LARGEST, ParsedOption, implied_option
from planner.documents.yaml_tree import flattened, plain_text
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases, program_defaults
from planner.launch.read import torchtitan_functions
from planner.launch.read.hf_trainer.program_parts import (
    complete_group,
    has_other_head,
    is_model_load,
    tokenized_length,
    unread_parts,
)
from planner.launch.read.nemo_programs import nemo_configurations
from planner.launch.read.parsed_launch import ONGOING, JobResources, ParsedCommand
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers, target_of, xtuner
from planner.launch.wrappers.read_ray_serve import CONFIG

_ENGINES = {
    "vllm": ("LLM", "AsyncEngineArgs", "EngineArgs"),
    "sglang": ("Engine", "ServerArgs"),
    "tensorrt_llm": ("LLM",),
    "lmdeploy": ("pipeline", "AsyncEngine"),
}
_ENGINE_KEYS = {
    "vllm": {"tensor_parallel_size", "gpu_memory_utilization", "max_model_len"},
    "sglang": {"tp_size", "mem_fraction_static", "context_length"},
}
"""Keys of mappings with a model that are the options of an engine."""
_MODEL_ARGUMENT = {"vllm": "model", "sglang": "model_path", "tensorrt_llm": "model"}
_ARGUMENT_CLASSES = ("TrainingArguments", "Seq2SeqTrainingArguments")
_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
_LOADING_KEYWORDS = (
    *("torch_dtype", "dtype", "attn_implementation", "use_flash_attention_2"),
    *("load_in_4bit", "load_in_8bit"),
)
_LORA_RANK = 8
_UNSLOTH_DEFAULTS = {row.into: row.word for row in program_defaults("unsloth")}
_KBIT_PREPARATIONS = ("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
_CHECKPOINTING_METHOD = "gradient_checkpointing_enable"
_ZERO3_INIT = "--zero3_init_flag"
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len")

# Of Ray Serve LLM, and of Ray Data: ray-project/ray 2.50, python/ray/data/llm.py.
_RAY_CONFIGS = (CONFIG, "vLLMEngineProcessorConfig", "SGLangEngineProcessorConfig")
_SGLANG_KEYWORDS = {"model_path", "tp_size", "mem_fraction_static"}
_POOLS = ("prefill", "decode")
# Sections of nanotron's Config, huggingface/nanotron src/nanotron/config/config.py.
_NANOTRON_SECTIONS = {"parallelism", "tokens", "model", "optimizer"}

SUPPORTED_CALLS = (
    "LLM and EngineArgs of vLLM, Engine of SGLang, LLM of TensorRT-LLM, pipeline of LMDeploy, "
    "LLMConfig of Ray Serve, "
    "TrainingArguments of Transformers, SFTConfig, DPOConfig and their like of TRL, "
    "FastLanguageModel of Unsloth"
)


@dataclass(kw_only=True)
class _CallOptions:
    """Builder of a command of one tool; the first option of a name counts."""

    target: LaunchTarget
    options: dict[str, ParsedOption] = field(default_factory=dict)
    unknown: list[ParsedOption] = field(default_factory=list)
    files: dict[str, ParsedCommand] = field(default_factory=dict)

    def put(self, name: str, value: Value, line: int) -> None:
        """Add an option with a keyword's value, unless the value is None or the option is set."""
        option = self.target.options.find(f"--{name}")
        table_name = option.name if option else f"--{name}"
        if value is None or table_name in self.options:
            return
        if option is None:
            self.unknown.append(_parsed_option(f"--{name}", value, line))
        elif option.is_flag and isinstance(value, bool):
            if not value:
                negation = self.target.options.find(f"--no-{table_name.lstrip('-')}")
                table_name = negation.name if negation is not None and negation.is_flag else ""
            if table_name:
                self.options[table_name] = _parsed_option(table_name, [], line)
        else:
            self.options[table_name] = _parsed_option(table_name, value, line)

    def put_section(self, name: str, value: Mapping[str, Value], line: int) -> None:
        """Add a mapping of the program as keys of a section."""
        for key, part in flattened({name: {**value}}):
            self.options.setdefault(key, _parsed_option(key, part, line))

    def build(self, text: str, name: str, line: int, **fields: Any) -> ParsedCommand:
        """Return the command with these options; ``text`` and ``name`` are those of the file."""
        unknown = (*self.unknown, *fields.pop("unknown", ()))
        return ParsedCommand(
            target=self.target.name,
            name=name,
            text=text,
            line=line,
            options=self.options,
            unknown=unknown,
            files=self.files,
            **fields,
        )

    def put_implied(self, name: str, text: str) -> None:
        """Add an option that the program's tool implies, unless it is set."""
        if f"--{name}" not in self.options and name not in self.options:
            self.options[f"--{name}"] = implied_option(f"--{name}", text)


def _parsed_option(option: str, value: Value, line: int) -> ParsedOption:
    """Return an option with a Python value as texts; None for texts that the program computes."""
    values = value if isinstance(value, list) else [value]
    unknown = [entry for entry in values if isinstance(entry, UnknownValue | Call)]
    texts = tuple(
        None
        if isinstance(entry, UnknownValue | Call)
        else json.dumps(entry, default=_unknown_reason)
        if isinstance(entry, dict | list)
        else plain_text(entry)
        for entry in values
    )
    return ParsedOption(
        option=option,
        texts=texts,
        line=line,
        spans=(None,) * len(texts),
        full_span=None,
        unknown="; ".join(_unknown_reason(entry) for entry in unknown),
    )


def _unknown_reason(value: UnknownValue | Call) -> str:
    return (
        value.why if isinstance(value, UnknownValue) else f"{value.name}(...) is not a plain value"
    )


def servers_of_program(calls: Sequence[Call], text: str, name: str) -> Iterator[ParsedCommand]:
    """Yield a command for each server and training that the calls of a program start.

    If there is none, for each mapping with the options of an engine and its model.
    Raises LaunchError if it trains something that is not predicted.
    """
    commands = [*_started_by_calls(calls, text, name)]
    yield from commands
    for call in calls if not commands else ():
        tool = next((t for t, keys in _ENGINE_KEYS.items() if keys & {*call.keywords}), "")
        if call.name == "dict" and tool and _MODEL_ARGUMENT[tool] in call.keywords:
            yield _server_command(call, tool, text, name)


def _started_by_calls(calls: Sequence[Call], text: str, name: str) -> Iterator[ParsedCommand]:
    """Yield a command for each server and training that calls of known classes start."""
    defaults = {name: default for call in calls if call.ends("set_defaults")
                for name, default in call.keywords.items()}  # fmt: skip
    for call in calls:
        tool = _engine_tool(call, calls)
        if tool and call.rest and not call.keywords:  # takes all options of the parser
            call = replace(call, keywords=defaults)
        if tool and not (call.rest and not call.keywords):
            yield _server_command(call, tool, text, name)
        elif call.ends(*_RAY_CONFIGS) and call.keywords:
            yield served_by_ray(call, _pool_of(call, calls), text, name)
    trainings = [
        call
        for call in calls
        if call.ends(*_ARGUMENT_CLASSES, *option_aliases("trl"))
        and call.keywords
        and not call.is_of_program
    ]
    has_engine = any(_engine_tool(call, calls) for call in calls)
    has_trainer = any("train" in call.name.rpartition(".")[2].lower() for call in calls
                      if call not in trainings)  # fmt: skip
    for call in trainings if has_trainer or not has_engine else ():
        yield _training_command(call, calls, text, name)
    for nemo_values, line in nemo_configurations(calls, text):
        yield _configuration_command("megatron-bridge", nemo_values, text, name, line)
    if torchtitan_functions.has_torchtitan_functions(calls):
        for function, overrides in torchtitan_functions.configuration_functions(
            parse_functions(text, name)
        ):
            settings = {"function": function.name, **overrides}
            options_by_flag = {f"--{key}": value for key, value in settings.items()}
            yield _configuration_command("torchtitan", options_by_flag, text, name, function.line)
    for call in calls:
        if call.ends("Config") and {*call.keywords} >= _NANOTRON_SECTIONS:
            parts = {key: value for key, value in call.parts.items() if "." in key}
            yield _configuration_command("nanotron", parts, text, name, call.line)
    for line, xtuner_values in xtuner.read_trainer_config(calls, name):
        yield _configuration_command("xtuner", xtuner_values, text, name, line)
    if (training := xtuner.read_xtuner_config(calls, name)) is not None:
        values, line = training
        options = _CallOptions(target=target_of("transformers"))
        for key, value in values.items():
            options.put(key, value, line)
        yield options.build(text, name, line)


def merge_torchtitan_function(command: ParsedCommand, folder: Path) -> ParsedCommand:
    """Add to a torchtitan command the options of its configuration function, read from ``folder``.

    The command is unchanged if no file of the folder has the function.
    """
    module, config = command.options.get("--module"), command.options.get("--config")
    name = (module.single if module else None) or ""
    for file in torchtitan_functions.function_files(name):
        try:
            text = read_files.read_text(folder / file, LARGEST, LaunchError)
            commands = [*servers_of_program(parse_calls(text, file), text, file)]
        except LaunchError:
            continue
        for found_command in commands:
            function = found_command.options.get("--function")
            if config is not None and function is not None and function.single == config.single:
                remaining = {**command.options}
                del remaining["--config"]
                return replace(command, options={**found_command.options, **remaining})
    return command


def _configuration_command(
    target: str, values: Mapping[str, Value], text: str, name: str, line: int
) -> ParsedCommand:
    """Return a command with ``values`` as options; the options have no positions in the file."""
    options = {
        key: _parsed_option(key, value, line) for key, value in values.items() if value is not None
    }
    return ParsedCommand(target=target, name=name, text=text, line=line, options=options)


def _engine_tool(call: Call, calls: Sequence[Call]) -> str:
    """Return the program, such as ``vllm``, whose engine a call creates; "" if it creates none."""
    class_name = call.name.rpartition(".")[2]
    if call.module in _ENGINES:
        return call.module if class_name in _ENGINES[call.module] else ""
    if "." in call.name or class_name not in ("LLM", "AsyncEngineArgs", "EngineArgs"):
        return ""
    modules = {call.module for call in calls}  # imported with a star
    return "tensorrt_llm" if class_name == "LLM" and "tensorrt_llm" in modules else "vllm"


def _server_command(call: Call, tool: str, text: str, name: str) -> ParsedCommand:
    """Return the command with the options of a Python call that creates an engine of ``tool``."""
    options = _CallOptions(target=readers()[tool.replace("_", "-")])
    model_option = implied_option("", call.name.rpartition(".")[2], call.line)
    if tool == "lmdeploy":  # the model is a word of its commands
        model_option = _parsed_option(
            "", call.keywords.get("model_path", _first_argument(call)), call.line
        )
    elif call.positional:
        options.put(_MODEL_ARGUMENT[tool], call.positional[0], call.line)
    for key, value in (
        _lmdeploy_options(call.keywords) if tool == "lmdeploy" else call.keywords.items()
    ):
        line = call.lines.get(key, call.line)
        plain_value = dict(value.keywords) if isinstance(value, Call) else value
        if tool == "tensorrt_llm" and isinstance(plain_value, dict):
            options.put_section(key, plain_value, line)
        elif isinstance(value, Call):
            options.put(key, json.dumps(plain_value, default=str), line)
        else:
            options.put(key, value, line)
    return options.build(
        text, name, call.line, unknown=_unknown_keywords(call), positional=(model_option,)
    )


def _unknown_keywords(call: Call) -> tuple[ParsedOption, ...]:
    """The keyword mapping of a call with unreadable keys, as an unknown option."""
    return (_parsed_option("**", UnknownValue(why=call.rest), call.line),) if call.rest else ()


def _lmdeploy_options(values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Yield LMDeploy's engine options; the class of the configuration sets ``backend``."""
    for value in values.values():
        if isinstance(value, Call) and value.ends("TurbomindEngineConfig", "PytorchEngineConfig"):
            yield from value.keywords.items()
            yield "backend", "pytorch" if value.ends("PytorchEngineConfig") else "turbomind"


def _pool_of(config: Call, calls: Sequence[Call]) -> str:
    """Return the pool of an engine configuration, ``prefill`` or ``decode``; "" if it has none."""
    for call in calls:
        first_argument = _first_argument(call)
        if isinstance(first_argument, Call) and first_argument.line == config.line:
            prefix = str(call.keywords.get("name_prefix") or "").lower()
            return next((pool for pool in _POOLS if prefix.startswith(pool)), "")
        keywords = {**call.keywords, **_mapping(first_argument)}
        for pool in _POOLS:
            pool_config = keywords.get(f"{pool}_config")
            if isinstance(pool_config, Call) and pool_config.line == config.line:
                return pool
    return ""


def _mapping(value: Value) -> Mapping[str, Value]:
    return value.keywords if isinstance(value, Call) else value if isinstance(value, dict) else {}


def served_by_ray(config: Call, pool: str, text: str, name: str) -> ParsedCommand:
    """Return the command of the engine replicas that Ray Serve or Ray Data configures.

    With autoscaling, the minimum counts; a replica takes up to ``max_ongoing_requests`` at once.
    """
    keywords, line = config.keywords, config.lines.get("engine_kwargs", config.line)
    kwargs, loading = (
        _mapping(keywords.get(key)) for key in ("engine_kwargs", "model_loading_config")
    )
    is_sglang = bool(_SGLANG_KEYWORDS & {*kwargs}) or config.ends(_RAY_CONFIGS[-1])
    options = _CallOptions(target=target_of("sglang" if is_sglang else "vllm"))
    for key, value in kwargs.items():
        options.put(key, value, line)
    source = keywords.get("model_source") or loading.get("model_source")
    model = source if isinstance(source, str) else loading.get("model_id")
    options.put("model_path" if is_sglang else "model", model, config.line)
    if pool:
        options.put("disaggregation-mode", pool, config.line)
    deployment = _mapping(keywords.get("deployment_config"))
    min_replicas = _mapping(deployment.get("autoscaling_config")).get("min_replicas")
    copies = [deployment.get("num_replicas"), min_replicas, keywords.get("concurrency")]
    number = next((copy for copy in copies if isinstance(copy, int) and copy > 0), 1)
    if isinstance(max_ongoing := deployment.get("max_ongoing_requests"), int):
        options.options[ONGOING] = _parsed_option(
            ONGOING, max_ongoing, config.lines.get("deployment_config", line)
        )
    gpu = keywords.get("accelerator_type")
    resources = JobResources(
        gpu=re.sub(r"-(\d+)G$", r"-\1GB", gpu) if isinstance(gpu, str) else None,
        copies=implied_option("replicas", str(number), config.line),
    )
    return options.build(text, name, config.line, resources=resources)


def _training_command(call: Call, calls: Sequence[Call], text: str, name: str) -> ParsedCommand:
    """Return the training that a call of training arguments starts, with its LoRA adapters."""
    is_unsloth = any(call.ends(*_unsloth_methods("from_pretrained")) for call in calls)
    options = _CallOptions(target=target_of("transformers"))
    class_name = call.name.rpartition(".")[2]
    trainer_classes = option_aliases("trainer class")
    trainers = [call for call in calls if call.ends(*trainer_classes)]
    objective = option_aliases("trl").get(class_name) or next(
        (trainer_classes[trainer.name.rpartition(".")[2]] for trainer in trainers), "sft"
    )
    keywords = complete_group(call) if is_unsloth else call.keywords
    for key, value in keywords.items():
        line = call.lines.get(key, call.line)
        if key == "deepspeed" and isinstance(value, dict):
            deepspeed_options = {
                path: _parsed_option(path, entry, line) for path, entry in flattened({**value})
            }
            options.files["deepspeed"] = ParsedCommand(
                target="deepspeed", name=name, text=text, line=line, options=deepspeed_options
            )
            options.put(key, "deepspeed", line)
        elif key == "fsdp_config" and isinstance(value, dict):
            options.put_section(key, value, line)
        elif is_unsloth and key in ("packing", "max_length"):
            if key == "max_length":  # Unsloth's; TRL's has other defaults
                options.put("max_seq_length", value, line)
        else:
            options.put(key, value, line)
    for trainer in trainers:
        for key in (*_LENGTHS, "packing"):
            if key in trainer.keywords and not (is_unsloth and key == "packing"):
                length_option = (
                    "max_seq_length"
                    if is_unsloth or class_name in _ARGUMENT_CLASSES
                    else "max_length"
                )
                options.put(
                    key if key == "packing" else length_option, trainer.keywords[key], trainer.line
                )
    if is_unsloth:
        _put_unsloth(options, calls)
    if call.keywords.get("deepspeed") and _loads_before(call, calls, text, name):
        options.options[_ZERO3_INIT] = implied_option(_ZERO3_INIT, "false", call.line)
    loads = _put_model(options, calls, trainers)
    if class_name in _ARGUMENT_CLASSES and (length := tokenized_length(calls)) is not None:
        options.put("max_seq_length", *length)
    is_named = is_unsloth or not {"model_name_or_path", "--model_name_or_path"}.isdisjoint(
        options.options
    )
    unread = [
        implied_option(part, "", line)
        for part, line in unread_parts(
            calls, () if is_unsloth else loads, objective, is_named=is_named
        )
    ]
    _put_adapters(options, calls, class_name in option_aliases("trl") and not is_unsloth, name)
    command_words: tuple[str, ...] = ()
    if class_name in option_aliases("trl") and not is_unsloth:
        command_words = ("trl", objective)
    elif objective != "sft":
        options.put_implied("rlhf_type", objective)
    return options.build(
        text,
        name,
        call.line,
        unknown=(*_unknown_keywords(call), *unread),
        positional=tuple(implied_option("", word, call.line) for word in command_words),
        resources=JobResources(
            num_gpus=implied_option("Unsloth", "1", call.line) if is_unsloth else None
        ),
    )


def _loads_before(arguments: Call, calls: Sequence[Call], text: str, name: str) -> bool:
    """Whether a program loads its model before it makes the training arguments.

    Transformers then does not know that ZeRO-3 will shard the weights, and each process loads them
    all (huggingface/transformers 5, docs/source/en/deepspeed.md: the arguments come first). Calls
    in different functions have no known order.
    """
    functions = parse_functions(text, name)

    def function_of(call: Call) -> str:
        lines = ((each.name, [inner.line for inner in each.calls]) for each in functions)
        return next((name for name, inside in lines if call.line in inside), "")

    loads = (call for call in calls if re.search(r"Model\w*\.from_pretrained$", call.name))
    scope = function_of(arguments)
    return any(call.line < arguments.line and function_of(call) == scope for call in loads)


def _unsloth_methods(method: str) -> tuple[str, ...]:
    return tuple(f"{class_name}.{method}" for class_name in _UNSLOTH)


def _put_unsloth(options: _CallOptions, calls: Sequence[Call]) -> None:
    """Add Unsloth's implied options to ``options``: one process, Unsloth's kernels, and LoRA
    adapters unless the calls select full fine-tuning.
    """
    loaded = next(call for call in calls if call.ends(*_unsloth_methods("from_pretrained")))
    peft = next((call for call in calls if call.ends(*_unsloth_methods("get_peft_model"))), None)
    keywords = loaded.keywords
    line = loaded.lines.get("model_name", loaded.line)
    options.put("model_name_or_path", keywords.get("model_name", _first_argument(loaded)), line)
    options.put(
        "max_seq_length",
        keywords.get("max_seq_length", int(_UNSLOTH_DEFAULTS["--max_seq_length"])),
        loaded.line,
    )
    options.put_implied("use_unsloth", "true")
    if not {"--bf16", "bf16", "--fp16", "fp16"} & set(options.options):
        options.put_implied("bf16", "true")
    checkpointing = keywords.get(
        "use_gradient_checkpointing", _UNSLOTH_DEFAULTS["--gradient_checkpointing"]
    )
    is_full_finetuning = keywords.get("full_finetuning") is True
    if is_full_finetuning and keywords.get("float32_mixed_precision") is not True:
        options.put_implied("dtype", "bfloat16")  # see hf_trainer/weights.csv
    if not is_full_finetuning:
        options.put_implied("use_lora", "true")
        four_bits = keywords.get("load_in_4bit", True)
        if keywords.get("load_in_8bit") is True:
            options.put_implied("load_in_8bit", "true")
        elif four_bits is True:
            options.put_implied("load_in_4bit", "true")
            options.put_implied("use_bnb_nested_quant", "true")
        adapter_keywords = {} if peft is None else peft.keywords
        adapter_line = loaded.line if peft is None else peft.line
        rank = adapter_keywords.get("r", int(_UNSLOTH_DEFAULTS["--lora_r"]))
        options.put("lora_r", rank, adapter_line)
        modules = adapter_keywords.get(
            "target_modules", _UNSLOTH_DEFAULTS["--lora_target_modules"].split()
        )
        if modules == "all-linear" or (
            peft is not None and peft.ends("FastVisionModel.get_peft_model")
        ):
            modules = adapter_keywords.get("target_modules", "all-linear")
        options.put("lora_target_modules", modules, adapter_line)
        for key in ("modules_to_save", "layers_to_transform"):
            if value := adapter_keywords.get(key):
                options.put(option_aliases("peft")[key], value, adapter_line)
        checkpointing = adapter_keywords.get("use_gradient_checkpointing", checkpointing)
    for key in ("gradient_checkpointing", "--gradient_checkpointing"):
        options.options.pop(key, None)  # Unsloth's own switch counts
    options.put_implied(
        "gradient_checkpointing", str(checkpointing not in (False, "False", None)).lower()
    )
    if checkpointing == "unsloth":
        options.put_implied("activation_offloading", "true")


def _put_model(
    options: _CallOptions, calls: Sequence[Call], trainers: Sequence[Call]
) -> Sequence[Call]:
    """Add the first model that the calls load to ``options``; return the calls that load one."""
    last = max((trainer.line for trainer in trainers), default=None)
    loads = [  # what is loaded behind the trainer is the model that it made
        call for call in calls if is_model_load(call) and (last is None or call.line <= last)
    ]
    is_pairs = any(call.ends("RewardTrainer", "RewardConfig") for call in calls)
    if not is_pairs:  # models that judge are not what is trained
        loads.sort(key=has_other_head)
    for call in loads[:1]:
        model_name = call.keywords.get("pretrained_model_name_or_path", _first_argument(call))
        options.put("model_name_or_path", model_name, call.line)
        for key in _LOADING_KEYWORDS:
            if key in call.keywords and call.keywords[key] != "auto":
                options.put(key, call.keywords[key], call.lines.get(key, call.line))
        if isinstance(device_map := call.keywords.get("device_map"), str):
            options.put_implied("device_map", device_map)
    for call in trainers:
        model_argument = call.keywords.get("model", _first_argument(call))
        if isinstance(model_argument, str):
            options.put("model_name_or_path", model_argument, call.line)
    bits = next((call for call in calls if call.ends("BitsAndBytesConfig")), None)
    if loads and not any(call.rest or "quantization_config" in call.keywords for call in loads):
        bits = None  # made, and given to no model
    if bits is not None and bits.keywords.get("load_in_4bit") is True:
        options.put("load_in_4bit", True, bits.lines["load_in_4bit"])
        nested = bits.keywords.get("bnb_4bit_use_double_quant", False)
        options.put("use_bnb_nested_quant", nested, bits.line)
        options.put(
            "bnb_4bit_quant_storage", bits.keywords.get("bnb_4bit_quant_storage"), bits.line
        )
    elif bits is not None and bits.keywords.get("load_in_8bit") is True:
        options.put("load_in_8bit", True, bits.lines["load_in_8bit"])
    preparation = next(
        (call for call in calls if call.ends(*_KBIT_PREPARATIONS, _CHECKPOINTING_METHOD)), None
    )
    if (
        preparation is not None
        and preparation.keywords.get("use_gradient_checkpointing") is not False
    ):
        for key in ("gradient_checkpointing", "--gradient_checkpointing"):
            options.options.pop(key, None)  # the model's own setting counts, not the Trainer's
        options.put_implied("gradient_checkpointing", "true")
    precisions = [_option_text(options, "torch_dtype"), _option_text(options, "dtype")]
    if bits is not None:
        precisions.append(bits.keywords.get("bnb_4bit_compute_dtype"))
    if "bfloat16" in precisions and not {"--bf16", "bf16", "--fp16", "fp16"} & set(options.options):
        options.put_implied("bf16", "true")  # weights and activations
    return loads


def _first_argument(call: Call) -> Value:
    return call.positional[0] if call.positional else None


def _option_text(options: _CallOptions, name: str) -> Value:
    option = options.options.get(name) or options.options.get(f"--{name}")
    return None if option is None else option.single


def _put_adapters(options: _CallOptions, calls: Sequence[Call], is_trl: bool, name: str) -> None:
    """Add the options of PEFT's LoRA adapters to ``options``.

    Raises LaunchError for adapters of other kinds.
    """
    for call in calls:
        class_name = call.name.rpartition(".")[2]
        if (
            call.module == "peft"
            and class_name.endswith("Config")
            and class_name not in ("LoraConfig", "PeftConfig")
        ):
            raise LaunchError(
                f"{name}: line {call.line}: {class_name} of PEFT is not supported in a program: "
                "LoraConfig is."
            )
    lora = next((call for call in calls if call.ends("LoraConfig")), None)
    adapted = next(
        (call for call in calls if call.ends("PeftModel.from_pretrained")
         and call.keywords.get("is_trainable") is True),
        None,
    )  # fmt: skip
    if lora is None and adapted is not None:
        options.put("use_peft" if is_trl else "use_lora", True, adapted.line)
    if lora is None:
        return
    options.put("use_peft" if is_trl else "use_lora", True, lora.line)
    for key, option in option_aliases("peft").items():
        value = lora.keywords.get(key)
        if key == "r" and value is None:
            options.put_implied(option, str(_LORA_RANK))
        elif isinstance(value, Call) and value.ends("find_all_linear_names"):  # of qlora.py
            options.put(option, "all-linear", lora.line)
        elif value not in (None, False):
            options.put(option, value, lora.lines.get(key, lora.line))


def program_adapters(calls: Sequence[Call], name: str) -> Mapping[str, ParsedOption]:
    """Return the options of the LoRA adapters that a program surely trains; empty without any.

    Raises LaunchError for adapters of other kinds.
    """
    sure_calls = [call for call in calls if call.is_sure]
    options = _CallOptions(target=target_of("transformers"))
    _put_adapters(options, sure_calls, False, name)
    return options.options


_PROCESSES = ("Popen", "run", "call", "check_call", "check_output", "system", "execv", "execvp")
_GPU_DECORATORS = ("function", "cls", "service")


def process_commands(calls: Sequence[Call]) -> Iterator[tuple[int, str]]:
    """Yield the commands that a program starts as processes, each after its line number."""
    for call in calls:
        values = call.positional[-1:] if call.ends("execv", "execvp") else call.positional[:1]
        if not call.ends(*_PROCESSES) or call.module not in ("subprocess", "os"):
            continue
        for value in values or (call.keywords.get("args"),):
            if isinstance(value, list):
                words = map(to_shell_word, value)
                yield call.line, " ".join(w if w == "$UNTOLD" else shlex.quote(w) for w in words)
            elif isinstance(value, str):
                yield call.line, value


def modal_concurrency(calls: Sequence[Call]) -> dict[str, ParsedOption]:
    """Return the most concurrent requests of a Modal function; empty if not specified.

    Example: ``@modal.concurrent(max_inputs=32)``.
    """
    for call in calls:
        max_inputs = call.keywords.get("max_inputs")
        if call.ends("concurrent") and isinstance(max_inputs, int):
            return {ONGOING: implied_option("max_inputs", str(max_inputs), call.line)}
    return {}


def program_resources(calls: Sequence[Call]) -> JobResources:
    """Return the GPUs that a function of Modal or a service of BentoML requests.

    ``gpu="H100:8"`` (modal.com/docs/guide/gpu), ``resources={"gpu": 8, "gpu_type": "nvidia-h100"}``
    (docs.bentoml.com, reference/bentoml/configurations).
    """
    for call in (call for call in calls if call.ends(*_GPU_DECORATORS)):
        gpu, resources = call.keywords.get("gpu"), call.keywords.get("resources")
        if isinstance(gpu, str) and gpu:
            gpu_name, _, count = gpu.partition(":")
            count = count or "1"
        elif isinstance(resources, dict) and isinstance(resources.get("gpu"), int):
            gpu_name, count = str(resources.get("gpu_type") or ""), str(resources["gpu"])
        else:
            continue
        return JobResources(
            gpu=gpu_name.rstrip("!+") or None, gpus_per_node=implied_option("gpu", count, call.line)
        )
    return JobResources()


def explain_no_calls(path: object, calls: Sequence[Call]) -> str:
    """Return the error message for a program without a supported call."""
    if any(call.ends("HfArgumentParser", "TrlParser") for call in calls):
        return (
            f"{path}: takes its options from the command line: give the command that starts it, "
            "in a file such as run.sh."
        )
    training_classes = (*_ARGUMENT_CLASSES, *option_aliases("trl"))
    for call in calls:
        if call.rest and (_engine_tool(call, calls) or call.ends(*training_classes)):
            return (
                f"{path}: line {call.line}: {call.name}: {call.rest}: give the command that "
                "starts the program, or a program with these values in its text."
            )
    return (
        f"{path}: calls nothing that planner knows with its values in the text: {SUPPORTED_CALLS}."
    )
