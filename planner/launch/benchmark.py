"""Programs that send requests or measure: read from a launch, and written beside one.

Every option was looked up in the tool itself: vllm bench serve 0.33, sglang.benchmark.serving
0.5.23, tensorrt_llm.serve.scripts.benchmark_serving 1.1, aiperf 0.2; those of trainers are in the
tables of ``planner/launch/accepted``.

Options and defaults of ``launchers/loads.csv`` are those of vllm/benchmarks (vLLM 0.11, 0.33),
python/sglang/bench_serving.py and its like (SGLang 0.4 to 0.5), tensorrt_llm/bench (TensorRT-LLM
1.0), genai-perf, llama.cpp's tools/llama-bench, and SemiAnalysisAI's bench_serving. A column ``of``
names the data set that an option is of. SGLang draws lengths evenly from ``--random-range-ratio``
of the longest up to it, vLLM evenly around the one that is given: the mean of both is taken.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from planner.base.records import record
from planner.documents.shell.text import Given, stated
from planner.errors import LaunchError, did_you_mean
from planner.launch.option_table import Accepted, AcceptedOption, Remark, shipped_rows
from planner.launch.target import Argument, Draft, File, Job, Process, Variable
from planner.launch.understood import LENGTHS, ONGOING, Found

_ROOT = math.sqrt(3)
# The tools refuse 1, at which a length could be 0.
_WIDEST = 0.99
_DIGITS = 3
_ONE_RANGE = ("tensorrt-llm", "trtllm-serve", "sglang")
_EVEN = ("vllm", *_ONE_RANGE)


def half_width(variation: float) -> float:
    """The half width of an even range, over its mean, that varies so much; at most 0.99.

    ``variation``: standard deviation over the mean [1].

    >>> half_width(0.3)
    0.52
    """
    return min(round(_ROOT * variation, _DIGITS), _WIDEST)


def range_word(prompts: float, answers: float) -> str:
    """``--random-range-ratio`` of vLLM for the variations of prompts and answers [1]."""
    widths = {"input": half_width(prompts), "output": half_width(answers)}
    return json.dumps(widths) if prompts != answers else f"{half_width(prompts):g}"


def common_width(prompts: float, answers: float) -> float:
    """The one half width of tools that draw prompts and answers from equal ranges."""
    return half_width((prompts + answers) / 2)


def longest_and_ratio(length: int, width: float) -> tuple[int, float]:
    """The longest request [tokens] and the shortest one over it, as SGLang's range is told."""
    return round(length * (1 + width)), round((1 - width) / (1 + width), _DIGITS)


def length_notes(
    engine: str, *, input_variation: float, output_variation: float, has_prefix: bool
) -> tuple[str, ...]:
    """What a benchmark's lengths have otherwise than the plan's; nothing where they are equal.

    ``has_prefix``: the prompts begin alike.
    """
    varied = (input_variation, output_variation)
    if engine not in _EVEN or not any(varied):
        return ()
    planned = f"the plan's vary by {input_variation:.0%} and {output_variation:.0%}"
    if engine == "sglang" and has_prefix:
        return (f"equal lengths: the tool would vary the common prefix too; {planned}",)
    notes = []
    if engine in _ONE_RANGE and input_variation != output_variation:
        notes.append(f"the tool has one range for both lengths: their mean is used; {planned}")
    if max(varied) * _ROOT > _WIDEST:
        notes.append(f"lengths are drawn uniformly, which varies by 57% at most; {planned}")
    return tuple(notes)


STEPS = 50
"""Steps of a benchmark of training: the first ones warm up, a median of the rest is steady."""
# Of a benchmark of serving: the first and last requests find the engine emptier than the others.
_FEWEST_REQUESTS = 200
_PER_CLIENT = 10
_SECONDS = 300
_PERCENTILES = "50,90,95,99"

