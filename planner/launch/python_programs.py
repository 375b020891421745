"""Programs in Python and notebooks: what their calls start, as options of the tools they call.

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
from planner.launch import torchtitan_functions
from planner.launch.helm_charts import CONFIG
from planner.launch.option_table import option_aliases
from planner.launch.parsed_launch import ONGOING, JobResources, ParsedCommand
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers, target_of, xtuner

_ENGINES = {
    "vllm": ("LLM", "AsyncEngineArgs", "EngineArgs"),
    "sglang": ("Engine", "ServerArgs"),
    "tensorrt_llm": ("LLM",),
    "lmdeploy": ("pipeline",),
}
_FIRST = {"vllm": "model", "sglang": "model_path", "tensorrt_llm": "model"}
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_TRAINERS = {"SFTTrainer": "sft", "DPOTrainer": "dpo", "ORPOTrainer": "orpo", "KTOTrainer": "kto"}
_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
_LOADED = ("torch_dtype", "dtype", "attn_implementation", "use_flash_attention_2", "load_in_4bit",
           "load_in_8bit")  # fmt: skip
_LORA_RANK, _UNSLOTH_RANK = 8, 16
_ALL_MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_PREPARED = ("prepare_model_for_kbit_training", "prepare_model_for_int8_training")
_REPEATING = "gradient_checkpointing_enable"
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len")

# Of Ray Serve LLM, and of Ray Data: ray-project/ray 2.50, python/ray/data/llm.py.
_OF_RAY = (CONFIG, "vLLMEngineProcessorConfig", "SGLangEngineProcessorConfig")
_OF_SGLANG = {"model_path", "tp_size", "mem_fraction_static"}
_POOLS = ("prefill", "decode")
# Sections of nanotron's Config, huggingface/nanotron src/nanotron/config/config.py.
_OF_NANOTRON = {"parallelism", "tokens", "model", "optimizer"}

SUPPORTED_CALLS = (
    "LLM and EngineArgs of vLLM, Engine of SGLang, LLM of TensorRT-LLM, pipeline of LMDeploy, "
    "LLMConfig of Ray Serve, "
    "TrainingArguments of Transformers, SFTConfig, DPOConfig and their like of TRL, "
    "FastLanguageModel of Unsloth"
)


@dataclass(kw_only=True)
class _CallOptions:
    """Options of one tool while they are gathered, the first of a name first."""

    target: LaunchTarget
    options: dict[str, ParsedOption] = field(default_factory=dict)
    unknown: list[ParsedOption] = field(default_factory=list)
    files: dict[str, ParsedCommand] = field(default_factory=dict)

    def put(self, name: str, value: Value, line: int) -> None:
        """An option as a keyword gives it; None says nothing."""
        option = self.target.options.find(f"--{name}")
        own = option.name if option else f"--{name}"
        if value is None or own in self.options:
            return
        if option is None:
            self.unknown.append(_parsed_option(f"--{name}", value, line))
        elif option.is_flag and isinstance(value, bool):
            if not value:
                off = self.target.options.find(f"--no-{own.lstrip('-')}")
                own = off.name if off is not None and off.is_flag else ""
            if own:
                self.options[own] = _parsed_option(own, [], line)
        else:
            self.options[own] = _parsed_option(own, value, line)

    def parts(self, name: str, value: Mapping[str, Value], line: int) -> None:
        """A mapping in the program, as the keys of a section."""
        for key, each in flattened({name: {**value}}):
            self.options.setdefault(key, _parsed_option(key, each, line))

    def found(self, text: str, name: str, line: int, **more: Any) -> ParsedCommand:
        """What was gathered, of a program of this text and name."""
        unknown = (*self.unknown, *more.pop("unknown", ()))
        return ParsedCommand(
            target=self.target.name,
            name=name,
            text=text,
            line=line,
            options=self.options,
            unknown=unknown,
            files=self.files,
            **more,
        )

    def state(self, name: str, text: str) -> None:
        """What holds where the program says nothing."""
        if f"--{name}" not in self.options and name not in self.options:
            self.options[f"--{name}"] = implied_option(f"--{name}", text)


def _parsed_option(option: str, value: Value, line: int) -> ParsedOption:
    values = value if isinstance(value, list) else [value]
    untold = [one for one in values if isinstance(one, UnknownValue | Call)]
    texts = tuple(None if isinstance(one, UnknownValue | Call) else _text(one) for one in values)
    return ParsedOption(
        option=option,
        texts=texts,
        line=line,
        spans=(None,) * len(texts),
        full_span=None,
        unknown="; ".join(_why(one) for one in untold),
    )


def _why(value: UnknownValue | Call) -> str:
    return (
        value.why if isinstance(value, UnknownValue) else f"{value.name}(...) is not a plain value"
    )


def _text(value: Value) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, default=lambda one: _why(one))
    return plain_text(value)


def servers_of_program(calls: Sequence[Call], text: str, name: str) -> Iterator[ParsedCommand]:
    """What the calls of a program start: each server, and a training.

    Raises LaunchError if it trains something that is not predicted.
    """
    defaults = {key: one for call in calls if call.ends("set_defaults")
                for key, one in call.keywords.items()}  # fmt: skip
    for call in calls:
        tool = _engine(call, calls)
        if tool and call.rest and not call.keywords:  # all that a parser of engine arguments gives
            call = replace(call, keywords=defaults)
        if tool and not (call.rest and not call.keywords):
            yield _served(call, tool, text, name)
        elif call.ends(*_OF_RAY) and call.keywords:
            yield served_by_ray(call, _pool_of(call, calls), text, name)
    trainings = [
        call for call in calls if call.ends(*_ARGUMENTS, *option_aliases("trl")) and call.keywords
    ]
    for call in trainings:
        yield _trained(call, calls, text, name)
    yield from (_of_nemo(one, calls, text, name) for one in calls if one.ends(_OF_NEMO))
    if torchtitan_functions.is_of(calls):
        for function, settings in torchtitan_functions.configured(parse_functions(text, name)):
            told = {"function": function.name, **settings}
            dashed = {f"--{key}": value for key, value in told.items()}
            yield _stated("torchtitan", dashed, text, name, function.line)
    for call in calls:
        if call.ends("Config") and {*call.keywords} >= _OF_NANOTRON:
            parts = {key: value for key, value in call.parts.items() if "." in key}
            yield _stated("nanotron", parts, text, name, call.line)
    for line, given in xtuner.configured(calls, name):
        yield _stated("xtuner", given, text, name, line)
    if (own := xtuner.trained_by_xtuner(calls, name)) is not None:
        values, line = own
        options = _CallOptions(target=target_of("transformers"))
        for key, value in values.items():
            options.put(key, value, line)
        yield options.found(text, name, line)


def with_function(command: ParsedCommand, folder: Path) -> ParsedCommand:
    """A command of torchtitan with what the function sets that it names, if that stands beside."""
    module, config = command.options.get("--module"), command.options.get("--config")
    name = (module.single if module else None) or ""
    for place in torchtitan_functions.places(name):
        try:
            text = read_files.read_text(folder / place, LARGEST, LaunchError)
            found = [*servers_of_program(parse_calls(text, place), text, place)]
        except LaunchError:
            continue
        for one in found:
            own = one.options.get("--function")
            if config is not None and own is not None and own.single == config.single:
                taken = {**command.options}
                del taken["--config"]
                return replace(command, options={**one.options, **taken})
    return command


def _stated(
    target: str, values: Mapping[str, Value], text: str, name: str, line: int
) -> ParsedCommand:
    """A configuration whose options stand nowhere as they are."""
    options = {
        key: _parsed_option(key, value, line) for key, value in values.items() if value is not None
    }
    return ParsedCommand(target=target, name=name, text=text, line=line, options=options)


# NVIDIA/NeMo 2, scripts/performance/helpers.py, and llm/recipes/llama3_70b.py for adapters.
_OF_NEMO = "set_primary_perf_configs"


def _of_nemo(call: Call, calls: Sequence[Call], text: str, name: str) -> ParsedCommand:
    """A recipe of NeMo that a program changes for its benchmark; see there for what it sets."""
    recipe = next((one for one in calls if one.ends("pretrain_recipe", "finetune_recipe")), None)
    given: dict[str, Value] = {
        word: call.keywords.get(key) for key, word in option_aliases("nemo").items()
    }
    tensors = call.keywords.get("tp_size")
    given["model.sequence_parallel"] = isinstance(tensors, int) and tensors > 1
    if recipe is not None:
        given["--recipe"] = recipe.name.rpartition(".")[0].rpartition(".")[2] or None
        given["--seq_length"] = recipe.keywords.get("seq_length")
        if recipe.ends("finetune_recipe") and recipe.keywords.get("peft_scheme", "lora") == "lora":
            own = next((one.keywords for one in calls if one.ends("LoRA")), {})
            given |= {"--mode": "lora", "peft.dim": own.get("dim", 16)}
    return _stated("megatron-bridge", given, text, name, call.line)


def _engine(call: Call, calls: Sequence[Call]) -> str:
    """The tool of which a call makes an engine; empty where it does not."""
    last = call.name.rpartition(".")[2]
    if call.module in _ENGINES:
        return call.module if last in _ENGINES[call.module] else ""
    if "." in call.name or last not in ("LLM", "AsyncEngineArgs", "EngineArgs"):
        return ""
    used = {one.module for one in calls}  # imported with a star
    return "tensorrt_llm" if last == "LLM" and "tensorrt_llm" in used else "vllm"


def _served(call: Call, tool: str, text: str, name: str) -> ParsedCommand:
    options = _CallOptions(target=readers()[tool.replace("_", "-")])
    named = implied_option("", call.name.rpartition(".")[2], call.line)
    if tool == "lmdeploy":  # the model is a word of its commands
        named = _parsed_option("", call.keywords.get("model_path", _first(call)), call.line)
    elif call.positional:
        options.put(_FIRST[tool], call.positional[0], call.line)
    for key, value in _of_lmdeploy(call.keywords) if tool == "lmdeploy" else call.keywords.items():
        line = call.lines.get(key, call.line)
        inner = dict(value.keywords) if isinstance(value, Call) else value
        if tool == "tensorrt_llm" and isinstance(inner, dict):
            options.parts(key, inner, line)
        elif isinstance(value, Call):
            options.put(key, json.dumps(inner, default=str), line)
        else:
            options.put(key, value, line)
    return options.found(text, name, call.line, unknown=_rest(call), positional=(named,))


def _rest(call: Call) -> tuple[ParsedOption, ...]:
    """What a call is given by a mapping whose keys the text does not tell."""
    return (_parsed_option("**", UnknownValue(why=call.rest), call.line),) if call.rest else ()


def _of_lmdeploy(values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """The options of a pipeline's engine, whose class says which one it is."""
    for value in values.values():
        if isinstance(value, Call) and value.ends("TurbomindEngineConfig", "PytorchEngineConfig"):
            yield from value.keywords.items()
            yield "backend", "pytorch" if value.ends("PytorchEngineConfig") else "turbomind"


