"""llama.cpp: ``llama-server`` and its options."""

from __future__ import annotations

import re

from planner.launch.option_table import OptionTable, Quantities, option_aliases
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import ONGOING, LaunchSettings, OptionReader
from planner.launch.read.serving_reader import (
    ServerSettings,
    parse_size,
    set_drafts,
    with_variables,
)
from planner.launch.target import LaunchJob, LaunchTarget, ShellVariable
from planner.launch.write.server_groups import ServerGroup, server_quantities
from planner.launch.write.serving_writer import server_hooks
from planner.specs.quantization import GGUF_BITS, checkpoint_of, gguf_word

_TABLE = OptionTable.load("llama-server")
_TYPE = re.compile(r"(?i)[-_.](mxfp4(?:_moe)?|bf16|f16|fp16|f32|i?q[1-8](?:_[a-z0-9]+)*)$")
_NO_TYPE = re.compile(r"(?i)(?:[-_.](?:gguf|ud|imat|i1))+$")
_ALL_EXPERTS = re.compile(r"[\\.*]*(?:ffn_)?[\w\\.*|()]*exps[\w\\.*]*=CPU")
_PART_SUFFIX = re.compile(r"-0*\d+-of-0*\d+$")


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a llama.cpp server; its batch is the number of slots."""
    server = ServerSettings(reading=with_variables(reading, option_aliases("llama.cpp"), _TABLE))
    reading = server.reading
    server.values["engine"] = "llama.cpp"
    path = reading.text("--model")
    repository = reading.text("--hf-file") or reading.text("--hf-repo") or ""
    if path or repository:
        name, _, tag = (path, "", "") if path else repository.partition(":")
        _file_quantities(server, name, tag)
    model, overrides = server.model, reading.text("--override-tensor")
    gpus = reading.command.resources.num_gpus or reading.command.resources.gpus_per_node
    server.quantities |= {
        "gpus_of_node": parse_size(gpus.texts[0]) if gpus is not None and gpus.texts else None,
        "slots": parse_size(reading.value("concurrency")),
        "most_requests": parse_size(reading.text(ONGOING)),
        "tool": "".join(reading.command.words[:1]).rpartition("/")[2],
        "has_load": bool(reading.command.benchmark_load),
        "cache": reading.value("kv_cache"),
        "moves_all_experts": overrides is None or _ALL_EXPERTS.fullmatch(overrides) is not None,
    }
    apply_read_rows(reading, _TABLE, server, server.quantities, "inference", model=model)
    if model is not None and (share := server.quantities.get("experts_on_host")) is not None:
        server.set_experts_on_host(model, float(share))
    set_drafts(server, model)
    server.notes.append("llama.cpp is predicted for a batch of its slots, not for a stream.")
    return server.build_for_workload("inference")


def _file_quantities(server: ServerSettings, name: str, tag: str) -> None:
    """Set the model, and quantities of the type of its weights, from the GGUF file's name."""
    file_name = name.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf")
    stem = _NO_TYPE.sub("", _PART_SUFFIX.sub("", file_name))
    match = _TYPE.search(stem)
    weight_type = tag or (match[1] if match else "")
    stem = _NO_TYPE.sub("", stem[: match.start()] if match else stem)
    server.values["model"] = checkpoint_of(stem).model or stem
    other_types = option_aliases("gguf type")  # of weights, that are not GGUF's own
    weights = other_types.get(weight_type.lower()) or gguf_word(weight_type.lower())
    server.quantities |= {
        "file_type": weight_type,
        "weights": weights,
        "names_no_type": weights is None,
        "has_type": weights is not None and weight_type.lower() in (*other_types, weights),
    }


NAME = "llama-server"
# The GGUF type of each weight type.
_GGUF_TYPES = {"w16a16": "F16", "w8a16": "Q8_0", "w4a16": "Q4_K_M", "mxfp4": "MXFP4"} | {
    code.word: code.name for code in GGUF_BITS
}


def _file_types(worker: ServerGroup) -> list[str]:
    """Return the types of weights in the file of a plan: dense ones first, then experts."""
    names = ("quantization", "expert_quantization")[: 2 if worker.job.model.num_experts else 1]
    return [str(worker.values[name]) for name in names]


def _worker_quantities(worker: ServerGroup) -> Quantities:
    missing_types = sorted({*_file_types(worker)} - {*_GGUF_TYPES})
    return {**server_quantities(worker, NAME), "no_such_file": ", ".join(missing_types) or None}


def _model_variable(worker: ServerGroup, _: str | None) -> ShellVariable:
    # A file is called by the type of its experts where these have a type of their own.
    file_type = _GGUF_TYPES.get(_file_types(worker)[-1], "any type")
    meaning = f"GGUF file of {worker.job.model.name} in {file_type}"
    return ShellVariable(name="MODEL", meaning=meaning)


def _tokenizer(job: LaunchJob) -> str | ShellVariable:
    """Return the tokenizer of a benchmark, which cannot take it from a GGUF file."""
    meaning = f"ORG/NAME or folder of the tokenizer of {job.model.name}"
    return job.hub_name or ShellVariable(name="TOKENIZER", meaning=meaning)


TARGET = LaunchTarget.of(
    NAME,
    answers=read_settings,
    **server_hooks(
        NAME,
        _worker_quantities,
        model=_model_variable,
        tokenizer=_tokenizer,
        routes_replicas=False,
    ),
)
