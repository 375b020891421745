"""Ollama: what it runs and its Modelfiles, read alone, as the llama.cpp that it starts.

Options and defaults are those of docs/modelfile.mdx, docs/faq.mdx, envconfig/config.go and
server/sched.go of ollama/ollama at fb30760; models and types of weights of names without a tag are
those of its library (``launchers/ollama.csv``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import OptionTable, shipped_rows
from planner.launch.parsed_launch import (
    ONGOING,
    JobResources,
    LaunchSettings,
    OptionReader,
    ParsedCommand,
)
from planner.launch.serving_reader import find_model_by_name, parse_size
from planner.launch.target import LaunchTarget
from planner.launch.targets import llama_server
from planner.specs.quantization import checkpoint_of

NAME = "ollama"
_HUB = re.compile(r"^(?:https?://)?(?:hf\.co|huggingface\.co)/")
_TAG = re.compile(r"^(?P<size>e?\d+(?:x\d+)?(?:\.\d+)?[bm](?:-a\d+b)?|[a-z]+)(?=-|$)")
_TYPE = re.compile(r"(?i)(?:^|-)(i?q\d\w*|fp16|f16|bf16|mxfp4)$")
_INSTRUCTION = re.compile(
    r"(?P<name>FROM|ADAPTER|PARAMETER +\w+)[ \t]+(?P<text>\S+)", re.IGNORECASE
)
_OF_MODELFILES = re.compile(r"^(?:PARAMETER|TEMPLATE|SYSTEM|ADAPTER)\b", re.MULTILINE)
_USUAL = "q4_k_m"
_SPREAD = ("1", "true")
_BY_VARIABLE = {"f16": "f16", "fp16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}


def with_models(commands: Sequence[ParsedCommand]) -> list[ParsedCommand]:
    """Without servers of Ollama where other commands say what these load."""
    servers = [one for one in commands if one.target == NAME and _words(one)[1:2] == ["serve"]]
    loads = any(one.target == NAME and one not in servers for one in commands)
    return [one for one in commands if not (loads and one in servers)]


def _words(command: ParsedCommand) -> list[str]:
    return [word_option.single or "" for word_option in command.positional]


def modelfile_of(text: str, name: str) -> ParsedCommand | None:
    """The instructions of a Modelfile; None of a text that is none."""
    is_called = name.lower().rsplit("/", 1)[-1].startswith("modelfile") or (
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
    begins = bool(_INSTRUCTION.match(first)) and bool(_OF_MODELFILES.search(text))
    if "FROM" not in options or not (is_called or begins):
        return None
    return ParsedCommand(
        target=NAME, name=name, text=text, line=options["FROM"].line, options=options
    )


def read_settings(reading: OptionReader) -> LaunchSettings:
    """The model that is loaded, for as many requests as run at once."""
    found = reading.command
    file = found.files.get(reading.text("-f") or "")
    options = {**(file.options if file else {}), **found.options}
    texts = {name: given.single or "" for name, given in options.items()}
    words = _words(found)
    name = texts.get("FROM") or (words[2] if words[1:2] in (["run"], ["pull"]) else "")
    parallel = parse_size(_variable(found, "OLLAMA_NUM_PARALLEL")) or 1
    context = parse_size(texts.get("num_ctx") or _variable(found, "OLLAMA_CONTEXT_LENGTH"))
    cache = _BY_VARIABLE.get((_variable(found, "OLLAMA_KV_CACHE_TYPE") or "").lower())
    said: dict[str, str | None] = {
        "--parallel": str(parallel),
        "--ctx-size": str(parallel * context) if context else None,
        "--ubatch-size": texts.get("num_batch"),
        "--gpu-layers": texts.get("num_gpu"),
        "--cache-type-k": cache,
        "--cache-type-v": cache,
        **_weights(name),
    }
    given = {option: implied_option(option, text) for option, text in said.items() if text}
    if ONGOING in found.options:
        given[ONGOING] = found.options[ONGOING]
    spreads = _variable(found, "OLLAMA_SCHED_SPREAD") in _SPREAD
    is_told = found.resources.num_gpus is not None and found.resources.num_gpus.line == 0
    world = found.resources if spreads or is_told else JobResources(gpu=found.resources.gpu)
    environment = found.environment if spreads else {}
    inner = replace(found, options=given, resources=world, environment=environment)
    told = llama_server.read_settings(OptionReader.of(inner, OptionTable.load(llama_server.NAME)))
    return _as_ollama(told, name, _variable(found, "OLLAMA_NUM_PARALLEL") is None)


def _as_ollama(settings: LaunchSettings, name: str, is_alone: bool) -> LaunchSettings:
    values, notes = dict(settings.values), [*settings.notes]
    if not find_model_by_name(str(values.get("model") or "")):
        values.pop("model", None)
        notes += [f"The model is not known from the name {name}."] if name else []
    if not values.get("num_gpus"):
        notes.append("One GPU is taken where the model fits on it, else all there are.")
    defaults = dict(settings.defaults)
    kind = str(values.get("quantization"))
    if kind not in name.lower():
        usual = f"{kind} is usual in its library"
        defaults |= {term: usual for term in defaults if term.endswith("quantization")}
    if is_alone:
        defaults["concurrency"] = "OLLAMA_NUM_PARALLEL is 1 by default"
    asked = () if "model" in values else ("model",)
    used = frozenset({*settings.used_options, "FROM", "num_ctx", "num_batch", "num_gpu", "-f"})
    return replace(
        settings,
        values=values,
        notes=tuple(notes),
        defaults=defaults,
        missing=asked,
        used_options=used,
    )


def _weights(name: str) -> Mapping[str, str]:
    """The model of a name in the words of llama.cpp: a file, or a repository with a type."""
    if name.lower().endswith(".gguf"):
        return {"--model": name}
    plain = _HUB.sub("", name)
    if plain != name:
        return {"--hf-repo": plain if ":" in plain else f"{plain}:{_USUAL}"}
    base, _, tag = name.rpartition("/")[2].partition(":")
    kind, size = _TYPE.search(tag), _TAG.match(tag)
    rows = {(row["name"], row["tag"]): row for row in shipped_rows("launchers/ollama.csv")}
    usual = rows.get((base, ""))
    own = rows.get((base, size["size"])) if size else usual
    if own is None and size and (known := checkpoint_of(f"{base}-{size['size']}").model):
        model = known
    else:
        chosen = own or usual
        model = base if chosen is None else chosen["model"]
    type_of = kind[1] if kind else (own or usual or {}).get("quantization")
    type_of = type_of or (usual or {}).get("quantization") or _USUAL
    return {"--hf-repo": f"{model}:{type_of}"} if base else {}


def _variable(command: ParsedCommand, name: str) -> str | None:
    """A variable of the server: in the environment of the command, else as the text sets it."""
    own = command.environment.get(name)
    if own is not None and re.fullmatch(r"[\w.]+", own.single or ""):
        return own.single
    value = rf"\b{name}[\"']?\s*[=:]\s*[\"']?(?:\$\{{\w+:?-)?([\w.]+)"
    in_list = rf"name:\s*[\"']?{name}[\"']?\s+value:\s*[\"']?([\w.]+)"
    set_by = re.search(value, command.text) or re.search(in_list, command.text)
    return None if set_by is None else set_by[1]


TARGET = LaunchTarget.of("ollama", answers=read_settings)