def _pool_of(config: Call, calls: Sequence[Call]) -> str:
    """The pool that a builder of disaggregated services is given a configuration for."""
    for call in calls:
        first = _first(call)
        if isinstance(first, Call) and first.line == config.line:
            prefix = str(call.keywords.get("name_prefix") or "").lower()
            return next((pool for pool in _POOLS if prefix.startswith(pool)), "")
        given = {**call.keywords, **_mapping(first)}
        for pool in _POOLS:
            own = given.get(f"{pool}_config")
            if isinstance(own, Call) and own.line == config.line:
                return pool
    return ""


def _mapping(value: Value) -> Mapping[str, Value]:
    return value.keywords if isinstance(value, Call) else value if isinstance(value, dict) else {}


def served_by_ray(config: Call, pool: str, text: str, name: str) -> ParsedCommand:
    """The replicas of a model that Ray Serve, or Ray Data, starts an engine in.

    They are as many as there are at least; each takes the requests that it is sent at once.
    """
    given, line = config.keywords, config.lines.get("engine_kwargs", config.line)
    kwargs, loading = (
        _mapping(given.get(key)) for key in ("engine_kwargs", "model_loading_config")
    )
    is_sglang = bool(_OF_SGLANG & {*kwargs}) or config.ends(_OF_RAY[-1])
    options = _CallOptions(target=target_of("sglang" if is_sglang else "vllm"))
    for key, value in kwargs.items():
        options.put(key, value, line)
    source = given.get("model_source") or loading.get("model_source")
    model = source if isinstance(source, str) else loading.get("model_id")
    options.put("model_path" if is_sglang else "model", model, config.line)
    if pool:
        options.put("disaggregation-mode", pool, config.line)
    deployed = _mapping(given.get("deployment_config"))
    least = _mapping(deployed.get("autoscaling_config")).get("min_replicas")
    copies = [deployed.get("num_replicas"), least, given.get("concurrency")]
    number = next((copy for copy in copies if isinstance(copy, int) and copy > 0), 1)
    if isinstance(most := deployed.get("max_ongoing_requests"), int):
        options.options[ONGOING] = _parsed_option(
            ONGOING, most, config.lines.get("deployment_config", line)
        )
    gpu = given.get("accelerator_type")
    world = JobResources(
        gpu=re.sub(r"-(\d+)G$", r"-\1GB", gpu) if isinstance(gpu, str) else None,
        copies=implied_option("replicas", str(number), config.line),
    )
    return options.found(text, name, config.line, resources=world)


