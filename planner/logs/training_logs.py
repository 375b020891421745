"""Log formats of trainers that print a line per step, and their parsers.

Source of those of reinforcement learning, a step with its phases: volcengine/verl 0.7 (console of
``timing_s/*``); NVIDIA-NeMo/RL, ``nemo_rl/algorithms/grpo.py`` (its block "Timing");
OpenRLHF/OpenRLHF 021d1b0, ``openrlhf/trainer/ppo_trainer.py``; THUDM/slime at 624b824,
``slime/observability/train_metric_utils.py``; huggingface/trl at f2cd577,
``trl/trainer/grpo_trainer.py``, whose phases are not on the console.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from statistics import median

from planner.base.read_files import UncheckedTable
from planner.base.records import record
from planner.base.units import GIB
from planner.logs.log_reader import (
    SAMPLES,
    STEP_TIME,
    TOKENS,
    Log,
    LoggedStep,
    LogLine,
    LogSummary,
    parse_count,
    parse_number,
)

_NUMBER = r"([\d,]+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_UNITS = {"ms": 1e-3}
_MIB = 2**20 / GIB
_BYTE = 1 / GIB

EVENTS = (
    (re.compile(r"validation loss at|validate step:|Completed eval|eval_loss|evaluating"),
     "an evaluation"),
    (re.compile(r"(?i)sav(?:ed|ing) (?:the |model |a )?checkpoint|finished saving"),
     "a checkpoint"),
)  # fmt: skip


@record(kw_only=True)
class TrainerLogFormat:
    """Patterns of the lines that a trainer prints about steps.

    ``needle`` is in every line about a step. ``step`` matches its number, if ``counted``, and its
    value of the ``quantity``, with its ``unit`` if that varies. ``memory`` matches the memory of
    the allocator, by kind, with its unit in GiB; ``facts`` match numbers of the run. ``phases``
    match the seconds of the parts of a step, by result column, in lines with the ``phase_needle``
    or else the ``needle``; several matches in a line are added. ``on_rollouts``: a step generates
    the answers that it trains on; ``per_update``: the log counts optimizer steps, and a generation
    may have several.
    """

    name: str
    title: str
    needle: str
    step: re.Pattern[str]
    quantity: str = STEP_TIME
    memory: tuple[tuple[str, re.Pattern[str], float], ...] = ()
    facts: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    phases: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    phase_needle: str = ""
    counted: bool = True
    on_rollouts: bool = False
    per_update: bool = False

    def matches(self, line: LogLine) -> bool:
        """Whether a line is about a step."""
        return self.needle in line.text and self.step.search(line.text) is not None


def patterns(**texts: str) -> dict[str, re.Pattern[str]]:
    """Compiled patterns by name."""
    return {name: re.compile(text) for name, text in texts.items()}


def _argument(name: str) -> str:
    """Pattern of a line of the arguments that Megatron prints."""
    return rf"^\s*{name} \.{{2,}} (\d+)\s*$"


_MEGATRON_FACTS = patterns(
    num_gpus=rf"using world size: (\d+)|{_argument('world_size')}",
    sequence_length=rf"{_argument('seq_length')}|actual seqlen: +(\d+)",
    global_batch_size=rf"global batch size: +(\d+)|{_argument('global_batch_size')}",
    micro_batch_size=_argument("micro_batch_size"),
    tensor_parallel=_argument("tensor_model_parallel_size"),
    pipeline_parallel=_argument("pipeline_model_parallel_size"),
    context_parallel=_argument("context_parallel_size"),
    expert_parallel=_argument("expert_model_parallel_size"),
    num_hidden_layers=_argument("num_layers"),
    hidden_size=_argument("hidden_size"),
)
_MEGATRON_MEMORY = (
    ("allocated", re.compile(r"max allocated: ([\d.]+)"), _MIB),
    ("reserved", re.compile(r"max reserved: ([\d.]+)"), _MIB),
    ("device", re.compile(r"total device memory used: ([\d.]+)"), _MIB),
)

TRAINERS = (
    TrainerLogFormat(
        name="megatron",
        title="Megatron",
        needle="elapsed time per iteration (",
        step=re.compile(
            r"iteration +(?P<step>\d+)/ *\d+ .*?"
            r"elapsed time per iteration \((?P<unit>m?s)\): (?P<value>[\d.]+)"
        ),
        memory=_MEGATRON_MEMORY,
        facts=_MEGATRON_FACTS,
    ),
    TrainerLogFormat(
        name="megatron-bridge",
        title="Megatron-Bridge",
        needle="Step Time :",
        step=re.compile(r"Step Time : *(?P<value>[\d.]+)s"),
        memory=_MEGATRON_MEMORY,
        counted=False,
    ),
    TrainerLogFormat(
        name="nemo",
        title="NeMo",
        needle="train_step_timing in s",
        step=re.compile(
            r"(?:iteration (?P<step>\d+)/|(?P<bar>\d+)/\d+ \[).*?"
            r"train_step_timing in s[:=] *(?P<value>[\d.]+(?:e[+-]?\d+)?)"
        ),
        memory=(
            ("allocated", re.compile(rf"(?:max_memory_allocated|peak_memory_usage): {_NUMBER}"),
             _BYTE),
        ),
        facts=patterns(global_batch_size=r"\bglobal_batch_size[:=] *(\d+)"),
    ),
    TrainerLogFormat(
        name="torchtitan",
        title="torchtitan",
        needle="memory:",
        step=re.compile(
            rf"(?<!validate )step: +(?P<step>\d+) .*?(?:tps|wps): +(?P<value>{_NUMBER})"
        ),
        quantity=TOKENS,
        memory=(("reserved", re.compile(r"(?<!validate )step: .*memory: *([\d.]+)GiB"), 1.0),),
        facts=patterns(
            global_batch_size=r"global batch size (\d+)",
            sequence_length=r"(?:sequence|maximum context) length (\d+)",
            tokens_per_step=r"(\d+) tokens per train step",
            tensor_parallel=r"Building device mesh with parallelism:.*\btp=(\d+)",
            pipeline_parallel=r"Building device mesh with parallelism:.*\bpp=(\d+)",
            context_parallel=r"Building device mesh with parallelism:.*\bcp=(\d+)",
            expert_parallel=r"Building device mesh with parallelism:.*\bep=(\d+)",
        ),
    ),
    TrainerLogFormat(
        name="deepspeed",
        title="DeepSpeed",
        needle="CurrSamplesPerSec",
        step=re.compile(r"global_step=(?P<step>\d+),.*?CurrSamplesPerSec=(?P<value>[\d.]+)"),
        quantity=SAMPLES,
        memory=(("allocated", re.compile(r"MaxMemAllocated=([\d.]+)GB"), 1.0),),
        facts=patterns(
            global_batch_size=r"train_batch_size \.{2,} (\d+)",
            micro_batch_size=r"train_micro_batch_size_per_gpu \.{2,} (\d+)",
            num_gpus=r"\bworld_size \.{2,} (\d+)",
        ),
    ),
    TrainerLogFormat(
        name="deepspeed-pipeline",
        title="DeepSpeed's pipeline engine",
        needle="iter time (s):",
        step=re.compile(r"steps: (?P<step>\d+) .*?iter time \(s\): (?P<value>[\d.]+)"),
        memory=(("allocated", re.compile(r"MaxMemAllocated=([\d.]+)GB"), 1.0),),
        facts=patterns(global_batch_size=r"train_batch_size \.{2,} (\d+)"),
    ),
    TrainerLogFormat(
        name="maxtext",
        title="MaxText",
        needle="completed step:",
        step=re.compile(r"completed step: (?P<step>\d+), seconds: (?P<value>[\d.]+)"),
    ),
)  # fmt: skip

_MAXTEXT_TOKENS = re.compile(r"seconds: ([\d.]+),.*Tokens/s/device: ([\d.]+)")
_SAMPLES_CHECK = re.compile(r"(?:samples per second|samples/sec): ([\d.]+)")
_CONSUMED = re.compile(r"iteration +(\d+)/.*consumed samples: +(\d+)")
_MESH = re.compile(r"Building device mesh with parallelism: (.*)")
# Relative tolerance between rounded numbers of a log.
_AGREES = 0.02
_SIZE = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp)=(\d+)")


def read_trainer(log: Log, trainer: TrainerLogFormat) -> LogSummary:
    """Read step times, memory and numbers of a run from the log of a trainer."""
    parser = _Parser(trainer)
    for line in log.lines():
        parser.add_line(line)
    return parser.summary()


class _Parser:
    """Collects the measurements of a log line by line."""

    def __init__(self, trainer: TrainerLogFormat) -> None:
        """Start without steps, memory and facts; ``trainer``: the format of the lines."""
        self.trainer = trainer
        self.steps: list[LoggedStep] = []
        self.memory: dict[str, float] = {}
        self.facts: dict[str, float] = {}
        self.after = ""
        self.phases: dict[str, list[float]] = defaultdict(list)
        self.sums: dict[str, list[float]] = {"tokens": [], "samples": [], "consumed": []}
        self.consumed = (0, 0)

    def add_line(self, line: LogLine) -> None:
        """Parse one line and record its step time, memory and facts."""
        for kind, pattern, unit in self.trainer.memory:
            if used := pattern.search(line.text):
                self.memory[kind] = max(self.memory.get(kind, 0.0), _parse_float(used[1]) * unit)
        self._take_facts(line.text)
        if (self.trainer.phase_needle or self.trainer.needle) in line.text:
            for name, pattern in self.trainer.phases.items():
                if parts := pattern.findall(line.text):
                    self.phases[name].append(sum(map(_parse_float, parts)))
        match = None
        if self.trainer.needle in line.text:
            match = self.trainer.step.search(line.text)
        if match is None:
            self.after = find_event(line.text) or self.after
            return
        value = _parse_float(match["value"]) * _UNITS.get(match.groupdict().get("unit") or "s", 1.0)
        if value <= 0:
            return
        number = self._number(match)
        has_batch_size = "global batch size:" in line.text or "global_batch_size:" in line.text
        batch = int(self.facts.get("global_batch_size", 0)) if has_batch_size else 0
        self.steps.append(
            LoggedStep(
                number=number, stream=line.stream, value=value, batch=batch, after=self.after
            )
        )
        self.after = ""
        self._take_checks(line.text, value)

    def summary(self) -> LogSummary:
        """Return the measurements of all lines so far."""
        tokens = self.sums["tokens"]
        return LogSummary(
            format=self.trainer.name,
            title=self.trainer.title,
            is_training=True,
            on_rollouts=self.trainer.on_rollouts,
            per_update=self.trainer.per_update,
            quantity=self.trainer.quantity,
            steps=tuple(self.steps),
            memory=self.memory,
            phases={
                name: _median_or_one(phase[1:] or phase) for name, phase in self.phases.items()
            },
            facts=self.facts
            | ({"tokens_per_gpu_and_step": _median_or_one(tokens)} if tokens else {}),
            notes=tuple(self._contradictions()),
        )

    def _number(self, match: re.Match[str]) -> int:
        if not self.trainer.counted:
            return len(self.steps) + 1
        groups = match.groupdict()
        return parse_count(groups["step"] or groups.get("bar") or 0)

    def _take_facts(self, text: str) -> None:
        """Record the facts of a line, and the number of GPUs if it states a device mesh."""
        for name, pattern in self.trainer.facts.items():
            if match := pattern.search(text):
                self.facts[name] = _parse_float(next(filter(None, match.groups())))
        if mesh := _MESH.search(text):
            sizes = [parse_count(size) for _, size in _SIZE.findall(mesh[1])]
            product = 1
            for size in sizes:
                product *= size
            self.facts["num_gpus"] = product

    def _take_checks(self, text: str, value: float) -> None:
        """Record tokens and samples of a step of ``value`` seconds to check the batch size."""
        if match := _MAXTEXT_TOKENS.search(text):
            self.sums["tokens"].append(_parse_float(match[1]) * _parse_float(match[2]))
        batch = self.facts.get("global_batch_size")
        if batch and (match := _SAMPLES_CHECK.search(text)):
            self.sums["samples"].append(_parse_float(match[1]) * value / batch)
        if batch and (match := _CONSUMED.search(text)):
            number, consumed = parse_count(match[1]), parse_count(match[2])
            steps, new_sequences = number - self.consumed[0], consumed - self.consumed[1]
            if self.consumed[0] and steps > 0:
                self.sums["consumed"].append(new_sequences / steps / batch)
            self.consumed = number, consumed

    def _contradictions(self) -> Iterator[str]:
        """Yield notes on numbers of the log that contradict each other."""
        for ratios, subject in (
            (self.sums["samples"], "its sequences per second times its step time are"),
            (self.sums["consumed"], "the sequences that it consumed a step are"),
        ):
            ratio = _median_or_one(ratios)
            if abs(ratio - 1) > _AGREES:
                yield f"the log contradicts itself: {subject} {ratio:.3g} of its global batch size"


def find_event(text: str) -> str:
    """The event in a line: an evaluation, a checkpoint, or an empty text."""
    return next((name for pattern, name in EVENTS if pattern.search(text)), "")


def _median_or_one(values: list[float]) -> float:
    """The median; 1 if there are no values."""
    return median(values) if values else 1.0


def _parse_float(text: str) -> float:
    return parse_number(text.replace(",", "")) or 0.0


HUGGING_FACE = "trainer"
TITLE = "Hugging Face's Trainer (transformers, TRL, axolotl)"
RUNTIME = "train_runtime"
SAMPLES_RATE = "train_samples_per_second"
STEPS_RATE = "train_steps_per_second"
# Version 5 prints numbers as text.
_PAIR = re.compile(r"['\"]([\w/ ()]+)['\"]: ['\"]?(-?[\d.]+(?:e[+-]?\d+)?)['\"]?(?=[,}])")
_BAR = re.compile(r"\b(\d+)/(\d+) \[(?:(\d+):)?(\d+):(\d+)<")
_MEMORY = {
    "memory/max_allocated (GiB)": "allocated",
    "memory/max_mem_allocated(gib)": "allocated",
    "memory/device_reserved (GiB)": "reserved",
    "memory/device_mem_reserved(gib)": "reserved",
}
_WARMUP_STEPS = 3
# The bar counts in seconds: over a shorter time, the mean of the run is more precise.
_LEAST_SECONDS = 30
_FEWEST_STEPS = 5


def is_hugging_face_line(line: LogLine) -> bool:
    """Whether a line is the summary at the end of a training."""
    return RUNTIME in line.text and _pairs(line.text).keys() >= {RUNTIME}


def read_trainer_log(log: Log) -> LogSummary:
    """Read the rates that Trainer prints at its end, and step times of its progress bar."""
    summary: dict[str, float] = {}
    memory: dict[str, float] = {}
    bars: list[tuple[int, int]] = []
    events = 0
    for line in log.lines():
        if bar := _BAR.search(line.text):
            hours, minutes, seconds = (parse_count(bar[place]) for place in (3, 4, 5))
            bars.append((parse_count(bar[1]), 3600 * hours + 60 * minutes + seconds))
        if "{" not in line.text:
            continue
        pairs = _pairs(line.text)
        events += bool(find_event(line.text)) and RUNTIME not in pairs
        for name, kind in _MEMORY.items():
            if name in pairs:
                memory[kind] = max(memory.get(kind, 0.0), pairs[name])
        if _is_summary(pairs):
            summary = pairs
    return _summarize(summary, memory, bars, events)


def is_state(value: object) -> bool:
    """Whether a JSON value is a ``trainer_state.json``, or results that the Trainer saved."""
    return isinstance(value, Mapping) and ("log_history" in value or RUNTIME in value)


def read_state(state: UncheckedTable) -> LogSummary:
    """Read the measurements of ``trainer_state.json`` or of results that Trainer saved.

    With ``include_num_input_tokens_seen`` each entry has the time so far, which gives step times.
    """
    listed = state.get("log_history", [state])
    history = listed if isinstance(listed, list) else []
    summary: dict[str, float] = {}
    memory: dict[str, float] = {}
    events = 0
    entries = [
        {
            name: float(value)
            for name, value in entry.items()
            if isinstance(value, int | float) and parse_number(value) is not None
        }
        for entry in history
        if isinstance(entry, Mapping)
    ]
    for numbers in entries:
        events += "eval_loss" in numbers and RUNTIME not in numbers
        for name, kind in _MEMORY.items():
            if name in numbers:
                memory[kind] = max(memory.get(kind, 0.0), numbers[name])
        if _is_summary(numbers):
            summary = numbers
    steps = tuple(_steps(entries))
    reading = _summarize(summary, memory, [], events)
    return replace(reading, steps=steps, values={}, notes=()) if len(steps) > 1 else reading


def _is_summary(numbers: Mapping[str, float]) -> bool:
    """Whether the numbers are of the complete training, not of the steps so far."""
    return bool({STEPS_RATE, SAMPLES_RATE} & numbers.keys())


def _steps(entries: Iterable[Mapping[str, float]]) -> Iterator[LoggedStep]:
    """Yield the mean time of the steps between two entries with the time so far [s]."""
    before: tuple[float, float] | None = None
    after = ""
    for numbers in entries:
        if "eval_loss" in numbers:
            after = "an evaluation"
        if RUNTIME not in numbers or "step" not in numbers or _is_summary(numbers):
            continue
        number, seconds = numbers["step"], numbers[RUNTIME]
        if before is not None and number > before[0] and seconds > before[1]:
            value = (seconds - before[1]) / (number - before[0])
            yield LoggedStep(number=int(number), stream="", value=value, after=after)
            after = ""
        before = number, seconds


def _summarize(
    summary: Mapping[str, float],
    memory: Mapping[str, float],
    bars: list[tuple[int, int]],
    events: int,
) -> LogSummary:
    """Return the step time [s] or sample rate [1/s], batch and notes of a Hugging Face log."""
    values, notes = {}, []
    steps, samples = summary.get(STEPS_RATE), summary.get(SAMPLES_RATE)
    seconds, between = _bar_time(bars)
    if seconds:
        values["step_time_s"] = seconds
        notes.append(f"the step time is from steps {between} of the progress bar")
    elif steps:
        values["step_time_s"] = 1 / steps
        notes.append(
            "the step time is the mean of the whole run: it includes warm-up, evaluations and "
            "checkpoints; a log with a progress bar would exclude them"
        )
    elif samples:
        values[SAMPLES] = samples
    if events:
        notes.append(f"{events} evaluations are in the log")
    facts = {}
    if steps and samples:
        # Both are rounded to three places.
        facts["global_batch_size"] = samples / steps
        facts["global_batch_size_within"] = 0.0006 / steps + 0.0006 / samples
    return LogSummary(
        format=HUGGING_FACE,
        title=TITLE,
        is_training=True,
        values=values,
        memory=memory,
        facts=facts,
        notes=tuple(notes),
    )


def _bar_time(bars: list[tuple[int, int]]) -> tuple[float, str]:
    """Return seconds per step after warm-up and the range of steps; (0, ""): too few steps."""
    longest: list[tuple[int, int]] = []
    for run in _runs(bars):
        longest = max(longest, run, key=len)
    warm = [bar for bar in longest if bar[0] >= _WARMUP_STEPS]
    if len(warm) < 2:
        return 0.0, ""
    (first, start), (last, end) = warm[0], warm[-1]
    if last - first < _FEWEST_STEPS or end - start < _LEAST_SECONDS:
        return 0.0, ""
    return (end - start) / (last - first), f"{first} to {last}"


def _runs(bars: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the progress bars of each run: of training, of evaluation, of reading shards."""
    run: list[tuple[int, int]] = []
    for bar in bars:
        if run and (bar[0] < run[-1][0] or bar[1] < run[-1][1]):
            yield run
            run = []
        run.append(bar)
    yield run


