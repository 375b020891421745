"""Common parts of reading commands of serving engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import PurePath
from typing import TypeVar

from planner.base.read_files import parse_json
from planner.base.records import record
from planner.base.training_aliases import nearest_adapter_targets
from planner.base.units import GIB, ceil_div
from planner.configurations.configuration_tables import OF_PREFILL, PREFILL, ServingConfigurations
from planner.documents.shell.edits import ParsedOption
from planner.documents.yaml_tree import flattened, plain_text
from planner.errors import LaunchError, PlannerError
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.weights import weight_bytes
from planner.estimators.machine import Machine
from planner.launch.option_table import (
    MutableQuantities,
    OptionRole,
    OptionTable,
    ParserOptions,
    shipped_rows,
    tool_row,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    LENGTHS,
    ONGOING,
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    parse_int,
    version_of,
)
from planner.launch.wrappers.read_resources import parse_gpu_name
from planner.launch.write.server_groups import (
    AGGREGATED,
    DECODE_POOL,
    NOT_THE_DEFAULT,
    PREFILL_POOL,
)
from planner.launch.write.serving_writer import LORA_OPTION
from planner.layers.model import count_parameters, layer_parameters
from planner.question.parse_values import parse_value
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue, in_format, stored_types
from planner.specs.engine import ATTENTION_FFN_ENGINES
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import checkpoint_of
from planner.specs.serving_workload import DraftMethod, ServingWorkload
from planner.specs.software_profile import engine_on

_AGGREGATED, _DISAGGREGATED = "aggregated", "disaggregated"
Value = TypeVar("Value")
_PREFILL_ONLY = "0"
_SIXTEEN_BIT = "w16a16"
_ANY_GPU, _ANY_NODE = "a100-sxm-80gb", "dgx-a100"  # weights have the same size on all
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+|[\w-][\w.-]*")
# Checkpoints whose head scores or embeds: engines see it in their config and generate nothing.
_SCORES = re.compile(r"(?i)seq[-_]?cls|rerank|embedding|(?:^|/)(?:bge|e5|gte|multilingual-e5)-")
_LORA_RANK = 16
_HEADS = (DraftMethod.EAGLE3, DraftMethod.EAGLE)
_DEGREES = (
    *("tensor_parallel", "context_parallel", "pipeline_parallel", "attention_data_parallel"),
    "expert_parallel",
)
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(kw_only=True)
class ServerSettings(SettingsBuilder):
    """Builder of the settings of one server command; ``quantities`` are what its rows compute."""

    reading: OptionReader
    quantities: MutableQuantities = field(default_factory=dict)

    def copy_values(self, *names: str) -> None:
        """Set parameters to the values that the option table reads; skip parameters without one."""
        for name in names:
            meaning = self.reading.meanings.get(name)
            if meaning is not None:
                self.values[name] = meaning.value

    def count(self, name: str) -> int:
        """A parameter of the table as a whole number; 1 if it is none."""
        text = self.reading.value(name)
        number = parse_size(text)
        return number or 1

    @property
    def model(self) -> ModelSpec | None:
        """The shipped model that its name means; None if unknown."""
        return find_model_by_name(str(self.values.get("model") or ""))

    def set_gpus(self, server_gpus: int) -> None:
        """Set ``num_gpus``: the total of the launcher, else the GPUs of one server.

        Raises LaunchError if the total is not a multiple of what one server takes.
        """
        total_option = self.reading.command.resources.num_gpus
        total = (
            parse_size(total_option.texts[0])
            if total_option is not None and total_option.texts
            else None
        )
        if total is not None and total_option is not None and total % server_gpus:
            raise LaunchError(
                f"{self.reading.position}: a server takes {server_gpus} GPUs, "
                f"and {total_option.option} gives {total} (line {total_option.line}): change "
                "one of them."
            )
        self.values["num_gpus"] = total or server_gpus

    def build_for_pool(self, pool: str) -> LaunchSettings:
        """Return the settings; a prefill server's have the names of the prefill pool.

        ``pool`` is ``serve``, ``prefill`` or ``decode``.

        Prefill and decode workers are separate commands: a plan has the settings of both, and
        the sum of their GPUs. Concurrency is limited to the requests that are sent at once.
        """
        values, defaults = dict(self.values), dict(self.defaults)
        server_gpus = int(values["tensor_parallel"]) * int(values["pipeline_parallel"])
        server_gpus *= int(values["attention_data_parallel"])
        server_gpus *= int(values.get("context_parallel", 1))
        copies = max(int(values["num_gpus"]) // server_gpus, 1)  # ranks that share nothing
        limit = ceil_div(parse_size(self.reading.text(ONGOING)) or 0, copies)
        if 0 < limit < int(values["concurrency"]):
            values["concurrency"] = limit
            defaults.pop("concurrency", None)
        values["mode"] = _DISAGGREGATED if pool in (PREFILL_POOL, DECODE_POOL) else _AGGREGATED
        if pool == PREFILL_POOL:
            values, defaults = _prefill_names(values), _prefill_names(defaults)
            values["prefill_replicas"] = copies
        elif pool == DECODE_POOL:
            values["replicas"] = copies
        return replace(self.build_for_workload("serve"), values=values, defaults=defaults)

    def set_experts_on_host(self, model: ModelSpec, expert_share: float) -> None:
        """Set ``weight_offload`` [1] from the fraction of experts in host memory."""
        bytes_on_host = expert_share * sum(
            group.num_hidden_layers * layer_parameters(model.hidden_size, group).experts
            for group in model.layer_groups
            if group.num_experts
        )
        share = round(bytes_on_host / count_parameters(model).total, 4)
        self.values["weight_offload"] = max(share, self.values.get("weight_offload") or 0.0)

    def build_for_workload(self, workload: str) -> LaunchSettings:
        """Return the settings; ``model`` is missing if the command does not name the model."""
        missing = () if self.values.get("model") else ("model",)
        limit = self.reading.command.options.get(ONGOING)
        used = frozenset() if limit is None else frozenset({limit.option})
        return self.build(workload, missing=missing, used_options=used)


def _prefill_names(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return settings with the names of the prefill pool; drop ``concurrency``."""
    return {
        PREFILL + name if name in OF_PREFILL else name: value
        for name, value in values.items()
        if name != "concurrency"
    }


