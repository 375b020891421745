"""TensorRT-LLM: ``trtllm-serve`` and the YAML of its further options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.edits import Changes, ParsedOption
from planner.documents.yaml_writer import yaml_text
from planner.launch.option_table import (
    OptionTable,
    ParameterNote,
    option_aliases,
)
from planner.launch.read.hf_trainer.write_script import nest_options
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader, ParsedCommand
from planner.launch.read.serving_reader import (
    EngineReader,
    ServerSettings,
    json_parts,
    parse_size,
    read_engine,
    read_server,
)
from planner.launch.target import (
    CommandWords,
    LaunchOutputFile,
    LaunchTarget,
    Process,
    ShellVariable,
)
from planner.launch.write.server_groups import DECODE_POOL, PREFILL_POOL, draft_model_argument
from planner.launch.write.serving_writer import (
    ServerCommand,
    make_router_process,
    server_hooks,
    server_urls,
)
from planner.specs.software_profile import is_before

NAME = "tensorrt-llm"
_MODULE = "dynamo.trtllm"
_BENCH, _BENCH_COMMANDS = "trtllm-bench", ("throughput", "latency", "build")
_POOLS = {"context_servers": PREFILL_POOL, "generation_servers": DECODE_POOL}
_OVERRIDE = "--override-engine-args"
_TABLE = OptionTable.load("tensorrt-llm")
_CONFIG_FILE_OPTIONS = ("--config", "--extra_llm_api_options", "--extra-engine-args")


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a server command, or of a document with two pools."""
    if {*_POOLS} <= {name.split(".")[0] for name in reading.command.options}:
        return _read_pools(reading)
    return read_engine(reading, _ENGINE)


def _finish(server: ServerSettings) -> None:
    # trtllm-bench pads graphs of all batches; front ends have settings of their own.
    if "trtllm-serve" not in server.reading.command.text and "captured_batch" in server.defaults:
        del server.values["captured_batch"], server.defaults["captured_batch"]
    if _is_bench(server.reading.command, "latency"):
        server.values["concurrency"] = 1  # low_latency.py sets the batch to it


def _is_bench(command: ParsedCommand, *commands: str) -> bool:
    words = {word.rsplit("/", 1)[-1] for word in command.words}
    return _BENCH in words and bool({*commands} & words)