def _pairs(line: str) -> dict[str, float]:
    """Return the names and numbers of a log line; skips values that are not numbers."""
    pairs = {}
    for name, text in _PAIR.findall(line):
        if (value := parse_number(text)) is not None:
            pairs[name] = value
    return pairs


LOGPROBS, REFIT = "time_logprobs_s", "time_refit_s"
"""Phases that logs print as a sum: old and reference log-probabilities and values together, and
the hand-over of GPUs and weights."""

_RL_NUMBER = r"(?:np\.float\d+\()?'?([\d.]+(?:e[+-]?\d+)?)"
_VERL = {
    "time_generate_s": "gen",
    "time_reward_s": "reward",
    "time_old_logprob_s": "old_log_prob",
    "time_reference_s": "(?:ref|RefPolicy)",
    "time_values_s": "(?:values|update_critic)",
    "time_update_s": "update_actor",
    "time_sync_s": "(?:update_weights|sync_rollout_weights)",
}
_NEMO = {
    "time_generate_s": "(?:exposed_)?generation",
    "time_reward_s": "reward_calculation",
    LOGPROBS: "policy_and_reference_logprobs",
    "time_update_s": "policy_training",
    REFIT: "(?:prepare_for_generation/total|weight_sync)",
}
_OPENRLHF = {
    "time_generate_s": "generation",
    LOGPROBS: "make_experience",
    "time_update_s": "ppo_train",
    REFIT: "broadcast",
}
_SLIME = {
    "time_generate_s": "rollout",
    "time_old_logprob_s": "log_probs",
    "time_reference_s": "ref_log_probs",
    "time_update_s": "actor_train",
    "time_sync_s": "update_weights",
}


