"""What the commands of serving engines have in common when they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TypeVar

from planner.base.read_files import parse_json
from planner.base.records import record
from planner.base.training_aliases import nearest_adapter_targets
from planner.base.units import GIB, ceil_div
from planner.configurations.configuration_tables import OF_PREFILL, PREFILL, ServingConfigurations
from planner.errors import LaunchError, PlannerError
from planner.estimators.inference.context import ServingSetting
from planner.estimators.inference.weights import weight_bytes
from planner.estimators.machine import Machine
from planner.launch.launchers.job_resources import parse_gpu_name
from planner.launch.option_table import OptionTable, ParserOptions, shipped_rows, tool_row
from planner.launch.parsed_launch import (
    LENGTHS,
    ONGOING,
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    version_of,
)
from planner.launch.serving_writer import DECODE_POOL, LORA_OPTION, PREFILL_POOL
from planner.layers.model import count_parameters, layer_parameters
from planner.question.parse_values import parse_value
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue, in_format, stored_types
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.quantization import checkpoint_of
from planner.specs.serving_workload import DraftMethod, ServingWorkload
from planner.specs.software_profile import engine_on

_AGGREGATED, _DISAGGREGATED = "aggregated", "disaggregated"
Value = TypeVar("Value")
_PREFILL_ONLY = "0"
_SIXTEEN_BIT = "w16a16"
_ANY_GPU, _ANY_NODE = "a100-sxm-80gb", "dgx-a100"  # weights are as large on every one
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+|[\w-][\w.-]*")
_LORA_RANK = 16
_HEADS = (DraftMethod.EAGLE3, DraftMethod.EAGLE)
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(kw_only=True)
class ServerSettings(SettingsBuilder):
    """What is gathered of one command."""

    reading: OptionReader

    def copy(self, *names: str) -> None:
        """Parameters that the table reads as they are."""
        for name in names:
            meaning = self.reading.meanings.get(name)
            if meaning is not None:
                self.values[name] = meaning.value

    def count(self, name: str) -> int:
        """A parameter of the table as a whole number; 1 where it is none."""
        text = self.reading.value(name)
        number = parse_size(text)
        return number or 1

    def put_gpus(self, own: int) -> None:
        """The GPUs of all servers, where the file has a total, else those of one.

        Raises LaunchError if the total is not a multiple of what one server takes.
        """
        given = self.reading.command.resources.num_gpus
        total = parse_size(given.texts[0]) if given is not None and given.texts else None
        if total is not None and given is not None and total % own:
            raise LaunchError(
                f"{self.reading.place}: a server takes {own} GPUs, "
                f"and {given.option} gives {total} (line {given.line}): change one of them."
            )
        self.values["num_gpus"] = total or own

    def of_pool(self, pool: str) -> LaunchSettings:
        """The answers; those of a prefill worker have its names.

        Prefill and decode workers are commands of their own: the answers of both together are a
        plan, with the sum of their GPUs. No more requests run at once than are sent.
        """
        values, defaults = dict(self.values), dict(self.defaults)
        own = int(values["tensor_parallel"]) * int(values["pipeline_parallel"])
        own *= int(values["attention_data_parallel"])
        copies = max(int(values["num_gpus"]) // own, 1)  # ranks that share nothing
        limit = ceil_div(parse_size(self.reading.text(ONGOING)) or 0, copies)
        if 0 < limit < int(values["concurrency"]):
            values["concurrency"] = limit
            defaults.pop("concurrency", None)
        values["mode"] = _DISAGGREGATED if pool in (PREFILL_POOL, DECODE_POOL) else _AGGREGATED
        if pool == PREFILL_POOL:
            values, defaults = _of_prefill(values), _of_prefill(defaults)
            values["prefill_replicas"] = copies
        elif pool == DECODE_POOL:
            values["replicas"] = copies
        return replace(self.of_workload("serve"), values=values, defaults=defaults)

    def put_experts_on_host(self, model: ModelSpec, part: float, program: str) -> None:
        """This part of the experts in host memory, as a share of the weights."""
        held = part * sum(
            group.num_hidden_layers * layer_parameters(model.hidden_size, group).experts
            for group in model.layer_groups
            if group.num_experts
        )
        share = round(held / count_parameters(model).total, 4)
        self.values["weight_offload"] = max(share, self.values.get("weight_offload") or 0.0)
        self.notes.append(
            f"Experts in host memory are {share:.0%} of the weights. The plan reads all of them "
            f"over the link in a step; {program} computes the chosen ones there: it is faster "
            "than said."
        )

    def of_workload(self, workload: str) -> LaunchSettings:
        """The answers, which lack the model where the command does."""
        asked = () if self.values.get("model") else ("model",)
        limit = self.reading.command.options.get(ONGOING)
        used = frozenset() if limit is None else frozenset({limit.option})
        return self.build(workload, missing=asked, used_options=used)


def _of_prefill(values: Mapping[str, Value]) -> dict[str, Value]:
    return {
        PREFILL + name if name in OF_PREFILL else name: value
        for name, value in values.items()
        if name != "concurrency"
    }


def parse_size(text: str | None) -> int | None:
    """A whole number as engines read it, ``8k`` and ``8K`` among others; None if it is none.

    >>> whole("8192"), whole("8K"), whole("1.5k"), whole("auto")
    (8192, 8192, 1500, None)
    """
    match = re.fullmatch(r"([0-9_]{1,18}(?:\.[0-9]{1,9})?)([kKmMgG]?)", (text or "").strip())
    if match is None:
        return None
    value = float(match[1].replace("_", "")) * _FACTORS.get(match[2], 1)
    return int(value) if value.is_integer() else None


def parse_float(text: str | None) -> float | None:
    """A number; None if it is none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def json_table(text: str | None) -> Mapping[str, object]:
    """A mapping of JSON on the command line; empty where there is none that can be read."""
    try:
        value = parse_json(text or "{}", "")
    except PlannerError:
        return {}
    return value if isinstance(value, dict) else {}