def parse_size(text: str | None) -> int | None:
    """Parse a whole number as engines do, such as ``8k`` and ``8K``; None if it is no number.

    >>> parse_size("8192"), parse_size("8K"), parse_size("1.5k"), parse_size("auto")
    (8192, 8192, 1500, None)
    """
    match = re.fullmatch(r"([0-9_]{1,18}(?:\.[0-9]{1,9})?)([kKmMgG]?)", (text or "").strip())
    if match is None:
        return None
    value = float(match[1].replace("_", "")) * _FACTORS.get(match[2], 1)
    return int(value) if value.is_integer() else None


def parse_float(text: str | None) -> float | None:
    """Parse a finite number of at least 0; None if the text is no such number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def json_table(text: str | None) -> Mapping[str, object]:
    """Parse a JSON mapping of a command line; empty if there is none, or it is not readable."""
    try:
        value = parse_json(text or "{}", "")
    except PlannerError:
        return {}
    return value if isinstance(value, dict) else {}


def json_parts(option: ParsedOption, prefix: str = "") -> dict[str, ParsedOption]:
    """Return the values of an option's JSON as options, by dotted name after ``prefix``."""
    return {
        prefix + name: replace(option, option=prefix + name, texts=(plain_text(value),))
        for name, value in flattened(json_table(option.single))
    }


def merge_config(reading: OptionReader, engine: EngineReader) -> OptionReader:
    """Return a reader of the command's options, and of the YAML file that ``--config`` names.

    Options of the command override those of the file.
    """
    command, table = reading.command, engine.table
    config = command.files.get(reading.text("--config") or "")
    options = engine.accepts.name_options({**(config.options if config else {}), **command.options})
    # Parts of JSON that rows read.
    for name in {name.partition(".")[0] for name in table.used if "." in name} & {*options}:
        options |= json_parts(options[name], f"{name}.")
    texts = {name: option.texts[0] if option.texts else None for name, option in options.items()}
    return OptionReader(command=replace(command, options=options), meanings=table.read(texts))