def _trained(call: Call, calls: Sequence[Call], text: str, name: str) -> ParsedCommand:
    """The training that one call describes, with the model and the adapters beside it."""
    is_unsloth = any(one.ends(*_methods("from_pretrained")) for one in calls)
    options = _CallOptions(target=target_of("transformers"))
    kind = call.name.rpartition(".")[2]
    trainers = [one for one in calls if one.ends(*_TRAINERS)]
    objective = option_aliases("trl").get(kind) or next(
        (_TRAINERS[one.name.rpartition(".")[2]] for one in trainers), "sft"
    )
    for key, value in call.keywords.items():
        line = call.lines.get(key, call.line)
        if key == "deepspeed" and isinstance(value, dict):
            beside = {path: _parsed_option(path, each, line) for path, each in flattened({**value})}
            options.files["deepspeed"] = ParsedCommand(
                target="deepspeed", name=name, text=text, line=line, options=beside
            )
            options.put(key, "deepspeed", line)
        elif key == "fsdp_config" and isinstance(value, dict):
            options.parts(key, value, line)
        elif is_unsloth and key in ("packing", "max_length"):
            if key == "max_length":  # of its own, not TRL's, whose other defaults go with it
                options.put("max_seq_length", value, line)
        else:
            options.put(key, value, line)
    for one in trainers:
        for key in (*_LENGTHS, "packing"):
            if key in one.keywords and not (is_unsloth and key == "packing"):
                own = "max_seq_length" if is_unsloth or kind in _ARGUMENTS else "max_length"
                options.put(key if key == "packing" else own, one.keywords[key], one.line)
    if is_unsloth:
        _by_unsloth(options, calls)
    _model(options, calls, trainers)
    _adapters(options, calls, kind in option_aliases("trl") and not is_unsloth, name)
    words: tuple[str, ...] = ()
    if kind in option_aliases("trl") and not is_unsloth:
        words = ("trl", objective)
    elif objective != "sft":
        options.state("rlhf_type", objective)
    return options.found(
        text,
        name,
        call.line,
        unknown=_rest(call),
        positional=tuple(implied_option("", word, call.line) for word in words),
        resources=JobResources(
            num_gpus=implied_option("Unsloth", "1", call.line) if is_unsloth else None
        ),
    )