def with_config(reading: OptionReader, engine: EngineReader) -> OptionReader:
    """The reading with the options of the YAML that a command's ``--config`` names, or of a
    document of such options alone; those of the command go before them."""
    found, table = reading.command, engine.table
    beside = found.files.get(reading.text("--config") or "")
    options = engine.accepts.of_command({**(beside.options if beside else {}), **found.options})
    texts = {name: option.texts[0] if option.texts else None for name, option in options.items()}
    return OptionReader(command=replace(found, options=options), meanings=table.read(texts))


def find_model_by_name(name: str | None) -> ModelSpec | None:
    """The shipped model that a repository or folder is by its name; None where there is none.
    Nothing is loaded from elsewhere."""
    found = checkpoint_of(name).model if name else None
    try:
        return Catalogue().load_model(found) if found else None
    except (PlannerError, OSError, ValueError):
        return None


def nicknamed(text: str) -> str | None:
    """The repository that a short name of benchmarks stands for, with what stands behind it.

    >>> nicknamed("dsr1_fp4_mi355x.sh"), nicknamed("dsr1-fp8"), nicknamed("run.sh")
    ('amd/DeepSeek-R1-0528-MXFP4', 'deepseek-ai/DeepSeek-R1-0528', None)
    """
    word, *rest = re.split(r"[_-]", text.lower())
    maker = "AMD" if any(one.startswith("mi") for one in rest) else ""
    rows = [row for row in shipped_rows("models/nicknames.csv") if row["word"] == word]
    same = [row for row in rows if row["precision"] in ("", *rest) and row["maker"] in ("", maker)]
    best = sorted(same, key=lambda row: (row["precision"] != "", row["maker"] != ""))
    return best[-1]["model"] if best else None


def _model_name(server: ServerSettings, engine: EngineReader) -> str | None:
    """What a command loads; where a folder or nothing is named, what it serves as or is called."""
    found = server.reading.command
    name = engine.model_name(server.reading)
    if name and (
        find_model_by_name(name) is not None or re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)
    ):
        return name
    stem = "" if name else PurePath(found.name).stem
    served = server.reading.text("--served-model-name") or server.reading.text("served-model-name")
    others = {
        f"it serves as {served}": served,
        f"{name} is an abbreviation of it": nicknamed(name or ""),
        f"the file is called {found.name}": nicknamed(found.name) or stem,
    }
    if name:
        others.popitem()
    for why, other in others.items():
        if other and find_model_by_name(other) is not None:
            server.notes.append(f"The model is assumed to be {other}: {why}.")
            return other
    return name