def with_variables(
    reading: OptionReader, options: Mapping[str, str], table: OptionTable
) -> OptionReader:
    """Return a reader in which environment variables are defaults of ``options``."""
    command = reading.command
    variable_options = {
        name: replace(variable_option, option=name)
        for variable, name in options.items()
        if (variable_option := command.environment.get(variable))
        and variable_option.texts
        and variable_option.texts[0]
    }
    return OptionReader.of(replace(command, options={**variable_options, **command.options}), table)


def find_model_by_name(name: str | None) -> ModelSpec | None:
    """Return the shipped model that a repository or folder name means; None if unknown.

    Nothing is downloaded.
    """
    model = checkpoint_of(name).model if name else None
    try:
        return Catalogue().load_model(model) if model else None
    except (PlannerError, OSError, ValueError):
        return None


def model_of_nickname(text: str) -> str | None:
    """Return the repository for a benchmark's short model name, precision and vendor; else None.

    >>> model_of_nickname("dsr1_fp4_mi355x.sh"), model_of_nickname("dsr1-fp8")
    ('amd/DeepSeek-R1-0528-MXFP4', 'deepseek-ai/DeepSeek-R1-0528')
    >>> model_of_nickname("run.sh") is None
    True
    """
    nickname, *parts = re.split(r"[_-]", text.lower())
    vendor = "AMD" if any(part.startswith("mi") for part in parts) else ""
    rows = [row for row in shipped_rows("models/nicknames.csv") if row["word"] == nickname]
    matching = [
        row for row in rows if row["precision"] in ("", *parts) and row["maker"] in ("", vendor)
    ]
    best = sorted(matching, key=lambda row: (row["precision"] != "", row["maker"] != ""))
    return best[-1]["model"] if best else None


def _model_name(server: ServerSettings, engine: EngineReader) -> str | None:
    """Return the model's name in a command; for a folder or none, a known model in served name or
    file name, with a note; None if no name is known.
    """
    command = server.reading.command
    name = engine.model_name(server.reading)
    if name and (
        find_model_by_name(name) is not None or re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)
    ):
        return name
    stem = "" if name else PurePath(command.name).stem
    served = server.reading.text("--served-model-name") or server.reading.text("served-model-name")
    candidates = {
        f"it serves as {served}": served,
        f"{name} is an abbreviation of it": model_of_nickname(name or ""),
        f"the file is called {command.name}": model_of_nickname(command.name) or stem,
    }
    if name:
        candidates.popitem()
    for reason, candidate in candidates.items():
        if candidate and find_model_by_name(candidate) is not None:
            server.notes.append(f"The model is assumed to be {candidate}: {reason}.")
            return candidate
    return name


def find_gpu_by_name(name: str | None) -> GpuSpec | None:
    """Return the GPU that a label, a scheduler or the user names; None if unknown."""
    try:
        return Catalogue().load_gpu(parse_gpu_name(name) or name).spec if name else None
    except (PlannerError, OSError, ValueError):
        return None


def scheduler_default_of(
    server: ServerSettings, engine: EngineReader, name: str
) -> tuple[int, str]:
    """Return the engine's default of limit ``name`` on the file's GPU and release; and why."""
    if any(row.parameter == name for row in engine.table.defaults):
        return engine.table.default(name, *default_gpu(server))
    catalogue, gpu = Catalogue(), find_gpu_by_name(server.reading.command.resources.gpu)
    release = version_of(engine.name, server.reading.command)
    vendor = None if gpu is None else gpu.vendor
    profile = (release and release.profile(catalogue, vendor)) or engine.profile or engine.name
    number = "" if release is None else release.number
    spec = catalogue.load_engine(profile).spec
    is_offline = name == "offline_batched_tokens"
    scheduler = engine_on(spec, gpu, number, offline=is_offline).scheduler
    value = scheduler.max_num_seqs if name == "max_num_seqs" else scheduler.max_num_batched_tokens
    row = name.replace("offline", "max_num")
    options = (r.option for r in engine.table.rows if r.parameter == row and r.option)
    option = next(options, row)
    program = " of a program without a server" if is_offline else ""
    gpu_note = "; larger GPUs have more" if gpu is None and spec.scheduler.defaults else ""
    return value, f"{option} is {value:,} by default{program}{gpu_note}"