def _dictionary(prefix: str, name: str) -> str:
    """A number of a dictionary of Python that a line prints."""
    return rf"'{prefix}{name}': {_RL_NUMBER}"


def _step(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(_RL_NUMBER, _RL_NUMBER.replace("([", "(?P<value>[")))


ROLLOUT_TRAINERS = (
    TrainerLogFormat(
        name="verl",
        title="verl",
        on_rollouts=True,
        needle="timing_s/step:",
        step=_step(rf"\bstep:(?P<step>\d+) - .*timing_s/step:{_RL_NUMBER}"),
        facts=patterns(
            input_tokens=rf"\bprompt_length/mean:{_RL_NUMBER}",
            output_tokens=rf"\bresponse_length/mean:{_RL_NUMBER}",
        ),
        phases=patterns(**{name: rf"timing_s/{key}:{_RL_NUMBER}" for name, key in _VERL.items()}),
    ),
    TrainerLogFormat(
        name="nemo-rl",
        title="NeMo-RL",
        on_rollouts=True,
        needle="Total step time:",
        step=_step(rf"Total step time: {_RL_NUMBER}s"),
        facts=patterns(output_tokens=rf"Mean Generation Length: {_RL_NUMBER}"),
        phases=patterns(**{name: rf"\s{key}: {_RL_NUMBER}s \(" for name, key in _NEMO.items()}),
        phase_needle="s (",
        counted=False,
    ),
    TrainerLogFormat(
        name="openrlhf",
        title="OpenRLHF",
        on_rollouts=True,
        needle="'timing/step_total'",
        step=_step(rf"Global step (?P<step>\d+): .*{_dictionary('timing/', 'step_total')}"),
        facts=patterns(output_tokens=_dictionary("", "(?:response|generated)_length")),
        phases=patterns(**{n: _dictionary("timing/", key) for n, key in _OPENRLHF.items()}),
    ),
    TrainerLogFormat(
        name="slime",
        title="slime",
        on_rollouts=True,
        needle="'perf/step_time'",
        step=_step(rf"\bperf (?P<step>\d+): .*{_dictionary('perf/', 'step_time')}"),
        facts=patterns(output_tokens=_dictionary("rollout/", "response_len/mean")),
        phases=patterns(**{n: _dictionary("perf/", f"{key}_time") for n, key in _SLIME.items()}),
        phase_needle="'perf/",
    ),
    TrainerLogFormat(
        name="trl",
        title="TRL",
        on_rollouts=True,
        per_update=True,
        needle="'step_time'",
        step=_step(rf"'completions/.*{_dictionary('', 'step_time')}"),
        facts=patterns(output_tokens=_dictionary("completions/", "mean_length")),
        counted=False,
    ),
)