_MEGATRON = ("--log-interval", "1", "--timing-log-level", "0", "--eval-iters", "0")
_TRAINING: Mapping[str, tuple[str, ...]] = {
    "megatron-lm": (
        "--train-iters", "{steps}", *_MEGATRON, "--log-throughput", "--log-memory-interval", "10",
    ),
    # That of Microsoft prints throughput and, after the first steps, memory by itself.
    "megatron-deepspeed": ("--train-iters", "{steps}", *_MEGATRON),
    "megatron-bridge": (
        "train.train_iters={steps}", "logger.log_interval=1", "logger.timing_log_level=0",
        "logger.log_throughput=true", "validation.eval_iters=0",
    ),
    "torchtitan": (
        "--training.steps", "{steps}", "--metrics.log_freq", "1",
        "--metrics.disable_color_printing",
    ),
    "transformers": (
        "--max_steps", "{steps}", "--logging_steps", "1", "--save_strategy", "no",
        "--eval_strategy", "no", "--include_num_input_tokens_seen", "true",
    ),
    "axolotl": (
        "--max-steps", "{steps}", "--logging-steps", "1", "--save-strategy", "no",
        "--include-tkps", "True",
    ),
    "maxtext": ("steps={steps}", "enable_checkpointing=false", "eval_interval=-1"),
    "verl": (
        "trainer.total_training_steps={steps}", "trainer.val_before_train=False",
        "trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.logger=[console]",
    ),
    "nemo-rl": ("grpo.max_num_steps={steps}", "grpo.val_period=0", "checkpointing.enabled=false"),
    "openrlhf": ("--logger.logging_steps", "1"),
}  # fmt: skip
_TRAINING_NAMES = {
    "megatron-core": "megatron-lm",
    "nemo": "megatron-bridge",
    "accelerate": "transformers",
    # Its files start a script on the Trainer, which prints the steps.
    "deepspeed": "transformers",
    "peft": "transformers",
    "trainer": "transformers",
}
_CHECKPOINTS = ("--save", "--load", "checkpoint.save", "checkpoint.load", "--checkpoint.enable")
_OUTPUT = "OUTPUT_DIR"


@record(kw_only=True)
class Load:
    """What a benchmark of serving sends: as many clients as ``concurrency``, or a rate [1/s].

    ``prefix_tokens`` of the ``input_tokens`` are the same in all requests. The variations are
    standard deviations of the lengths over their means [1]. Beside its text a prompt has so many
    ``images`` of ``image_size`` pixels, width x height.
    """

    model: str
    input_tokens: int
    output_tokens: int
    prefix_tokens: int
    request_rate: float | None
    concurrency: int | None
    url: str
    result_file: str
    input_variation: float = 0.0
    output_variation: float = 0.0
    images: float = 0.0
    image_size: str = ""

    @property
    def random_tokens(self) -> int:
        """Tokens of a prompt that no other begins with, on average."""
        return self.input_tokens - self.prefix_tokens

    @property
    def random_variation(self) -> float:
        """Of those tokens, which all of the prompt's variation falls to."""
        return self.input_variation * self.input_tokens / self.random_tokens

    @property
    def num_requests(self) -> int:
        """Enough for a steady state: ten for each client, or five minutes of arrivals."""
        if self.request_rate is not None:
            return max(math.ceil(self.request_rate * _SECONDS), _FEWEST_REQUESTS)
        return max((self.concurrency or 1) * _PER_CLIENT, _FEWEST_REQUESTS)

    @property
    def warmup(self) -> int:
        """Requests before the measurement: kernels are compiled, the prefix is cached."""
        return max(min(self.concurrency or 1, 32), 4)


def training_benchmark(target: str, *, steps: int = STEPS) -> tuple[str, ...]:
    """Options with which a trainer prints what `planner validate --log` reads.

    They are words of the command that the target's files have: ``key=value`` of Megatron-Bridge
    and MaxText, options of the others. ``steps`` [1] ends the run.

    >>> " ".join(training_benchmark("maxtext", steps=20))
    'steps=20 enable_checkpointing=false eval_interval=-1'

    Raises
    ------
    LaunchError
        No options are known for the target.
    """
    name = _TRAINING_NAMES.get(target, target)
    if name not in _TRAINING:
        known = sorted((*_TRAINING, *_TRAINING_NAMES))
        raise LaunchError(
            f"No benchmark of training is known for {target}.{did_you_mean(target, known)} "
            f"There is one for {', '.join(known)}."
        )
    return tuple(word.replace("{steps}", str(steps)) for word in _TRAINING[name])


