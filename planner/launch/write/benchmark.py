"""Benchmark commands: load generators read from a launch file, and benchmarks of a plan.

Every option was looked up in the tool itself: vllm bench serve 0.33, sglang.benchmark.serving
0.5.23, tensorrt_llm.serve.scripts.benchmark_serving 1.1, aiperf 0.2; those of trainers are in the
tables of ``planner/launch/accepted``.

Options and defaults of ``wrappers/loads.csv`` are those of vllm/benchmarks (vLLM 0.11, 0.33),
python/sglang/bench_serving.py and its like (SGLang 0.4 to 0.5), tensorrt_llm/bench (TensorRT-LLM
1.0), genai-perf, llama.cpp's tools/llama-bench, and SemiAnalysisAI's bench_serving. A column ``of``
names the data set that an option is of. SGLang draws lengths evenly from ``--random-range-ratio``
of the longest up to it, vLLM evenly around the given length: the mean of both is taken.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError, did_you_mean
from planner.launch.option_table import ParameterNote, ParserOption, ParserOptions, shipped_rows
from planner.launch.read.parsed_launch import LENGTHS, ONGOING, ParsedCommand
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    Process,
    ShellVariable,
    fill_template,
)

_ROOT = math.sqrt(3)
# The tools refuse 1, at which a length could be 0.
_MAX_HALF_WIDTH = 0.99
_DIGITS = 3
_BY_TRTLLM = ("tensorrt-llm", "trtllm-serve")
_COMMON_RANGE = (*_BY_TRTLLM, "sglang")
_UNIFORM = ("vllm", *_COMMON_RANGE)


def half_width(variation: float) -> float:
    """Return the half width of a uniform distribution over its mean [1], at most 0.99.

    ``variation``: standard deviation over the mean [1].

    >>> half_width(0.3)
    0.52
    """
    return min(round(_ROOT * variation, _DIGITS), _MAX_HALF_WIDTH)


def common_width(input_variation: float, output_variation: float) -> float:
    """Half width [1] for tools that draw prompts and answers from the same range."""
    return half_width((input_variation + output_variation) / 2)


def length_notes(
    engine: str, *, input_variation: float, output_variation: float, has_prefix: bool
) -> tuple[str, ...]:
    """Return notes on how the lengths of a benchmark's requests differ from the plan's.

    ``has_prefix``: prompts share a prefix.
    """
    varied = (input_variation, output_variation)
    if engine not in _UNIFORM or not any(varied):
        return ()
    planned = f"the plan's vary by {input_variation:.0%} and {output_variation:.0%}"
    if engine == "sglang" and has_prefix:
        return (f"equal lengths: the tool would vary the common prefix, too; {planned}",)
    notes = []
    if engine in _COMMON_RANGE and input_variation != output_variation:
        notes.append(f"the tool has one range for both lengths: their mean is used; {planned}")
    if max(varied) * _ROOT > _MAX_HALF_WIDTH:
        notes.append(f"lengths are drawn uniformly, which varies by 57% at most; {planned}")
    return tuple(notes)


STEPS = 50
"""Steps of a benchmark of training: the first ones warm up, a median of the rest is steady."""
# The first and last requests of a serving benchmark meet a less busy engine.
_MIN_REQUESTS = 200
_REQUESTS_PER_CLIENT = 10
_LOAD_SECONDS = 300

_CHECKPOINTS = ("--save", "--load", "checkpoint.save", "checkpoint.load", "--checkpoint.enable")
_OUTPUT = "OUTPUT_DIR"


def training_benchmark(target: str, *, steps: int = STEPS) -> tuple[str, ...]:
    """Return options with which a trainer prints what `planner validate --log` reads.

    They are arguments of the target's command: ``key=value`` for Megatron-Bridge and MaxText,
    options for others. The run ends after ``steps`` [1].

    >>> " ".join(training_benchmark("maxtext", steps=20))
    'steps=20 enable_checkpointing=false eval_interval=-1'

    Raises `LaunchError`: no options are known for the target.
    """
    options_by_target = {
        name: row["words"]
        for row in shipped_rows("wrappers/training_benchmarks.csv")
        for name in (row["target"], *filter(None, row["also"].split("|")))
    }
    if target not in options_by_target:
        targets = sorted(options_by_target)
        raise LaunchError(
            f"No benchmark of training is known for {target}.{did_you_mean(target, targets)} "
            f"There is one for {', '.join(targets)}."
        )
    return tuple(word.replace("{steps}", str(steps)) for word in options_by_target[target].split())


def as_measured_run(process: Process, target: str, *extra_words: str, num_last: int = 0) -> Process:
    """Return the process for a few steps, with a log to compare with the prediction.

    Options of the benchmark replace those of the process; it saves no checkpoints and writes to a
    separate folder. ``extra_words`` are further arguments; the last ``num_last`` arguments of the
    process stay last.

    Raises `LaunchError`: no options are known for the target.
    """
    benchmark_arguments = _argument_lines((*training_benchmark(target), *extra_words))
    replaced = {*map(_option_name, benchmark_arguments), *_CHECKPOINTS}
    split_index = len(process.arguments) - num_last
    remaining = [
        [
            _with_benchmark_folder(argument)
            for argument in part
            if _option_name(argument) not in replaced
        ]
        for part in (process.arguments[:split_index], process.arguments[split_index:])
    ]
    return replace(
        process, name="benchmark", arguments=(*remaining[0], *benchmark_arguments, *remaining[1])
    )


def training_draft(
    job: LaunchJob,
    target: str,
    arguments: Sequence[CommandWords],
    *,
    launcher: str = "torchrun",
    launcher_arguments: tuple[CommandWords, ...] = (),
    environment: Mapping[str, str] | None = None,
    extra: Sequence[str] = (),
    num_last: int = 0,
    files: tuple[LaunchOutputFile, ...] = (),
    unexpressed: tuple[ParameterNote, ...] = (),
    left: tuple[ParameterNote, ...] = (),
    notes: tuple[str, ...] = (),
) -> LaunchDraft:
    """Return the launch draft of a training: one process on all GPUs, and its benchmark.

    ``extra`` and ``num_last``: see `as_measured_run`.
    Raises LaunchError if the GPUs do not fill whole nodes.
    """
    job.require_even_nodes()
    process = Process(
        name="train",
        launcher=launcher,
        launcher_arguments=launcher_arguments,
        arguments=tuple(arguments),
        num_nodes=job.num_nodes,
        gpus_per_node=job.gpus_per_node,
        environment=environment or {},
    )
    steps = as_measured_run(process, target, *extra, num_last=num_last)
    return LaunchDraft(
        processes=(process,),
        benchmark=(steps,),
        files=files,
        unexpressed=unexpressed,
        left=left,
        notes=notes,
    )


def _argument_lines(words: Sequence[str]) -> list[CommandWords]:
    """Group words into arguments: each option with its values."""
    arguments: list[list[str]] = []
    for word in words:
        if word.startswith("-") or "=" in word:
            arguments.append([word])
        else:
            arguments[-1].append(word)
    return [CommandWords(words=tuple(line)) for line in arguments]


def _option_name(argument: CommandWords) -> str:
    """The option of an argument, without its value."""
    word = argument.words[0]
    return (word.prefix if isinstance(word, ShellVariable) else word).partition("=")[0]


def _with_benchmark_folder(argument: CommandWords) -> CommandWords:
    """Return an argument with a subfolder for the benchmark in its output path, if it has one."""
    words = (
        replace(word, suffix=f"{word.suffix}/benchmark")
        if isinstance(word, ShellVariable) and word.name == _OUTPUT
        else word
        for word in argument.words
    )
    return replace(argument, words=tuple(words))


def serving_benchmark(
    engine: str,
    *,
    model: str,
    input_tokens: float,
    output_tokens: float,
    request_rate: float | None = None,
    concurrency: float | None = None,
    prefix_cache_hit_rate: float = 0.0,
    input_variation: float = 0.0,
    output_variation: float = 0.0,
    url: str = "http://127.0.0.1:8000",
    result_file: str = "benchmark.json",
    images: float = 0.0,
    image_size: str = "",
) -> tuple[str, ...]:
    """Return the words, unquoted, of the command that measures an engine under a load.

    Without ``output_tokens`` prompts are embedded; vLLM's tool measures that, and images, on any
    engine. Engines without a benchmark tool are measured by aiperf over the OpenAI interface, which
    writes to a folder: ``result_file`` without its suffix.
    Raises LaunchError if there is neither a rate nor a concurrency, or a number is impossible.

    Parameters
    ----------
    input_tokens, output_tokens : tokens of a request
    request_rate : Poisson arrivals [1/s]
    concurrency : clients that wait for their answers; with a rate, most requests in flight [1]
    prefix_cache_hit_rate : share of the prompt that all requests have in common [1]
    input_variation, output_variation : standard deviation of the lengths over their mean [1],
        as far as the tool can draw them (`length_notes`)
    images, image_size : images of a request, in addition to its tokens
    """
    lengths, variations = (input_tokens, output_tokens), (input_variation, output_variation)
    load_values = [value for value in (request_rate, concurrency) if value is not None]
    if not load_values:
        raise LaunchError("A benchmark of serving needs a request rate or a concurrency.")
    embeds = output_tokens == 0
    if not all(math.isfinite(length) and length >= 1 for length in lengths[: 2 - embeds]):
        raise LaunchError(f"A benchmark needs tokens of prompts and answers, not {lengths}.")
    if not all(math.isfinite(value) and value > 0 for value in load_values):
        raise LaunchError("The rate and the concurrency of a benchmark must be above 0.")
    if not all(math.isfinite(variation) and variation >= 0 for variation in variations):
        raise LaunchError("Lengths of a benchmark vary by 0 or more of their means.")
    if not 0 <= prefix_cache_hit_rate < 1:
        raise LaunchError(
            f"{prefix_cache_hit_rate:g} of the prompt cannot be in the cache; give 0 to below 1."
        )
    prompt, answer, clients = round(input_tokens), round(output_tokens), None
    # At least one token must differ: engines do not compute fully cached requests.
    prefix = min(round(prefix_cache_hit_rate * prompt), prompt - 1)
    # Only the part after the common prefix varies.
    suffix_variation = input_variation * prompt / (prompt - prefix)
    if concurrency is not None:
        clients = max(round(concurrency), 1)
    # Enough for a steady state: ten requests per client, or five minutes of arrivals.
    number = (clients or 1) * _REQUESTS_PER_CLIENT
    if request_rate is not None:
        number = math.ceil(request_rate * _LOAD_SECONDS)
    width = common_width(input_variation, output_variation)
    widths = {"input": half_width(suffix_variation), "output": half_width(output_variation)}
    chat = "chat/" * bool(images)
    values = {
        "model": model,
        "url": url,
        "backend": f"openai{'-embeddings' if embeds else '-chat' if images else ''}",
        "endpoint": f"/v1/{'embeddings' if embeds else f'{chat}completions'}",
        "dataset": "random-mm" if images else "random",
        "prefix_tokens": prefix,
        "random_tokens": prompt - prefix,
        "answer": answer,
        "half_width": f"{widths['input']:g}",
        "range": json.dumps(widths)
        if suffix_variation != output_variation
        else f"{widths['input']:g}",
        "common_width": f"{common_width(suffix_variation, output_variation):g}",
        "shortest": f"{round((1 - width) / (1 + width), _DIGITS):g}",
        "longest_input": round(prompt * (1 + width)),
        "longest_output": round(answer * (1 + width)),
        "input_deviation": f"{prompt * input_variation:g}",
        "output_deviation": f"{answer * output_variation:g}",
        "rate": f"{request_rate or 0:g}",
        "clients": clients,
        "num_requests": max(number, _MIN_REQUESTS),
        # Kernels are compiled, the prefix is cached.
        "warmup": max(min(clients or 1, 32), 4),
        "metrics": "e2el" if embeds else "ttft,tpot,itl,e2el",
        "result_file": result_file,
        "folder": result_file.removesuffix(".json"),
        **_image_values(images, image_size),
    }
    flags = {
        "embeds": embeds,
        "images": bool(images) and not embeds,
        "has_rate": request_rate is not None,
        "has_clients": clients is not None,
        "has_prefix": prefix > 0,
        "varies": output_variation > 0,
    }
    tool = "vllm" if embeds or images else _TOOLS.get(engine.lower(), "aiperf")
    quoted = {name: shlex.quote(str(value)) for name, value in values.items()}
    return tuple(shlex.split(fill_template(f"benchmark_{tool}.txt", {**quoted, **flags})))


def _image_values(images: float, size: str) -> dict[str, object]:
    """Return template values for ``images`` of ``size`` (WIDTHxHEIGHT) per request.

    Empty without images. The bucket has height, width and frames, as in docs.vllm.ai, Benchmark
    CLI, Random MultiModal.
    """
    if not images:
        return {}
    width, height = map(int, size.lower().split("x"))
    number = max(round(images), 1)
    return {
        "num_images": number,
        "image_limit": json.dumps({"image": number, "video": 0}),
        "image_bucket": f"{{({height}, {width}, 1): 1.0}}",
    }


# Engines that bring a benchmark tool.
_TOOLS = {"vllm": "vllm", "sglang": "sglang", **dict.fromkeys(_BY_TRTLLM, "tensorrt-llm")}


REQUESTS = "requests"
"""Target of commands that send requests to a server."""
_CONCURRENCY_TERMS = ("at_once", "batch")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@cache
def _clients() -> Mapping[str, tuple[Mapping[str, str], ...]]:
    """Return the rows of ``wrappers/loads.csv``, by each name of a load generator."""
    rows = shipped_rows("wrappers/loads.csv")
    groups: dict[str, list[Mapping[str, str]]] = {}
    names: dict[str, str] = {}
    for row in rows:
        first, *aliases = row["programs"].split("|")
        groups.setdefault(first, []).append(row)
        names |= dict.fromkeys((first, *aliases), first)
    return {name: tuple(groups[first]) for name, first in names.items()}


def client_program(words: Sequence[str]) -> str:
    """Return the load generator that a command starts; empty if none.

    >>> client_program(["trtllm-bench", "--model", "m", "throughput"])
    'trtllm-bench throughput'
    """
    if not words:
        return ""
    first = words[1] if words[0] == "-m" and len(words) > 1 else words[0].replace("\\", "/")
    names = [name for name in _clients() if _starts_program(name, first, words)]
    return max(names, key=len, default="")


def _starts_program(name: str, first: str, words: Sequence[str]) -> bool:
    program, *subcommands = name.split()
    return (first == program or first.endswith(f"/{program}")) and {*subcommands} <= {*words[1:]}


@cache
def client_options(name: str) -> ParserOptions:
    """Return the options of a load generator that describe its requests."""
    options: dict[str, ParserOption] = {}
    aliases: dict[str, str] = {}
    for row in _clients()[name]:
        option, *other_names = row["option"].split("|")
        options[option] = ParserOption(name=option)
        aliases |= dict.fromkeys(other_names, option)
    return ParserOptions(options, aliases)


def is_client_option(option: str) -> bool:
    """Whether an option belongs to a load generator, not to an engine."""
    return any(client_options(name).find(option) is not None for name in (*_clients(),))


def parse_load(name: str, command: ParsedCommand) -> ParsedCommand:
    """Return the load that a load generator's command sends: its options by term.

    Options with unreadable values have no text.
    """
    options = command.options
    load: dict[str, ParsedOption] = {}
    dataset_row = next((row for row in _clients()[name] if row["says"] == "dataset"), None)
    dataset = ""
    if dataset_row is not None:
        dataset_option = options.get(dataset_row["option"])
        dataset = dataset_row["default"] if dataset_option is None else dataset_option.single or ""
    for row in _clients()[name]:
        option, term = row["option"].split("|")[0], row["says"]
        if term in ("", "dataset") or not dataset.startswith(row["of"]):
            continue
        if option in options:
            text = next(iter(options[option].texts), "")
            number = _NUMBER.match(text or "")
            if number or text is None:
                # Without output or prompt, one token is assumed.
                minimum = "1" if term in LENGTHS and number and float(number[0]) == 0 else None
                load[term] = replace(options[option], texts=(minimum or (number and number[0]),))
            else:
                load.pop(term, None)
        elif row["default"] and term not in load:
            load[term] = implied_option(option, row["default"], command.line)
    shortest = load.pop("shortest", None)
    ratio = 1.0 if shortest is None else float(shortest.single or 1)
    for length in LENGTHS:
        if length in load and (longest := load[length].single) and ratio < 1:
            load[length] = load[length].with_value(str(round(float(longest) * (1 + ratio) / 2)))
    if "batch" in load:
        load.setdefault("num_requests", load["batch"])
    return ParsedCommand(
        target=REQUESTS, name=command.name, text=command.text, line=command.line, options=load
    )


def client_only_note(load: ParsedCommand) -> str:
    """Return the error message for a file that sends requests to a server but starts none."""
    options = [
        f"--{name.replace('_', '-')} {option.single}"
        for name, option in load.options.items()
        if option.single and name not in _CONCURRENCY_TERMS
    ]
    return (
        f"{load.name}: line {load.line}: sends requests to a server that it does not start: give "
        f"the file that starts one, or a folder of both. Its load: "
        f"{' '.join(options) or 'nothing'}."
    )


def servers_with_load(
    commands: Sequence[ParsedCommand], folder_load: Sequence[ParsedCommand] = ()
) -> Iterator[ParsedCommand]:
    """Yield the servers that a file starts, in order, each with the requests sent to it.

    Offline benchmarks have their own load, prepared by the command before them; requests to a
    server come later in the file, or from other files of the folder: ``folder_load``.
    """
    is_paired = [
        command.target == REQUESTS
        and following.target != REQUESTS
        and command.line == following.line
        for command, following in pairwise(
            (*commands, ParsedCommand(target=REQUESTS, name="", text=""))
        )
    ]
    for index, command in enumerate(commands):
        if command.target == REQUESTS:
            continue
        clients = [
            (client_index > index, client)
            for client_index, client in enumerate(commands)
            if client.target == REQUESTS and not is_paired[client_index]
        ]
        before = [client for is_later, client in clients if not is_later][::-1]
        after = [client for is_later, client in clients if is_later]
        paired = commands[index - 1 : index] if index and is_paired[index - 1] else []
        candidates = [*before, *after] if paired else [*after, *before] or [*folder_load]
        yield _with_requests(command, paired, candidates)


def _with_requests(
    command: ParsedCommand, paired: Sequence[ParsedCommand], candidates: Sequence[ParsedCommand]
) -> ParsedCommand:
    """Return a server command with the load of its benchmark clients.

    ``paired`` are clients of this server. Of ``candidates`` the first with both lengths counts,
    else the first. A limit on concurrent requests becomes an option of the command.
    """
    complete = [client for client in (*paired, *candidates) if {*LENGTHS} <= {*client.options}]
    load_options: dict[str, ParsedOption] = {}
    for client in (*paired, *(complete or candidates)[:1]):
        load_options = {**client.options, **load_options}
    limit = next(
        (
            load_options[name]
            for name in _CONCURRENCY_TERMS
            if name in load_options and load_options[name].single
        ),
        None,
    )
    options = {**command.options} if limit is None else {**command.options, ONGOING: limit}
    load = {
        name: option
        for name, option in load_options.items()
        if limit is None or name not in _CONCURRENCY_TERMS
    }
    return replace(command, options=options, benchmark_load=load)