def set_drafts(server: ServerSettings, model: ModelSpec | None) -> None:
    """Set draft tokens per step and their source: a known model, MTP modules or heads.

    Rows compute ``drafts``, else the table has the tokens; ``draft_steps`` if they are a tree;
    ``draft_name``, which may name modules of the model or the type of the heads in ``drafter``;
    ``drafts_by_model``, if that may be a model. Heads without a path mean the modules of a model
    that has some.
    """
    of_rows, reading = server.quantities, server.reading
    tokens = of_rows.get("drafts") or parse_size(reading.value("draft_tokens"))
    tokens = tokens or parse_size(reading.value("mtp_tokens"))
    if not tokens:
        return
    server.values["draft_tokens"] = int(tokens)
    if (steps := of_rows.get("draft_steps")) is not None:
        server.values["draft_steps"] = int(steps)
    server.notes.append(
        "It uses speculative decoding: give --acceptance-rate, the probability that a "
        "drafted token is accepted."
    )
    name, path = (str(of_rows.get(key) or "") for key in ("draft_name", "drafter"))
    if of_rows.get("drafts_by_model") and find_model_by_name(path) is not None:
        server.values["draft_model"] = checkpoint_of(path).model
        return
    name, heads = name.lower(), path.lower()
    if not name:
        name = next((head for head in _HEADS if head in heads), "")
    has_modules = model is not None and bool(model.num_nextn_predict_layers or model.mtp_num_layers)
    is_module = name.endswith(("mtp", "nextn")) or (name == DraftMethod.EAGLE and not heads)
    if has_modules and is_module:
        server.values["draft_method"] = str(DraftMethod.MTP)
    elif name in (*_HEADS, DraftMethod.NGRAM):
        server.values["draft_method"] = name


def set_model(server: ServerSettings, name: str | None) -> ModelSpec | None:
    """Set the model of a command; return its spec, None if no shipped model has the name.

    Folders with an unknown name are left open.
    """
    model = find_model_by_name(name)
    if name and (model is not None or _REPOSITORY.fullmatch(name)):
        server.values["model"] = name
    elif name:
        server.notes.append(f"The model is not known from the name {name}.")
    return model


def set_quantization(server: ServerSettings, name: str | None, model: ModelSpec | None) -> None:
    """Set weight formats: from options, else from the checkpoint's name, else as published."""
    values = server.values
    server.copy_values("quantization", "expert_quantization")
    checkpoint_format = model.quantization if model else None
    if (
        checkpoint_format
        and values.get("quantization") == checkpoint_format.partition("_")[0] != checkpoint_format
    ):
        del values["quantization"]  # engines take the type of scales from the checkpoint
    if "quantization" in values:
        values.setdefault("expert_quantization", values["quantization"])
        return
    if "expert_quantization" in values:
        server.assume("quantization", checkpoint_format or _SIXTEEN_BIT, "type of the checkpoint")
        return
    name_format = checkpoint_of(name).quantization if name else None
    if name_format is not None:
        reason = f"the checkpoint is called {name}"
        has_checkpoint = model is not None and name_format in {
            checkpoint.quantization for checkpoint in model.checkpoints
        }
        dense, experts = (
            stored_types(in_format(model, name_format))
            if model and has_checkpoint
            else (name_format, name_format)
        )
        server.assume("quantization", dense, reason)
        server.assume("expert_quantization", experts, reason)
        return
    reason = "the published checkpoint" if model else "16 bit by default"
    dense, experts = stored_types(model) if model else (_SIXTEEN_BIT, _SIXTEEN_BIT)
    server.assume("quantization", dense, reason)
    server.assume("expert_quantization", experts, reason)