def _methods(method: str) -> tuple[str, ...]:
    return tuple(f"{each}.{method}" for each in _UNSLOTH)


def _by_unsloth(options: _CallOptions, calls: Sequence[Call]) -> None:
    """One process with kernels of its own; adapters unless all is trained."""
    loaded = next(call for call in calls if call.ends(*_methods("from_pretrained")))
    peft = next((call for call in calls if call.ends(*_methods("get_peft_model"))), None)
    given = loaded.keywords
    line = loaded.lines.get("model_name", loaded.line)
    options.put("model_name_or_path", given.get("model_name", _first(loaded)), line)
    options.put("max_seq_length", given.get("max_seq_length", 2048), loaded.line)
    options.state("use_unsloth", "true")
    if not {"--bf16", "bf16", "--fp16", "fp16"} & set(options.options):
        options.state("bf16", "true")
    repeats = given.get("use_gradient_checkpointing", "unsloth")
    is_whole = given.get("full_finetuning") is True
    if is_whole and given.get("float32_mixed_precision") is not True:
        options.state("dtype", "bfloat16")  # see hf_trainer/weights.csv
    if not is_whole:
        options.state("use_lora", "true")
        four_bits = given.get("load_in_4bit", True)
        if given.get("load_in_8bit") is True:
            options.state("load_in_8bit", "true")
        elif four_bits is True:
            options.state("load_in_4bit", "true")
            options.state("use_bnb_nested_quant", "true")
        adapted = {} if peft is None else peft.keywords
        at = loaded.line if peft is None else peft.line
        rank = adapted.get("r", _UNSLOTH_RANK)
        options.put("lora_r", rank, at)
        modules = adapted.get("target_modules", [*_ALL_MATRICES])
        if modules == "all-linear" or (
            peft is not None and peft.ends("FastVisionModel.get_peft_model")
        ):
            modules = adapted.get("target_modules", "all-linear")
        options.put("lora_target_modules", modules, at)
        options.put("lora_modules_to_save", adapted.get("modules_to_save"), at)
        repeats = adapted.get("use_gradient_checkpointing", repeats)
    for key in ("gradient_checkpointing", "--gradient_checkpointing"):
        options.options.pop(key, None)  # its own switch holds
    options.state("gradient_checkpointing", str(repeats not in (False, "False", None)).lower())
    if repeats == "unsloth":
        options.state("activation_offloading", "true")


