"""llama.cpp: ``llama-server`` and its options."""

from __future__ import annotations

import re

from planner.base.enums import Quantization
from planner.errors import LaunchError
from planner.launch.option_table import OptionTable, Quantities, option_aliases
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import ONGOING, LaunchSettings, OptionReader
from planner.launch.read.serving_reader import (
    DraftSettings,
    ServerSettings,
    parse_size,
    set_drafts,
    with_variables,
)
from planner.launch.target import CommandWords, LaunchTarget, Process, ShellVariable
from planner.launch.write.server_groups import (
    DRAFT_MODEL,
    ServerGroup,
    common_quantities,
    load_draft_model,
    longest_request,
)
from planner.launch.write.serving_writer import ServerCommand, server_hooks
from planner.specs.model import ModelSpec
from planner.specs.quantization import GGUF_BITS, checkpoint_of, gguf_word
from planner.specs.serving_workload import DraftMethod

# common/arg.cpp, --fit: weights that the GPUs have no room for stay in host memory.
_HOST_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_DRAFTS = 3  # common/arg.cpp, --spec-draft-n-max
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
    _set_model(server)
    _set_weight_offload(server)
    server.quantities |= {
        "visible_gpus": _visible_devices(reading),
        "slots": parse_size(reading.value("concurrency")),
        "most_requests": parse_size(reading.text(ONGOING)),
        "tool": "".join(reading.command.words[:1]).rpartition("/")[2],
        "has_load": bool(reading.command.benchmark_load),
        "cache": reading.value("kv_cache"),
        "offloaded_share": server.values.pop("weight_offload"),
    }
    apply_read_rows(reading, _TABLE, server, server.quantities, "inference")
    _set_drafts(server)
    server.notes.append("llama.cpp is predicted for a batch of its slots, not for a stream.")
    return server.build_for_workload("inference")


def _set_model(server: ServerSettings) -> None:
    """Set the model and the type of its weights from the GGUF file's name."""
    reading = server.reading
    name = reading.text("--model") or reading.text("--hf-file") or reading.text("--hf-repo")
    if not name:
        return
    repository, _, tag = name.partition(":") if not reading.text("--model") else (name, "", "")
    file_name = repository.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf")
    stem = _NO_TYPE.sub("", _PART_SUFFIX.sub("", file_name))
    match = _TYPE.search(stem)
    weight_type = tag or (match[1] if match else "")
    stem = _NO_TYPE.sub("", stem[: match.start()] if match else stem)
    server.values["model"] = checkpoint_of(stem).model or stem
    other_types = option_aliases("gguf type")  # of weights, that are not GGUF's own
    quantization = other_types.get(weight_type.lower()) or gguf_word(weight_type.lower())
    if quantization is None:
        server.assume("quantization", "w4a16", "4 bit; the file's name does not give the type")
        server.assume("expert_quantization", "w4a16", "as the other matrices")
        return
    is_exact = weight_type.lower() in (*other_types, quantization)
    reason = f"the file's name has {weight_type}" + (
        "" if is_exact else ", whose nearest type this is"
    )
    # src/llama-quant.cpp: the type MXFP4_MOE is that of experts, other matrices have Q8_0.
    dense = Quantization.Q8_0.word if quantization == Quantization.MXFP4.word else quantization
    server.assume("quantization", dense, reason)
    server.assume("expert_quantization", quantization, reason)


def _visible_devices(reading: OptionReader) -> int | None:
    """Return the number of GPUs from options, environment or scheduler; None if none sets it."""
    for text in (reading.text("--tensor-split"), reading.text("--device")):
        if text:
            return len([part for part in re.split(r"[,/]", text) if part.strip() not in ("", "0")])
    visible = reading.command.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.texts and visible.texts[0]:
        return len(visible.texts[0].split(","))
    resources = reading.command.resources
    gpus = resources.num_gpus or resources.gpus_per_node
    return parse_size(gpus.texts[0]) if gpus is not None and gpus.texts else None


def _set_weight_offload(server: ServerSettings) -> None:
    """Set the fraction of weights in host memory, from the number of layers on the GPU."""
    reading = server.reading
    model = server.model
    gpu_layers = parse_size(reading.value("layers_on_gpu"))
    server.values["weight_offload"] = 0.0
    if gpu_layers is not None and model is not None:
        layers = model.num_hidden_layers + 1
        server.values["weight_offload"] = min(round(max(1 - gpu_layers / layers, 0.0), 4), 0.99)
    elif gpu_layers is not None and gpu_layers < 99:
        server.notes.append(f"{gpu_layers} layers are on the GPU: give --set weight_offload=SHARE.")
    elif gpu_layers is None:
        server.fallbacks["weight_offload"] = _HOST_SHARES, "layers that do not fit stay on the host"
    _set_expert_offload(server, model)


def _set_drafts(server: ServerSettings) -> None:
    """Set drafts by another model, or by the model's modules of multi-token prediction."""
    reading = server.reading
    number = parse_size(reading.value("drafts"))
    kinds = (reading.text("--spec-type") or "").split(",")
    if any(kind.endswith("mtp") for kind in kinds):
        drafting = DraftSettings(number=number or _DRAFTS, method=str(DraftMethod.MTP))
        set_drafts(server, drafting, server.model)
    elif number and (reading.has("--spec-draft-model") or reading.has("--model-draft")):
        server.values["draft_tokens"] = number