def set_offload(server: ServerSettings, model: ModelSpec | None, option: str) -> None:
    """Set the fraction of weights in host memory from ``option`` [GiB per GPU]; no KV offload."""
    server.values.update(weight_offload=0.0, kv_offload=0.0)
    size = parse_float(server.reading.text(option))
    if not size:
        return
    if model is None:
        server.notes.append(
            f"{option} keeps {size:g} GiB of each GPU's weights in host memory: give their share "
            "with --set weight_offload=SHARE."
        )
        return
    weights_gib = weights_per_gpu(model, server.values) / GIB
    server.values["weight_offload"] = min(round(size / weights_gib, 4), 0.99)


def weights_per_gpu(model: ModelSpec, values: Mapping[str, object]) -> float:
    """Return the weights per GPU of one server [B], in GPU or host memory.

    ``values`` has its parameters and the name of its ``engine``.
    """
    catalogue, terms = Catalogue(), glossary()
    inputs = ServingInputs(
        machine=Machine(
            gpu=catalogue.load_gpu(_ANY_GPU).spec, cluster=catalogue.load_cluster(_ANY_NODE).spec
        ),
        model=model,
        engine=catalogue.load_engine(str(values["engine"])).spec,
        workload=ServingWorkload(input_tokens=1, output_tokens=1),
    )
    names = (*ServingConfigurations.names(),)
    coded_values = {
        name: terms[name].encode(
            parse_value(terms[name], value) if isinstance(value, str) else value
        )
        for name, value in values.items()
        if name in names
    }
    return float(weight_bytes(inputs, ServingConfigurations.of(**coded_values)).total)


def note_lengths(server: ServerSettings, longest: int | None) -> None:
    """Add a note that the lengths of requests are open, unless a benchmark specifies both."""
    if {*LENGTHS} <= {*server.reading.command.benchmark_load}:
        return
    limit = "" if longest is None else f", at most {longest:,} tokens together"
    name = str(server.values.get("model") or "")
    if server.reading.value("output_tokens") == _PREFILL_ONLY or _SCORES.search(name):
        server.values["output_tokens"] = _PREFILL_ONLY
        server.notes.append(
            f"Prompts are embedded or scored. The command does not say how long they are{limit}: "
            "give --input-tokens."
        )
    else:
        server.notes.append(
            f"The command does not say how long prompts and answers are{limit}: give "
            "--input-tokens and --output-tokens."
        )
    server.notes.append("Of the requests that may run at once, as many run as the KV cache holds.")


def set_adapters(server: ServerSettings, switches: Sequence[str]) -> None:
    """Set served LoRA adapters if one of ``switches`` is set; without switches, if a rank is."""
    reading = server.reading
    rank = parse_size(reading.value("lora_rank"))
    if not (any(map(reading.has, switches)) if switches else rank):
        return
    server.values["lora_rank"] = rank or _LORA_RANK
    if number := parse_size(reading.value("max_loras")):
        server.values["max_loras"] = number
    target_option = reading.command.options.get(LORA_OPTION)
    if names := [text for text in target_option.texts if text] if target_option is not None else []:
        server.values["lora_targets"] = str(nearest_adapter_targets(names))
    if switches:
        server.notes.append(
            "All requests are assumed to use an adapter, as many different ones as fit."
        )


