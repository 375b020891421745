"""Ollama: its commands and Modelfiles, read-only, as the llama.cpp that it starts.

Options and defaults are those of docs/modelfile.mdx, docs/faq.mdx, envconfig/config.go and
server/sched.go of ollama/ollama at fb30760; models and types of weights of names without a tag are
those of its library (``planner/specs/ollama.csv``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.base.enums import Quantization
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import OptionTable
from planner.launch.read.parsed_launch import (
    ONGOING,
    JobResources,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
)
from planner.launch.read.serving_reader import find_model_by_name, parse_size
from planner.launch.target import LaunchTarget
from planner.launch.targets import llama_server
from planner.specs.quantization import checkpoint_of
from planner.specs.spec_paths import ollama_rows

NAME = "ollama"
_HUB = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co)/")
_TAG = re.compile(r"^(?P<size>e?\d+(?:x\d+)?(?:\.\d+)?[bm](?:-a\d+b)?|[a-z]+)(?=-|$)")
_SIZE = re.compile(r"(?i)\d[bm](?![a-z0-9])")
_TYPE = re.compile(r"(?i)(?:^|-)(i?q\d\w*|fp16|f16|bf16|mxfp4)$")
_INSTRUCTION = re.compile(
    r"(?P<name>FROM|ADAPTER|PARAMETER +\w+)[ \t]+(?P<text>\S+)", re.IGNORECASE
)
_MODELFILE_INSTRUCTION = re.compile(r"^(?:PARAMETER|TEMPLATE|SYSTEM|ADAPTER)\b", re.MULTILINE)
_DEFAULT_TYPE = "q4_k_m"
_WEIGHTS = ("quantization", "expert_quantization")
_TRUE_TEXTS = ("1", "true")
_CACHE_TYPES = {"f16": "f16", "fp16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}


def without_idle_servers(commands: Sequence[ParsedCommand]) -> list[ParsedCommand]:
    """Return the commands, without ``ollama serve`` if another command loads a model."""
    servers = [
        command
        for command in commands
        if command.target == NAME and _words(command)[1:2] == ["serve"]
    ]
    loads_model = any(command.target == NAME and command not in servers for command in commands)
    return [command for command in commands if not (loads_model and command in servers)]


def _words(command: ParsedCommand) -> list[str]:
    return [argument.single or "" for argument in command.positional]


def modelfile_of(text: str, name: str) -> ParsedCommand | None:
    """Return a Modelfile's instructions as a command; None if the text is no Modelfile."""
    has_modelfile_name = name.lower().rsplit("/", 1)[-1].startswith("modelfile") or (
        name.lower().endswith(".modelfile")
    )
    options: dict[str, ParsedOption] = {}
    for line, words in enumerate(text.split("\n"), start=1):
        if match := _INSTRUCTION.match(words.strip()):
            option = match["name"].rpartition(" ")[2]
            option = option.upper() if option == match["name"] else option
            options[option] = implied_option(option, match["text"].strip("\"'"), line)
    lines = (line.strip() for line in text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    has_instructions = bool(_INSTRUCTION.match(first)) and bool(_MODELFILE_INSTRUCTION.search(text))
    if "FROM" not in options or not (has_modelfile_name or has_instructions):
        return None
    return ParsedCommand(
        target=NAME, name=name, text=text, line=options["FROM"].line, options=options
    )


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of the loaded model, with the number of concurrent requests."""
    command = reading.command
    modelfile = command.files.get(reading.text("-f") or "")
    options = {**(modelfile.options if modelfile else {}), **command.options}
    texts = {name: server_options.single or "" for name, server_options in options.items()}
    words = _words(command)
    name = texts.get("FROM") or (words[2] if words[1:2] in (["run"], ["pull"]) else "")
    parallel = parse_size(_read_variable(command, "OLLAMA_NUM_PARALLEL")) or 1
    context = parse_size(texts.get("num_ctx") or _read_variable(command, "OLLAMA_CONTEXT_LENGTH"))
    cache = _CACHE_TYPES.get((_read_variable(command, "OLLAMA_KV_CACHE_TYPE") or "").lower())
    server_texts: dict[str, str | None] = {
        "--parallel": str(parallel),
        "--ctx-size": str(parallel * context) if context else None,
        "--ubatch-size": texts.get("num_batch"),
        "--gpu-layers": texts.get("num_gpu"),
        "--cache-type-k": cache,
        "--cache-type-v": cache,
        **_weight_options(name),
    }
    server_options = {
        option: implied_option(option, text) for option, text in server_texts.items() if text
    }
    if ONGOING in command.options:
        server_options[ONGOING] = command.options[ONGOING]
    uses_all_gpus = _read_variable(command, "OLLAMA_SCHED_SPREAD") in _TRUE_TEXTS
    is_set_by_user = command.resources.num_gpus is not None and command.resources.num_gpus.line == 0
    has_one = getattr(command.resources.gpus_per_node, "single", None) == "1"
    resources = (
        command.resources
        if uses_all_gpus or is_set_by_user or has_one
        else JobResources(gpu=command.resources.gpu)
    )
    environment = command.environment if uses_all_gpus else {}
    inner = replace(command, options=server_options, resources=resources, environment=environment)
    server_settings = llama_server.read_settings(
        OptionReader.of(inner, OptionTable.load(llama_server.NAME))
    )
    return _complete_settings(
        server_settings, name, _read_variable(command, "OLLAMA_NUM_PARALLEL") is None
    )


def _complete_settings(
    settings: LaunchSettings, name: str, is_default_parallel: bool
) -> LaunchSettings:
    """Return the settings with Ollama's defaults, notes and an unknown model marked missing."""
    values, notes = dict(settings.values), [*settings.notes]
    if not find_model_by_name(str(values.get("model") or "")):
        values.pop("model", None)
        notes += [f"planner does not know the model {name}."] if name else []
    is_of_library = not _HUB.match(name) and not name.lower().endswith(".gguf")
    if is_of_library and values.get("expert_quantization") == Quantization.MXFP4.word:
        values["quantization"] = Quantization.W16A16.word  # gpt-oss:20b has 13.8 GB, :120b 65 GB
    if not values.get("num_gpus"):
        notes.append("Ollama uses one GPU if the model fits on it, else all GPUs.")
    defaults = dict(settings.defaults)
    quantization = str(values.get("quantization"))
    if quantization not in name.lower():
        reason = f"{quantization} is the default of its library"
        defaults |= {term: reason for term in defaults if term.endswith("quantization")}
    if is_default_parallel:
        defaults["concurrency"] = "OLLAMA_NUM_PARALLEL is 1 by default"
    missing = () if "model" in values else ("model",)
    if missing:  # whatever model the user names
        values |= dict.fromkeys(_WEIGHTS, _DEFAULT_TYPE)
        defaults = {term: reason for term, reason in defaults.items() if term not in _WEIGHTS}
        notes.append(f"{_DEFAULT_TYPE} is what most models of Ollama's library have by default.")
    used = frozenset({*settings.used_options, "FROM", "num_ctx", "num_batch", "num_gpu", "-f"})
    return replace(
        settings,
        values=values,
        notes=tuple(notes),
        defaults=defaults,
        missing=missing,
        used_options=used,
    )


def _weight_options(name: str) -> Mapping[str, str]:
    """Return llama.cpp's option for a model's name: a file, or a repository and type."""
    if name.lower().endswith(".gguf"):
        return {"--model": name}
    repository = _HUB.sub("", name)
    if repository != name:
        return {"--hf-repo": repository if ":" in repository else f"{repository}:{_DEFAULT_TYPE}"}
    base, _, tag = name.rpartition("/")[2].partition(":")
    type_match, size_match = _TYPE.search(tag), _TAG.match(tag)
    rows = {(row["name"], row["tag"]): row for row in ollama_rows()}
    default = rows.get((base, ""))
    tagged = rows.get((base, size_match["size"])) if size_match else default
    if (
        tagged is None
        and size_match
        and (checkpoint_model := checkpoint_of(f"{base}-{size_match['size']}").model)
    ):
        model = checkpoint_model
    else:
        library_row = tagged or default
        model = base if library_row is None else library_row["model"]
    if default is None and size_match is None and not _SIZE.search(base):
        return {}  # the library chooses the size of such a name
    weight_type = type_match[1] if type_match else (tagged or default or {}).get("quantization")
    weight_type = weight_type or (default or {}).get("quantization") or _DEFAULT_TYPE
    return {"--hf-repo": f"{model}:{weight_type}"} if base else {}


def _read_variable(command: ParsedCommand, name: str) -> str | None:
    """Return a server variable's value, from the environment or the text; None if not set."""
    option = command.environment.get(name)
    if option is not None and re.fullmatch(r"[\w.]+", option.single or ""):
        return option.single
    value = rf"\b{name}[\"']?\s*[=:]\s*[\"']?(?:\$\{{\w+:?-)?([\w.]+)"
    in_list = rf"name:\s*[\"']?{name}[\"']?\s+value:\s*[\"']?([\w.]+)"
    match = re.search(value, command.text) or re.search(in_list, command.text)
    return None if match is None else match[1]


TARGET = LaunchTarget.of("ollama", answers=read_settings)