def _set_expert_offload(server: ServerSettings, model: ModelSpec | None) -> None:
    """Set the fraction of weights in host memory if experts of some layers are there."""
    reading = server.reading
    overrides = reading.text("--override-tensor")
    if not (reading.has("--cpu-moe") or reading.has("--n-cpu-moe") or overrides is not None):
        return
    host_layers = parse_size(reading.text("--n-cpu-moe"))
    moves_all_experts = overrides is None or _ALL_EXPERTS.fullmatch(overrides) is not None
    if model is None or not model.num_experts or not moves_all_experts:
        server.notes.append(
            "Experts are kept in host memory: give their share of the weights with --set "
            "weight_offload=SHARE."
        )
        return
    expert_layers = sum(
        group.num_hidden_layers for group in model.layer_groups if group.num_experts
    )
    host_share = (
        1.0
        if host_layers is None or reading.has("--cpu-moe")
        else min(host_layers / expert_layers, 1)
    )
    server.set_experts_on_host(model, host_share)


NAME = "llama-server"
# The GGUF type of each weight type.
_GGUF_TYPES = {"w16a16": "F16", "w8a16": "Q8_0", "w4a16": "Q4_K_M", "mxfp4": "MXFP4"} | {
    code.word: code.name for code in GGUF_BITS
}
_ALL = "all"
_MAX_SLOTS = 256


def _worker_quantities(worker: ServerGroup) -> Quantities:
    """Return the option values of a llama-server group; refuse more slots than llama.cpp serves."""
    values, job = common_quantities(worker), worker.job
    tp, pp = int(worker.values["tensor_parallel"]), int(worker.values["pipeline_parallel"])
    slots = int(worker.values["concurrency"])
    if slots > _MAX_SLOTS:
        raise LaunchError(
            f"llama.cpp serves at most {_MAX_SLOTS} concurrent requests (LLAMA_MAX_SEQ), the plan "
            f"has {slots}: plan with --set concurrency={_MAX_SLOTS} or less."
        )
    types = {str(values["quantization"])}
    if job.model.num_experts:
        types.add(str(values["expert_quantization"]))
    missing_types = sorted(types - set(_GGUF_TYPES))
    # The output layer counts as one.
    layers, offloaded_share = (
        job.model.num_hidden_layers + 1,
        float(worker.values["weight_offload"]),
    )
    return {
        **values,
        "concurrency": slots,
        "split": None if worker.num_gpus == 1 else "row" if tp > 1 else "layer",
        "both_splits": f"{tp} x {pp}" if tp > 1 and pp > 1 else None,
        "context_size": slots * longest_request(job),
        "max_num_batched_tokens": int(worker.values["max_num_batched_tokens"]),
        "no_such_file": ", ".join(missing_types) or None,
        "flash_attention": True,
        "layers_on_gpu": max(layers - round(offloaded_share * layers), 0)
        if offloaded_share
        else _ALL,
        "weight_offload": offloaded_share,
        "kv_offload": worker.values["kv_offload"],
        "drafts": values["draft_tokens"],
        "adapters": values["lora_rank"],
    }


def _model_variable(worker: ServerGroup, _: str | None) -> ShellVariable:
    types = [str(worker.values[name]) for name in ("quantization", "expert_quantization")]
    # A file is called by the type of its experts where these have a type of their own.
    word = types[1] if worker.job.model.num_experts else types[0]
    file_type = _GGUF_TYPES.get(word, "any type")
    return ShellVariable(
        name="MODEL", meaning=f"GGUF file of {worker.job.model.name} in {file_type}"
    )


def _process(server: ServerCommand) -> Process:
    """Build the llama-server process, with a draft model if the plan drafts tokens."""
    job = server.worker.job
    arguments = [*server.start, *server.options]
    if job["draft_tokens"]:
        draft_spec = load_draft_model(job)  # GGUF files have no names that are known
        meaning = (
            "GGUF file of "
            f"{'the model that' if draft_spec is None else f'{draft_spec.name}, which'} drafts"
        )
        draft_model = ShellVariable(name=DRAFT_MODEL, meaning=meaning)
        arguments.append(CommandWords(words=("--spec-draft-model", draft_model)))
    if not job["prefix_cache_hit_rate"] and not job["shared_prefix_tokens"]:
        note = "the plan has no prefix caching"
        arguments.append(CommandWords(words=("--no-cache-prompt",), note=note))
    return server.process(arguments)


TARGET = LaunchTarget.of(
    NAME,
    answers=read_settings,
    **server_hooks(
        NAME,
        _worker_quantities,
        _process,
        model=_model_variable,
        # A benchmark cannot take the tokenizer from a GGUF file.
        tokenizer=lambda job: (
            job.hub_name
            or ShellVariable(
                name="TOKENIZER", meaning=f"ORG/NAME or folder of the tokenizer of {job.model.name}"
            )
        ),
        routes_replicas=False,
    ),
)