def _model(options: _CallOptions, calls: Sequence[Call], trainers: Sequence[Call]) -> None:
    """The model that is loaded first, and how."""
    loads = [
        one
        for one in calls
        if one.ends("from_pretrained") and ("For" in one.name or "AutoModel" in one.name)
    ]
    for one in loads[:1]:
        first = one.keywords.get("pretrained_model_name_or_path", _first(one))
        options.put("model_name_or_path", first, one.line)
        for key in _LOADED:
            if key in one.keywords and one.keywords[key] != "auto":
                options.put(key, one.keywords[key], one.lines.get(key, one.line))
        if isinstance(spread := one.keywords.get("device_map"), str):
            options.state("device_map", spread)
    for one in trainers:
        named = one.keywords.get("model", _first(one))
        if isinstance(named, str):
            options.put("model_name_or_path", named, one.line)
    bits = next((one for one in calls if one.ends("BitsAndBytesConfig")), None)
    if bits is not None and bits.keywords.get("load_in_4bit") is True:
        options.put("load_in_4bit", True, bits.lines["load_in_4bit"])
        nested = bits.keywords.get("bnb_4bit_use_double_quant", False)
        options.put("use_bnb_nested_quant", nested, bits.line)
        options.put(
            "bnb_4bit_quant_storage", bits.keywords.get("bnb_4bit_quant_storage"), bits.line
        )
    elif bits is not None and bits.keywords.get("load_in_8bit") is True:
        options.put("load_in_8bit", True, bits.lines["load_in_8bit"])
    prepared = next((one for one in calls if one.ends(*_PREPARED, _REPEATING)), None)
    if prepared is not None and prepared.keywords.get("use_gradient_checkpointing") is not False:
        for key in ("gradient_checkpointing", "--gradient_checkpointing"):
            options.options.pop(
                key, None
            )  # the model repeats its layers, whatever the Trainer says
        options.state("gradient_checkpointing", "true")
    kept = [_option_text(options, "torch_dtype"), _option_text(options, "dtype")]
    if bits is not None:
        kept.append(bits.keywords.get("bnb_4bit_compute_dtype"))
    if "bfloat16" in kept and not {"--bf16", "bf16", "--fp16", "fp16"} & set(options.options):
        options.state("bf16", "true")  # weights and all that is made of them