def _set_layout(server: ServerSettings, engine: EngineReader, model: ModelSpec | None) -> int:
    """Set what the rows of an engine's table compute, its degrees and GPUs; return attention ranks.

    The rows compute from the counts of the table and the sizes of the model. ``server_gpus`` is
    theirs if it is not the product of the degrees, ``drafts``, ``draft_steps``, ``draft_name``,
    ``drafter`` and ``drafts_by_model`` are of speculative decoding.
    Raises LaunchError if the total is not a multiple of what one server takes.
    """
    reading = server.reading
    counts = {name: server.count(name) for name in (*_DEGREES, "stage_gpus", "server_copies")}
    sizes = {name: parse_size(reading.value(name)) for name in engine.table.parameters}
    quantities = server.quantities
    quantities |= {
        **sizes,
        **counts,
        "num_experts": None if model is None else model.num_experts,
        "model_positions": None if model is None else model.max_position_embeddings,
        "node_gpus": parse_int(reading.command.resources.gpus_per_node),
    }
    apply_read_rows(reading, engine.table, server, quantities, "serve")
    for name in _DEGREES:
        server.values.setdefault(name, counts[name])
    degrees = (int(server.values[name]) for name in _DEGREES[:-1])
    server.set_gpus(int(quantities.get("server_gpus") or prod(degrees)))
    return int(server.values["attention_data_parallel"])


@record(kw_only=True)
class EngineReader:
    """Functions that read commands of an engine in addition to its table.

    Parameters
    ----------
    name : of its option table and of its target
    profile : name of its profile, if different
    model_options : options with the model, the first that is set counts
    programs : words of a command that are not the model; empty if it has no positional model
    prepare : adds to a command what files and variables set
    batch : sets requests and tokens per step if the table has no defaults
    finish : sets what depends on the other settings; returns the pool if options decide it
    has_rank_limit : whether the limit of sequences also holds for each rank of a single pool
    switches : options that enable adapters
    host_cache : option that keeps KV cache in host memory
    weights_on_host : option with GiB of each GPU's weights in host memory
    """

    name: str
    profile: str = ""
    model_options: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    prepare: Callable[[OptionReader, EngineReader], OptionReader] = lambda reading, engine: reading
    batch: Callable[[ServerSettings, ModelSpec | None, int], None] = lambda server, model, ranks: (
        None
    )
    finish: Callable[[ServerSettings], str | None] = lambda server: None
    has_rank_limit: bool = False
    switches: tuple[str, ...] = ()
    host_cache: str = ""
    weights_on_host: str = ""

    @property
    def table(self) -> OptionTable:
        """The option table of the engine."""
        return OptionTable.load(self.name)

    @property
    def accepts(self) -> ParserOptions:
        """Options that its parsers accept."""
        return ParserOptions.of(tool_row(self.name)["accepted"].split("|"), self.table)

    def model_name(self, reading: OptionReader) -> str | None:
        """Return a command's model: from an option, or the word after the program; else None."""
        for option in self.model_options:
            if reading.text(option):
                return reading.text(option)
        if not self.programs:
            return None
        words = (
            text
            for word_option in reading.command.positional
            for text in word_option.texts
            if text and text.rsplit("/", 1)[-1] not in self.programs
        )
        return next((word for word in words if "=" not in word), None)


def read_engine(reading: OptionReader, engine: EngineReader) -> LaunchSettings:
    """Read the settings of the server that a command of an engine starts."""
    reading = engine.prepare(reading, engine)
    pool = reading.value("pool") or AGGREGATED
    server = read_server(reading, engine, pool)
    pool = engine.finish(server) or pool
    if engine.has_rank_limit and pool == AGGREGATED:
        ranks = server.values["attention_data_parallel"]
        server.values["max_num_seqs"] = server.values["concurrency"] // ranks
    return server.build_for_pool(pool)