def measured(process: Process, target: str, *more: str, num_last: int = 0) -> Process:
    """The same process for a few steps, with the log that is compared with the prediction.

    Options of the benchmark take the place of those of the process; it keeps no checkpoints, and
    what it must write goes to a folder of its own. ``more`` are further words, ``num_last`` how
    many arguments of the process must stay its last ones.

    Raises
    ------
    LaunchError
        No options are known for the target.
    """
    added = _lines((*training_benchmark(target), *more))
    replaced = {*map(_option, added), *_CHECKPOINTS}
    place = len(process.arguments) - num_last
    kept = [
        [_apart(each) for each in part if _option(each) not in replaced]
        for part in (process.arguments[:place], process.arguments[place:])
    ]
    return replace(process, name="benchmark", arguments=(*kept[0], *added, *kept[1]))


def training_draft(
    job: Job,
    target: str,
    arguments: Sequence[Argument],
    *,
    launcher: str = "torchrun",
    launcher_arguments: tuple[Argument, ...] = (),
    environment: Mapping[str, str] | None = None,
    more: Sequence[str] = (),
    num_last: int = 0,
    files: tuple[File, ...] = (),
    unexpressed: tuple[Remark, ...] = (),
    left: tuple[Remark, ...] = (),
    notes: tuple[str, ...] = (),
) -> Draft:
    """The one process of a training on all GPUs of a job, and what measures it.

    ``more`` and ``num_last`` are those of `measured`.

    Raises
    ------
    LaunchError
        The GPUs fill no whole nodes.
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
    steps = measured(process, target, *more, num_last=num_last)
    return Draft(
        processes=(process,),
        benchmark=(steps,),
        files=files,
        unexpressed=unexpressed,
        left=left,
        notes=notes,
    )


def _lines(words: Sequence[str]) -> list[Argument]:
    """Words as arguments: each option with its value."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("-") or "=" in word:
            lines.append([word])
        else:
            lines[-1].append(word)
    return [Argument(words=tuple(line)) for line in lines]


def _option(argument: Argument) -> str:
    """The option that an argument gives, without its value."""
    word = argument.words[0]
    return (word.prefix if isinstance(word, Variable) else word).partition("=")[0]