def find_gpu_by_name(name: str | None) -> GpuSpec | None:
    """The GPU that a label, a scheduler or the user calls so; None where it is not known."""
    try:
        return Catalogue().load_gpu(parse_gpu_name(name) or name).spec if name else None
    except (PlannerError, OSError, ValueError):
        return None


def scheduler_default_of(
    server: ServerSettings, engine: EngineReader, name: str
) -> tuple[int, str]:
    """What ``name`` is on the GPU in the release of a file where no option sets it, and why."""
    if any(row.parameter == name for row in engine.table.defaults):
        return engine.table.default(name, *default_gpu(server))
    catalogue, gpu = Catalogue(), find_gpu_by_name(server.reading.command.resources.gpu)
    release = version_of(engine.name, server.reading.command)
    vendor = None if gpu is None else gpu.vendor
    profile = (release and release.profile(catalogue, vendor)) or engine.name
    number = "" if release is None else release.number
    spec = catalogue.load_engine(profile).spec
    is_of_program = name == "offline_batched_tokens"
    scheduler = engine_on(spec, gpu, number, offline=is_of_program).scheduler
    value = scheduler.max_num_seqs if name == "max_num_seqs" else scheduler.max_num_batched_tokens
    row = name.replace("offline", "max_num")
    option = next(one.option for one in engine.table.rows if one.parameter == row and one.option)
    program = " of a program without a server" if is_of_program else ""
    where = "; larger GPUs have more" if gpu is None and spec.scheduler.defaults else ""
    return value, f"{option} is {value:,} by default{program}{where}"


@record(kw_only=True)
class DraftSettings:
    """What drafts tokens, as a command names it.

    ``number`` is that of its tokens, in so many ``steps`` where they are a tree; ``method`` may
    name modules of the model or the kind of heads in ``path``. ``is_model``: it may be a model.
    """

    number: int
    steps: int | None = None
    method: str = ""
    path: str = ""
    is_model: bool = False


def put_drafts(
    server: ServerSettings, drafted: DraftSettings | None, model: ModelSpec | None
) -> None:
    """Tokens that are drafted, and by what: a model that is known, modules or heads.

    Modules of a model are read as such where it has some: engines run them like heads.
    """
    if drafted is None:
        return
    server.values["draft_tokens"] = drafted.number
    if drafted.steps is not None:
        server.values["draft_steps"] = drafted.steps
    server.notes.append(
        "It uses speculative decoding: give --acceptance-rate, the probability that a "
        "drafted token is accepted."
    )
    if drafted.is_model and find_model_by_name(drafted.path) is not None:
        server.values["draft_model"] = checkpoint_of(drafted.path).model
        return
    name, heads = drafted.method.lower(), drafted.path.lower()
    if not name:
        name = next((one for one in _HEADS if one in heads), "")
    has_modules = model is not None and bool(model.num_nextn_predict_layers or model.mtp_num_layers)
    is_module = name.endswith(("mtp", "nextn")) or (name == DraftMethod.EAGLE and not heads)
    if has_modules and is_module:
        server.values["draft_method"] = str(DraftMethod.MTP)
    elif name in (*_HEADS, DraftMethod.NGRAM):
        server.values["draft_method"] = name


def put_model(server: ServerSettings, name: str | None) -> ModelSpec | None:
    """The model of a command; None where none is shipped of that name.

    A folder whose name tells nothing is left open.
    """
    model = find_model_by_name(name)
    if name and (model is not None or _REPOSITORY.fullmatch(name)):
        server.values["model"] = name
    elif name:
        server.notes.append(f"The model is not known from the name {name}.")
    return model


def put_quantization(server: ServerSettings, name: str | None, model: ModelSpec | None) -> None:
    """The types of weights: as an option says, else those of the checkpoint as its name tells."""
    values = server.values
    server.copy("quantization", "expert_quantization")
    own = model.quantization if model else None
    if own and values.get("quantization") == own.partition("_")[0] != own:
        del values["quantization"]  # engines take the type of scales of such a checkpoint from it
    if "quantization" in values:
        values.setdefault("expert_quantization", values["quantization"])
        return
    if "expert_quantization" in values:
        server.assume("quantization", own or _SIXTEEN_BIT, "that of the checkpoint")
        return
    word = checkpoint_of(name).quantization if name else None
    if word is not None:
        why = f"the checkpoint is called {name}"
        known = model is not None and word in {
            checkpoint.quantization for checkpoint in model.checkpoints
        }
        dense, experts = stored_types(in_format(model, word)) if model and known else (word, word)
        server.assume("quantization", dense, why)
        server.assume("expert_quantization", experts, why)
        return
    why = "the published checkpoint" if model else "16 bit by default"
    dense, experts = stored_types(model) if model else (_SIXTEEN_BIT, _SIXTEEN_BIT)
    server.assume("quantization", dense, why)
    server.assume("expert_quantization", experts, why)