def read_server(reading: OptionReader, engine: EngineReader, pool: str) -> ServerSettings:
    """Return the settings of a command's server; ``pool``: ``serve``, ``prefill`` or ``decode``.

    Raises LaunchError if attention and FFN have servers of their own, or GPUs contradict.
    """
    server = ServerSettings(reading=reading)
    name = _model_name(server, engine)
    model = set_model(server, name)
    server.values["engine"] = engine.profile or engine.name
    unknown = {option.option for option in reading.command.unknown}
    if "--afd-role" in unknown or "afd" in json_table(reading.text("--additional-config")):
        raise LaunchError(
            "One of two kinds of servers, with attention and FFN apart (attention-FFN "
            f"disaggregation), is not read. {ATTENTION_FFN_ENGINES} Both kinds together are "
            f"predicted by: planner search {name} --gpus N --mode attention-ffn"
        )
    server.copy_values("gpu_memory_utilization")
    ranks = _set_layout(server, engine, model)
    set_quantization(server, name, model)
    of_cache = [row.option for row in engine.table.rows if row.value == NOT_THE_DEFAULT]
    if (
        model is not None
        and model.compresses_attention
        and any(reading.text(option) in (None, "auto") for option in of_cache)
    ):
        server.assume("kv_cache", "fp8", "compressed attention is cached in 8 bit (fp8_ds_mla)")
    else:
        server.copy_values("kv_cache")
    engine.batch(server, model, ranks)
    _put_batch(server, engine, ranks, pool)
    set_drafts(server, model)
    set_adapters(server, engine.switches)
    amount = reading.text(engine.host_cache)
    if reading.has(engine.host_cache) and (amount is None or parse_float(amount)):
        server.notes.append(
            "Cache evicted from a GPU is kept in host memory; the share is not known."
        )
    set_offload(server, model, engine.weights_on_host)
    longest = parse_size(reading.value("max_model_len"))
    has_default = any(
        row.role is OptionRole.READ and row.parameter == "max_model_len"
        for row in engine.table.expressions
    )
    if longest or not has_default:
        server.values["max_model_len"] = longest
    note_lengths(server, longest)
    return server


def default_gpu(server: ServerSettings) -> tuple[str | None, float]:
    """Name in lower case and GiB of the GPU that defaults depend on; None if unknown."""
    gpu = find_gpu_by_name(server.reading.command.resources.gpu)
    return (None, 0.0) if gpu is None else (gpu.name.lower(), gpu.memory_capacity / GIB)


def _put_batch(server: ServerSettings, engine: EngineReader, ranks: int, pool: str) -> None:
    """Set concurrent requests per server and tokens per step and rank, from options or defaults."""
    reading = server.reading
    parameters = {row.parameter for row in engine.table.rows}
    name, factor = ("server_seqs", 1) if "server_seqs" in parameters else ("max_num_seqs", ranks)
    seqs = parse_size(reading.value(name))
    if seqs is None:
        seqs, reason = scheduler_default_of(server, engine, name)
        server.assume("concurrency", max(seqs * factor, ranks), reason)
    else:
        server.values["concurrency"] = seqs * factor
    is_of_server = "server_step_tokens" in parameters
    name, divisor = ("server_step_tokens", ranks) if is_of_server else ("max_num_batched_tokens", 1)
    tokens = parse_size(reading.value(name))
    if is_of_server and pool == DECODE_POOL:
        minimum = ceil_div(int(server.values["concurrency"]), ranks)
        server.assume("max_num_batched_tokens", minimum, "one token of each request of a rank")
    elif tokens is None:
        tokens, reason = scheduler_default_of(server, engine, name)
        minimum = 1 if is_of_server else seqs
        server.assume("max_num_batched_tokens", max(tokens // divisor, minimum), reason)
    else:
        server.values["max_num_batched_tokens"] = max(tokens // divisor, 1)
    if reading.value("enforce_eager") == "true":
        server.values["enforce_eager"] = True
    if captured := parse_size(reading.value("captured_batch")):
        server.values["captured_batch"] = captured
    elif any(row.parameter == "captured_batch" for row in engine.table.defaults):
        server.assume("captured_batch", *engine.table.default("captured_batch", None, 0.0))
    if shards := parse_size(reading.value("decode_context_parallel")):
        server.values["decode_context_parallel"] = shards
    if processes := parse_float(reading.value("api_servers")):
        server.values.setdefault("api_servers", processes)
    if interval := parse_size(reading.value("stream_interval")):
        server.values["stream_interval"] = interval
    if copies := parse_size(reading.value("redundant_experts")):
        server.values["redundant_experts"] = copies
    if reading.value("prefix_caching") == "true" and not server.quantities.get("misses_prefixes"):
        server.notes.append(
            "Prefix caching is on: give --prefix-cache-hit-rate, the share of prompt tokens "
            "found in the cache."
        )