def _apart(argument: Argument) -> Argument:
    """An argument whose folder of results is no more that of the job."""
    words = (
        replace(word, suffix=f"{word.suffix}/benchmark")
        if isinstance(word, Variable) and word.name == _OUTPUT
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
    """The command, word by word and unquoted, that offers an engine a load and measures it.

    ``input_tokens`` and ``output_tokens`` are those of a request [tokens]; with 0 of these it is
    embedded, which vLLM's tool asks any engine for. ``request_rate`` is that of Poisson arrivals
    [1/s], ``concurrency`` the number of clients that wait for their answers; with both, at most so
    many requests are under way. ``prefix_cache_hit_rate`` is the share of the prompt that all
    requests have in common. ``input_variation`` and ``output_variation``: standard deviations of
    the lengths over their means [1], as near as the tool draws them (`length_notes`). Engines
    without a tool of their own are measured by aiperf over the OpenAI interface, which writes to a
    folder, ``result_file`` without its ending. With ``images`` of ``image_size`` beside those
    tokens vLLM's tool asks any engine.

    Raises
    ------
    LaunchError
        There is neither a rate nor a concurrency, or a number is impossible.
    """
    lengths, variations = (input_tokens, output_tokens), (input_variation, output_variation)
    given = [one for one in (request_rate, concurrency) if one is not None]
    if not given:
        raise LaunchError("A benchmark of serving needs a request rate or a concurrency.")
    embeds = output_tokens == 0
    if not all(math.isfinite(length) and length >= 1 for length in lengths[: 2 - embeds]):
        raise LaunchError(f"A benchmark needs tokens of prompts and answers, not {lengths}.")
    if not all(math.isfinite(one) and one > 0 for one in given):
        raise LaunchError("The rate and the concurrency of a benchmark must be above 0.")
    if not all(math.isfinite(one) and one >= 0 for one in variations):
        raise LaunchError("Lengths of a benchmark vary by 0 or more of their means.")
    if not 0 <= prefix_cache_hit_rate < 1:
        raise LaunchError(
            f"{prefix_cache_hit_rate:g} of the prompt cannot be in the cache; give 0 to below 1."
        )
    tokens = round(input_tokens)
    load = Load(
        model=model,
        input_tokens=tokens,
        output_tokens=round(output_tokens),
        # One token at least must differ: an engine computes no request without any.
        prefix_tokens=min(round(prefix_cache_hit_rate * tokens), tokens - 1),
        request_rate=request_rate,
        concurrency=None if concurrency is None else max(round(concurrency), 1),
        url=url,
        result_file=result_file,
        input_variation=input_variation,
        output_variation=output_variation,
        images=images,
        image_size=image_size,
    )
    tool = _TOOLS.get(engine.lower(), _aiperf)
    return tuple((_embeddings if embeds else _images if images else tool)(load))


def _vllm(load: Load) -> Iterator[str]:
    yield from ("vllm", "bench", "serve", "--backend", "openai", "--base-url", load.url)
    yield from ("--endpoint", "/v1/completions", "--model", load.model)
    yield from ("--dataset-name", "random", "--seed", "1", "--ignore-eos")
    yield from _random_lengths(load)
    lengths = range_word(load.random_variation, load.output_variation)
    yield from ("--random-range-ratio", lengths)
    yield from ("--num-warmups", str(load.warmup))
    yield from _arrivals(load)
    yield from _saved_json(load)


def _images(load: Load) -> Iterator[str]:
    """docs.vllm.ai, Benchmark CLI, Random MultiModal: height, width and frames of each bucket."""
    width, height = load.image_size.lower().split("x")
    number = max(round(load.images), 1)
    yield from ("vllm", "bench", "serve", "--backend", "openai-chat", "--base-url", load.url)
    yield from ("--endpoint", "/v1/chat/completions", "--model", load.model)
    yield from ("--dataset-name", "random-mm", "--seed", "1", "--ignore-eos")
    yield from _random_lengths(load)
    lengths = range_word(load.random_variation, load.output_variation)
    yield from ("--random-range-ratio", lengths)
    yield from ("--random-mm-base-items-per-request", str(number))
    yield from ("--random-mm-num-mm-items-range-ratio", "0")
    yield from ("--random-mm-limit-mm-per-prompt", json.dumps({"image": number, "video": 0}))
    yield from ("--random-mm-bucket-config", f"{{({int(height)}, {int(width)}, 1): 1.0}}")
    yield from ("--num-warmups", str(load.warmup))
    yield from _arrivals(load)
    yield from _saved_json(load)


def _embeddings(load: Load) -> Iterator[str]:
    yield from ("vllm", "bench", "serve", "--backend", "openai-embeddings")
    yield from ("--base-url", load.url, "--endpoint", "/v1/embeddings", "--model", load.model)
    yield from ("--dataset-name", "random", "--seed", "1")
    yield from ("--random-prefix-len", str(load.prefix_tokens))
    yield from ("--random-input-len", str(load.random_tokens))
    yield from ("--random-range-ratio", f"{half_width(load.random_variation):g}")
    yield from _arrivals(load)
    yield from ("--percentile-metrics", "e2el", "--metric-percentiles", _PERCENTILES)
    yield from ("--save-result", "--result-filename", load.result_file)


def _tensorrt_llm(load: Load) -> Iterator[str]:
    yield from ("python", "-m", "tensorrt_llm.serve.scripts.benchmark_serving")
    yield from ("--backend", "openai", "--base-url", load.url, "--endpoint", "/v1/completions")
    yield from ("--model", load.model, "--dataset-name", "random", "--random-ids")
    yield from ("--tokenize-on-client", "--seed", "1", "--ignore-eos")
    yield from _random_lengths(load)
    width = common_width(load.random_variation, load.output_variation)
    yield from ("--random-range-ratio", f"{width:g}")
    yield from _arrivals(load)
    yield from _saved_json(load)


def _random_lengths(load: Load) -> Iterator[str]:
    """Means of the lengths; the prefix comes before the random part."""
    yield from ("--random-prefix-len", str(load.prefix_tokens))
    yield from ("--random-input-len", str(load.random_tokens))
    yield from ("--random-output-len", str(load.output_tokens))


def _saved_json(load: Load) -> Iterator[str]:
    yield from ("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", _PERCENTILES)
    yield from ("--save-result", "--result-filename", load.result_file)


def _arrivals(load: Load) -> Iterator[str]:
    yield from ("--num-prompts", str(load.num_requests))
    if load.request_rate is not None:
        yield from ("--request-rate", f"{load.request_rate:g}")
    if load.concurrency is not None:
        yield from ("--max-concurrency", str(load.concurrency))


def _sglang(load: Load) -> Iterator[str]:
    yield from ("python", "-m", "sglang.benchmark.serving", "--backend", "sglang")
    yield from ("--base-url", load.url, "--model", load.model, "--seed", "1")
    if load.prefix_tokens:
        yield from ("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "1")
        yield from ("--gsp-prompts-per-group", str(load.num_requests))
        yield from ("--gsp-system-prompt-len", str(load.prefix_tokens))
        yield from ("--gsp-question-len", str(load.random_tokens))
        yield from ("--gsp-output-len", str(load.output_tokens), "--gsp-range-ratio", "1")
    else:
        width = common_width(load.input_variation, load.output_variation)
        (prompt, ratio), (answer, _) = (
            longest_and_ratio(each, width) for each in (load.input_tokens, load.output_tokens)
        )
        yield from ("--dataset-name", "random-ids", "--random-range-ratio", f"{ratio:g}")
        yield from ("--random-input-len", str(prompt))
        yield from ("--random-output-len", str(answer), "--tokenize-prompt")
    yield from ("--warmup-requests", str(load.warmup))
    yield from _arrivals(load)
    yield from ("--output-file", load.result_file)


def _aiperf(load: Load) -> Iterator[str]:
    yield from ("aiperf", "profile", "--model", load.model, "--url", load.url)
    yield from ("--endpoint-type", "completions", "--streaming", "--random-seed", "1")
    deviations = (
        f"{load.input_tokens * load.input_variation:g}",
        f"{load.output_tokens * load.output_variation:g}",
    )
    yield from ("--isl", str(load.random_tokens), "--isl-stddev", deviations[0])
    yield from ("--osl", str(load.output_tokens), "--osl-stddev", deviations[1])
    yield from ("--extra-inputs", "ignore_eos:true")
    if not load.output_variation:
        yield from ("--extra-inputs", f"min_tokens:{load.output_tokens}")
    if load.prefix_tokens:
        yield from ("--num-prefix-prompts", "1")
        yield from ("--prefix-prompt-length", str(load.prefix_tokens))
    if load.request_rate is not None:
        yield from ("--request-rate", f"{load.request_rate:g}", "--request-rate-mode", "poisson")
    if load.concurrency is not None:
        yield from ("--concurrency", str(load.concurrency))
    yield from ("--request-count", str(load.num_requests))
    yield from ("--num-dataset-entries", str(load.num_requests))
    yield from ("--warmup-request-count", str(load.warmup))
    folder = load.result_file.removesuffix(".json")
    yield from ("--output-artifact-dir", folder, "--ui-type", "none")


_TOOLS: Mapping[str, Callable[[Load], Iterator[str]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "trtllm-serve": _tensorrt_llm,
}


REQUESTS = "requests"
"""In place of a target, of what sends requests to a server."""
_AT_ONCE = ("at_once", "batch")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@cache
def _clients() -> Mapping[str, tuple[Mapping[str, str], ...]]:
    rows = shipped_rows("launchers/loads.csv")
    groups: dict[str, list[Mapping[str, str]]] = {}
    names: dict[str, str] = {}
    for row in rows:
        first, *others = row["programs"].split("|")
        groups.setdefault(first, []).append(row)
        names |= dict.fromkeys((first, *others), first)
    return {name: tuple(groups[first]) for name, first in names.items()}


def client_of(words: Sequence[str]) -> str:
    """The program of the table that a command starts; empty where it starts none.

    >>> client_of(["trtllm-bench", "--model", "m", "throughput"])
    'trtllm-bench throughput'
    """
    if not words:
        return ""
    first = words[1] if words[0] == "-m" and len(words) > 1 else words[0].replace("\\", "/")
    known = [name for name in _clients() if _is(name, first, words)]
    return max(known, key=len, default="")


def _is(name: str, first: str, words: Sequence[str]) -> bool:
    program, *rest = name.split()
    return (first == program or first.endswith(f"/{program}")) and {*rest} <= {*words[1:]}


@cache
def accepted_by(name: str) -> Accepted:
    """The options of a program that say something of its requests."""
    options: dict[str, AcceptedOption] = {}
    aliases: dict[str, str] = {}
    for row in _clients()[name]:
        option, *others = row["option"].split("|")
        options[option] = AcceptedOption(name=option)
        aliases |= dict.fromkeys(others, option)
    return Accepted(options, aliases)


def is_of_clients(option: str) -> bool:
    """Whether an option is of some program that sends requests, and of no engine."""
    return any(accepted_by(name).find(option) is not None for name in (*_clients(),))


def requests_of(name: str, found: Found) -> Found:
    """What a command of the program ``name`` says of its requests, by term.

    What text alone does not tell has no text.
    """
    given = found.options
    said: dict[str, Given] = {}
    data = next((row for row in _clients()[name] if row["says"] == "dataset"), None)
    kind = ""
    if data is not None:
        own = given.get(data["option"])
        kind = data["default"] if own is None else own.single or ""
    for row in _clients()[name]:
        option, says = row["option"].split("|")[0], row["says"]
        if says in ("", "dataset") or not kind.startswith(row["of"]):
            continue
        if option in given:
            text = next(iter(given[option].texts), "")
            number = _NUMBER.match(text or "")
            if number or text is None:
                # Where nothing is generated, or no prompt is there, one token stands for it.
                least = "1" if says in LENGTHS and number and float(number[0]) == 0 else None
                said[says] = replace(given[option], texts=(least or (number and number[0]),))
            else:
                said.pop(says, None)
        elif row["default"] and says not in said:
            said[says] = stated(option, row["default"], found.line)
    shortest = said.pop("shortest", None)
    ratio = 1.0 if shortest is None else float(shortest.single or 1)
    for length in LENGTHS:
        if length in said and (longest := said[length].single) and ratio < 1:
            said[length] = said[length].saying(str(round(float(longest) * (1 + ratio) / 2)))
    if "batch" in said:
        said.setdefault("num_requests", said["batch"])
    return Found(target=REQUESTS, name=found.name, text=found.text, line=found.line, options=said)


def said_alone(sent: Found) -> str:
    """What is said of a program that sends requests to a server that its file does not start."""
    words = [
        f"--{name.replace('_', '-')} {given.single}"
        for name, given in sent.options.items()
        if given.single and name not in _AT_ONCE
    ]
    return (
        f"{sent.name}: line {sent.line}: sends requests to a server that it does not start: give "
        f"the file that starts one, or a folder of both. Of the requests it says "
        f"{' '.join(words) or 'nothing'}."
    )


def served_of(found: Sequence[Found], beside: Sequence[Found] = ()) -> Iterator[Found]:
    """The servers among what a file starts, in order, with the requests that are sent to them.

    A program that measures an engine says them itself, and what prepares them stands before it; to
    a server they are sent later, or by a file ``beside`` it.
    """
    is_own = [
        one.target == REQUESTS and following.target != REQUESTS and one.line == following.line
        for one, following in pairwise((*found, Found(target=REQUESTS, name="", text="")))
    ]
    for at, one in enumerate(found):
        if one.target == REQUESTS:
            continue
        clients = [
            (other > at, client)
            for other, client in enumerate(found)
            if client.target == REQUESTS and not is_own[other]
        ]
        before = [client for is_later, client in clients if not is_later][::-1]
        after = [client for is_later, client in clients if is_later]
        own = found[at - 1 : at] if at and is_own[at - 1] else []
        others = [*before, *after] if own else [*after, *before] or [*beside]
        yield _with_requests(one, own, others)


def _with_requests(found: Found, own: Sequence[Found], others: Sequence[Found]) -> Found:
    whole = [one for one in (*own, *others) if {*LENGTHS} <= {*one.options}]
    said: dict[str, Given] = {}
    for one in (*own, *(whole or others)[:1]):
        said = {**one.options, **said}
    limit = next((said[name] for name in _AT_ONCE if name in said and said[name].single), None)
    options = {**found.options} if limit is None else {**found.options, ONGOING: limit}
    load = {name: given for name, given in said.items() if limit is None or name not in _AT_ONCE}
    return replace(found, options=options, load=load)