def put_experts(server: ServerSettings, model: ModelSpec | None, stage_gpus: int) -> None:
    """Experts over all GPUs of a stage, or each over all of them."""
    splits = server.reading.value("splits_experts") == "true"
    has_experts = model is None or model.num_experts > 0
    server.values["expert_parallel"] = stage_gpus if splits and has_experts else 1


def put_offload(server: ServerSettings, model: ModelSpec | None, option: str) -> None:
    """The share of the weights in host memory, of GiB of each GPU; no cache there."""
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
    whole_size = weights_per_gpu(model, server.values) / GIB
    server.values["weight_offload"] = min(round(size / whole_size, 4), 0.99)


def weights_per_gpu(model: ModelSpec, values: Mapping[str, object]) -> float:
    """Bytes of the weights of a GPU of one server, wherever they are kept.

    ``values`` has its parameters and the name of its ``engine``.
    """
    catalogue, terms = Catalogue(), glossary()
    setting = ServingSetting(
        machine=Machine(
            gpu=catalogue.load_gpu(_ANY_GPU).spec, cluster=catalogue.load_cluster(_ANY_NODE).spec
        ),
        model=model,
        engine=catalogue.load_engine(str(values["engine"])).spec,
        workload=ServingWorkload(input_tokens=1, output_tokens=1),
    )
    names = (*ServingConfigurations.names(),)
    own = {
        name: terms[name].coded(
            parse_value(terms[name], value) if isinstance(value, str) else value
        )
        for name, value in values.items()
        if name in names
    }
    return float(weight_bytes(setting, ServingConfigurations.of(**own)).total)


def note_lengths(server: ServerSettings, longest: int | None) -> None:
    """That a command does not tell how long requests are, where nothing else does."""
    if {*LENGTHS} <= {*server.reading.command.benchmark_load}:
        return
    limit = "" if longest is None else f", at most {longest:,} tokens together"
    if server.reading.value("output_tokens") == _PREFILL_ONLY:
        server.copy("output_tokens")
        server.notes.append(
            f"Prompts are embedded or scored. The command does not say how long they are{limit}: "
            "give --input-tokens."
        )
    else:
        server.notes.append(
            f"The command does not say how long prompts and answers are{limit}: give "
            "--input-tokens and --output-tokens."
        )
    server.notes.append(
        "As many of the requests that may run at once do run as the cache has room for."
    )


def put_adapters(server: ServerSettings, switches: Sequence[str]) -> None:
    """Adapters that a command serves: where one of some options is there, else where a rank is."""
    reading = server.reading
    rank = parse_size(reading.value("lora_rank"))
    if not (any(map(reading.has, switches)) if switches else rank):
        return
    server.values["lora_rank"] = rank or _LORA_RANK
    if number := parse_size(reading.value("max_loras")):
        server.values["max_loras"] = number
    given = reading.command.options.get(LORA_OPTION)
    if names := [text for text in given.texts if text] if given is not None else []:
        server.values["lora_targets"] = str(nearest_adapter_targets(names))
    if switches:
        server.notes.append(
            "All requests are assumed to use an adapter, as many different ones as fit."
        )