def _split_changes(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """Split changes into options that the command accepts and keys of its YAML file."""
    if not _is_bench(command, *_BENCH_COMMANDS[:2]):
        return changes, {}
    bench_options = option_aliases("trtllm-bench")
    command_changes = {
        bench_options[name]: texts for name, texts in changes.items() if name in bench_options
    }
    removed = {
        name: None
        for name, texts in changes.items()
        if texts is None and name not in command_changes
    }
    file_changes = {*changes} - {*bench_options, *removed}
    return {**removed, **command_changes}, {
        name: changes[name] for name in changes if name in file_changes
    }


def _read_pools(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a document with a prefill and a decode pool."""
    options = reading.command.options
    common = {name: option for name, option in options.items() if name.split(".")[0] not in _POOLS}
    pools: list[LaunchSettings] = []
    for name, pool in _POOLS.items():
        pool_options = {
            option.removeprefix(f"{name}."): parsed
            for option, parsed in options.items()
            if option.startswith(f"{name}.")
        }
        count = pool_options.get("num_instances")
        instances = 1 if count is None else parse_size(count.single) or 1
        settings = read_server(
            _reading_with(reading, {**common, **pool_options}), _ENGINE, pool
        ).build_for_pool(pool)
        replicas_term = "prefill_replicas" if pool == PREFILL_POOL else "replicas"
        values = {**settings.values, replicas_term: instances}
        values["num_gpus"] = int(settings.values["num_gpus"]) * instances
        pools.append(replace(settings, values=values))
    prefill, decode = pools
    num_gpus = prefill.values["num_gpus"] + decode.values["num_gpus"]
    return replace(
        decode,
        values={**prefill.values, **decode.values, "num_gpus": num_gpus},
        used_options=frozenset(options),
        defaults={**prefill.defaults, **decode.defaults},
    )


def _prepare(reading: OptionReader, _: EngineReader) -> OptionReader:
    """Return a reader with keys of the command's YAML, which override its options."""
    options = reading.command.options
    is_bench = _is_bench(reading.command, *_BENCH_COMMANDS)
    if is_bench and "-m" in options and "--model" not in options:
        options = {**options, "--model": options["-m"]}
    file_name = next(
        (reading.text(option) for option in _CONFIG_FILE_OPTIONS if reading.text(option)), None
    )
    files = reading.command.files
    config = files.get(file_name or "") or files.get((file_name or "").removeprefix("./"))
    override = reading.command.options.get(_OVERRIDE)
    document = {
        **({} if config is None else config.options),
        **({} if override is None else json_parts(override)),
    }
    # The table reads keys of documents before options of the command, as the engine does.
    return _reading_with(reading, {**options, **document})


def _reading_with(reading: OptionReader, options: Mapping[str, ParsedOption]) -> OptionReader:
    """Return a reader of the same command with these options, booleans in lower case."""
    texts = {name: option.single for name, option in options.items()}
    normalized = {
        name: text.lower() if text in ("True", "False") else text for name, text in texts.items()
    }
    command = replace(reading.command, options=dict(options))
    return OptionReader(command=command, meanings=_TABLE.read(normalized))


_ENGINE = EngineReader(
    name=NAME,
    model_options=("--model", "--model-path", "model"),
    programs=(
        *(_BENCH, *_BENCH_COMMANDS),
        *("trtllm-serve", "trtllm-llmapi-launch", "serve", "python", "python3", "env", "-m"),
        *("mpirun", _MODULE, "LLM"),
    ),
    prepare=_prepare,
    finish=_finish,
)


ONLINE_QUANTIZATION: Mapping[str, bool] = {}
_ROUTER_NOTE = "trtllm-serve disaggregated takes the requests of both pools"
_SCRIPT = (
    'printf "%s\\n" "$@" > disaggregated.yaml; '
    "exec trtllm-serve disaggregated -c disaggregated.yaml"
)


def yaml_options(
    server: ServerCommand, extra: Mapping[str, str | None] | None = None
) -> dict[str, object]:
    """Return the YAML document of a server: its options without a flag, and ``extra``."""
    options = {
        inputs.option: inputs.text
        for inputs in server.settings.options
        if not inputs.option.startswith("--")
    } | dict(extra or {})
    if options.get("speculative_config.decoding_type") == "Draft_Target":
        draft_model = draft_model_argument(server.worker.job)
        draft_name = draft_model if isinstance(draft_model, str) else draft_model.name
        options["speculative_config.speculative_model"] = draft_name
        if is_before(server.worker.job["engine_version"], "1.3.0rc4"):
            options["speculative_config.decoding_type"] = "DraftTarget"
    return nest_options(options)


def _process(server: ServerCommand) -> Process:
    """Build the trtllm-serve process, started by mpirun if it spans several nodes."""
    worker = server.worker
    config = CommandWords(words=("--config", f"{worker.name}.yaml"))
    arguments = [*server.start, *server.options, config]
    if worker.num_nodes == 1:
        return server.process(arguments)
    arguments.insert(0, CommandWords(words=("trtllm-llmapi-launch",)))
    return server.process(arguments, launcher="mpirun")


def _yaml_file(server: ServerCommand) -> LaunchOutputFile:
    """Return the YAML file of a server's options that have no command-line flag."""
    notes = {inputs.option: inputs.note for inputs in server.settings.options if inputs.note}
    return LaunchOutputFile(
        name=f"{server.worker.name}.yaml",
        text=yaml_text(yaml_options(server), notes),
        meaning=f"further options of {server.worker.name}",
    )


def _router(servers: tuple[ServerCommand, ...]) -> list[Process]:
    """Return the router process of prefill and decode servers; empty for a single server."""
    if len(servers) == 1:
        return []
    lines: list[str | ShellVariable] = ["hostname: 0.0.0.0", "port: 8000", "backend: pytorch"]
    for server in servers:
        section = "context" if server.worker.name == PREFILL_POOL else "generation"
        lines += [f"{section}_servers:", f"  num_instances: {server.worker.copies}", "  urls:"]
        lines += _address_lines(server)
    arguments = (
        CommandWords(
            words=("sh", "-c", _SCRIPT, "sh"), note="each word below is a line of its YAML"
        ),
        *(CommandWords(words=(line,)) for line in lines),
    )
    return [make_router_process(arguments, _ROUTER_NOTE)]


def _address_lines(server: ServerCommand) -> list[ShellVariable]:
    """Return a line of YAML with HOST:PORT for each copy of a server."""
    return [
        ShellVariable(
            name=url.name.replace("_URL_", "_HOST_"),
            meaning=url.meaning,
            prefix='    - "',
            suffix=f':{server.port + copy}"',
        )
        for copy, url in enumerate(server_urls(server.worker))
    ]


def _draft_model_note(servers: tuple[ServerCommand, ...]) -> tuple[ParameterNote, ...]:
    """Return a note if the user must replace the draft model in the YAML; else ()."""
    draft_model = draft_model_argument(servers[0].worker.job)
    if isinstance(draft_model, str) or not any(
        draft_model.name in str(yaml_options(server)) for server in servers
    ):
        return ()
    return (
        ParameterNote(
            parameter="speculative_config.speculative_model",
            value="",
            note=f"{draft_model.meaning}: replace {draft_model.name} in the YAML",
        ),
    )


TARGET = LaunchTarget.of(
    NAME,
    answers=read_settings,
    honoured=_split_changes,
    **server_hooks(
        NAME,
        process=_process,
        router=_router,
        files=_yaml_file,
        left=_draft_model_note,
        routes_replicas=False,
    ),
)