def _first(call: Call) -> Value:
    return call.positional[0] if call.positional else None


def _option_text(options: _CallOptions, name: str) -> Value:
    given = options.options.get(name) or options.options.get(f"--{name}")
    return None if given is None else given.single


def _adapters(options: _CallOptions, calls: Sequence[Call], is_trl: bool, name: str) -> None:
    """The adapters that PEFT is told of.

    Raises LaunchError if they are others than low-rank ones.
    """
    for call in calls:
        last = call.name.rpartition(".")[2]
        if (
            call.module == "peft"
            and last.endswith("Config")
            and last not in ("LoraConfig", "PeftConfig")
        ):
            raise LaunchError(
                f"{name}: line {call.line}: {last} of PEFT is not supported in a program: "
                "LoraConfig is."
            )
    lora = next((call for call in calls if call.ends("LoraConfig")), None)
    if lora is None:
        return
    options.put("use_peft" if is_trl else "use_lora", True, lora.line)
    for key, option in option_aliases("peft").items():
        value = lora.keywords.get(key)
        if key == "r" and value is None:
            options.state(option, str(_LORA_RANK))
        elif value not in (None, False):
            options.put(option, value, lora.lines.get(key, lora.line))


_PROCESSES = ("Popen", "run", "call", "check_call", "check_output", "system", "execv", "execvp")
_ON_GPUS = ("function", "cls", "service")


def commands_of(calls: Sequence[Call]) -> Iterator[tuple[int, str]]:
    """Commands that a program starts as processes, each with its line."""
    for call in calls:
        given = call.positional[-1:] if call.ends("execv", "execvp") else call.positional[:1]
        if not call.ends(*_PROCESSES) or call.module not in ("subprocess", "os"):
            continue
        for value in given or (call.keywords.get("args"),):
            if isinstance(value, list):
                words = map(to_shell_word, value)
                yield call.line, " ".join(w if w == "$UNTOLD" else shlex.quote(w) for w in words)
            elif isinstance(value, str):
                yield call.line, value


def modal_concurrency(calls: Sequence[Call]) -> dict[str, ParsedOption]:
    """The requests that a function of Modal takes at once: ``@modal.concurrent(max_inputs=32)``."""
    for call in calls:
        most = call.keywords.get("max_inputs")
        if call.ends("concurrent") and isinstance(most, int):
            return {ONGOING: implied_option("max_inputs", str(most), call.line)}
    return {}


def program_resources(calls: Sequence[Call]) -> JobResources:
    """The GPUs that a function of Modal or a service of BentoML asks for.

    ``gpu="H100:8"`` (modal.com/docs/guide/gpu), ``resources={"gpu": 8, "gpu_type": "nvidia-h100"}``
    (docs.bentoml.com, reference/bentoml/configurations).
    """
    for call in (one for one in calls if one.ends(*_ON_GPUS)):
        gpu, resources = call.keywords.get("gpu"), call.keywords.get("resources")
        if isinstance(gpu, str) and gpu:
            word, _, count = gpu.partition(":")
            count = count or "1"
        elif isinstance(resources, dict) and isinstance(resources.get("gpu"), int):
            word, count = str(resources.get("gpu_type") or ""), str(resources["gpu"])
        else:
            continue
        return JobResources(
            gpu=word.rstrip("!+") or None, gpus_per_node=implied_option("gpu", count, call.line)
        )
    return JobResources()


def explain_no_calls(place: object, calls: Sequence[Call]) -> str:
    """What a program without a call that is known does, as far as that helps."""
    if any(call.ends("HfArgumentParser", "TrlParser") for call in calls):
        return (
            f"{place}: takes its options from the command line: give the command that starts it, "
            "in a file such as run.sh."
        )
    trained = (*_ARGUMENTS, *option_aliases("trl"))
    for call in calls:
        if call.rest and (_engine(call, calls) or call.ends(*trained)):
            return (
                f"{place}: line {call.line}: {call.name}: {call.rest}: give the command that "
                "starts the program, or a program with these values in its text."
            )
    return (
        f"{place}: calls nothing that planner knows with its values in the text: {SUPPORTED_CALLS}."
    )