@record(kw_only=True)
class EngineReader:
    """How commands of an engine are read, where its table does not say it.

    Parameters
    ----------
    name : of its table, and of its row among the targets
    model_options : what is loaded, the first of them that is there
    programs : words of a command that are no model; empty where none stands beside the options
    layout : put the layout of a server, and how many ranks compute attention of requests of
        their own
    batch : put requests and tokens of a step where the table has no default of them
    drafts : what drafts tokens
    longest : put the longest request, where the engine has another default than none
    switches : options that let a server have adapters
    host_cache : the option that keeps cache in host memory
    weights_on_host : the option with GiB of each GPU's weights in host memory
    finds_prefixes : whether prefixes are looked for where the command says so
    """

    name: str
    model_options: tuple[str, ...]
    programs: tuple[str, ...] = ()
    layout: Callable[[ServerSettings, ModelSpec | None], int]
    batch: Callable[[ServerSettings, ModelSpec | None, int], None] = lambda told, model, ranks: None
    drafts: Callable[[OptionReader], DraftSettings | None]
    longest: Callable[[ServerSettings, ModelSpec | None], None] | None = None
    switches: tuple[str, ...] = ()
    host_cache: str = ""
    weights_on_host: str = ""
    finds_prefixes: Callable[[OptionReader], bool] = lambda reading: True

    @property
    def table(self) -> OptionTable:
        """Which option says which parameter."""
        return OptionTable.load(self.name)

    @property
    def accepts(self) -> ParserOptions:
        """What its parsers take."""
        return ParserOptions.of(tool_row(self.name)["accepted"].split("|"), self.table)

    def model_name(self, reading: OptionReader) -> str | None:
        """What is loaded: an option, or the word after the program."""
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


def read_server(reading: OptionReader, engine: EngineReader, pool: str) -> ServerSettings:
    """What a command says of its server, of the ``pool`` that it belongs to."""
    told = ServerSettings(reading=reading)
    name = _model_name(told, engine)
    model = put_model(told, name)
    told.values["engine"] = engine.name
    ranks = engine.layout(told, model)
    put_quantization(told, name, model)
    told.copy("kv_cache", "gpu_memory_utilization")
    engine.batch(told, model, ranks)
    _put_batch(told, engine, ranks, pool)
    put_drafts(told, engine.drafts(reading), model)
    put_adapters(told, engine.switches)
    amount = reading.text(engine.host_cache)
    if reading.has(engine.host_cache) and (amount is None or parse_float(amount)):
        told.notes.append(
            "Cache evicted from a GPU is kept in host memory; the share is not known."
        )
    put_offload(told, model, engine.weights_on_host)
    longest = parse_size(reading.value("max_model_len"))
    if engine.longest is None:
        told.values["max_model_len"] = longest
    else:
        engine.longest(told, model)
    note_lengths(told, longest)
    return told


def default_gpu(server: ServerSettings) -> tuple[str | None, float]:
    """The GPU that defaults depend on, in small letters, and its GiB; None where none is known."""
    gpu = find_gpu_by_name(server.reading.command.resources.gpu)
    return (None, 0.0) if gpu is None else (gpu.name.lower(), gpu.memory_capacity / GIB)


def _put_batch(server: ServerSettings, engine: EngineReader, ranks: int, pool: str) -> None:
    """Requests and tokens of a step: of a rank, or of a whole server where options count so."""
    reading = server.reading
    own = {row.parameter for row in engine.table.rows}
    name, each = ("server_seqs", 1) if "server_seqs" in own else ("max_num_seqs", ranks)
    seqs = parse_size(reading.value(name))
    if seqs is None:
        seqs, why = scheduler_default_of(server, engine, name)
        server.assume("concurrency", max(seqs * each, ranks), why)
    else:
        server.values["concurrency"] = seqs * each
    is_of_server = "server_step_tokens" in own
    name, over = ("server_step_tokens", ranks) if is_of_server else ("max_num_batched_tokens", 1)
    tokens = parse_size(reading.value(name))
    if is_of_server and pool == DECODE_POOL:
        least = ceil_div(int(server.values["concurrency"]), ranks)
        server.assume("max_num_batched_tokens", least, "one token of each request of a rank")
    elif tokens is None:
        tokens, why = scheduler_default_of(server, engine, name)
        least = 1 if is_of_server else seqs
        server.assume("max_num_batched_tokens", max(tokens // over, least), why)
    else:
        server.values["max_num_batched_tokens"] = max(tokens // over, 1)
    if reading.value("enforce_eager") == "true":
        server.values["enforce_eager"] = True
    if copies := parse_size(reading.value("redundant_experts")):
        server.values["redundant_experts"] = copies
    if reading.value("prefix_caching") == "true" and engine.finds_prefixes(reading):
        server.notes.append(
            "Prefix caching is on: give --prefix-cache-hit-rate, the share of prompt tokens "
            "found in the cache."
        )
