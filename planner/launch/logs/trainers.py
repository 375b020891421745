"""Lines of trainers that print a line per step: which there are, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from statistics import median

from planner.base.records import record
from planner.base.units import GIB
from planner.launch.logs.reading import (
    SAMPLES,
    STEP_TIME,
    TOKENS,
    Reading,
    Step,
    plain_count,
    plain_number,
)
from planner.launch.logs.source import Line, Log

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
class Trainer:
    """How a trainer prints steps.

    ``needle`` is in every line about a step, ``step`` finds its number, if ``counted``, and its
    value of the ``quantity``, with its ``unit`` where that varies. ``memory`` finds what the
    allocator held, by kind, in units of so many GiB, ``facts`` numbers of the run.
    """

    name: str
    title: str
    needle: str
    step: re.Pattern[str]
    quantity: str = STEP_TIME
    memory: tuple[tuple[str, re.Pattern[str], float], ...] = ()
    facts: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    counted: bool = True

    def reads(self, line: Line) -> bool:
        """Whether a line is about a step."""
        return self.needle in line.text and self.step.search(line.text) is not None


def _patterns(**patterns: str) -> dict[str, re.Pattern[str]]:
    return {name: re.compile(pattern) for name, pattern in patterns.items()}


def _argument(name: str) -> str:
    """A line of the arguments that Megatron prints."""
    return rf"^\s*{name} \.{{2,}} (\d+)\s*$"


_MEGATRON_FACTS = _patterns(
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
    Trainer(
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
    Trainer(
        name="megatron-bridge",
        title="Megatron-Bridge",
        needle="Step Time :",
        step=re.compile(r"Step Time : *(?P<value>[\d.]+)s"),
        memory=_MEGATRON_MEMORY,
        counted=False,
    ),
    Trainer(
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
        facts=_patterns(global_batch_size=r"\bglobal_batch_size[:=] *(\d+)"),
    ),
    Trainer(
        name="torchtitan",
        title="torchtitan",
        needle="memory:",
        step=re.compile(
            rf"(?<!validate )step: +(?P<step>\d+) .*?(?:tps|wps): +(?P<value>{_NUMBER})"
        ),
        quantity=TOKENS,
        memory=(("reserved", re.compile(r"(?<!validate )step: .*memory: *([\d.]+)GiB"), 1.0),),
        facts=_patterns(
            global_batch_size=r"global batch size (\d+)",
            sequence_length=r"(?:sequence|maximum context) length (\d+)",
            tokens_per_step=r"(\d+) tokens per train step",
            tensor_parallel=r"Building device mesh with parallelism:.*\btp=(\d+)",
            pipeline_parallel=r"Building device mesh with parallelism:.*\bpp=(\d+)",
            context_parallel=r"Building device mesh with parallelism:.*\bcp=(\d+)",
            expert_parallel=r"Building device mesh with parallelism:.*\bep=(\d+)",
        ),
    ),
    Trainer(
        name="deepspeed",
        title="DeepSpeed",
        needle="CurrSamplesPerSec",
        step=re.compile(r"global_step=(?P<step>\d+),.*?CurrSamplesPerSec=(?P<value>[\d.]+)"),
        quantity=SAMPLES,
        memory=(("allocated", re.compile(r"MaxMemAllocated=([\d.]+)GB"), 1.0),),
        facts=_patterns(
            global_batch_size=r"train_batch_size \.{2,} (\d+)",
            micro_batch_size=r"train_micro_batch_size_per_gpu \.{2,} (\d+)",
            num_gpus=r"\bworld_size \.{2,} (\d+)",
        ),
    ),
    Trainer(
        name="deepspeed-pipeline",
        title="DeepSpeed's pipeline engine",
        needle="iter time (s):",
        step=re.compile(r"steps: (?P<step>\d+) .*?iter time \(s\): (?P<value>[\d.]+)"),
        memory=(("allocated", re.compile(r"MaxMemAllocated=([\d.]+)GB"), 1.0),),
        facts=_patterns(global_batch_size=r"train_batch_size \.{2,} (\d+)"),
    ),
    Trainer(
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
# Numbers of a log that are rounded agree so nearly.
_AGREES = 0.02
_SIZE = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp)=(\d+)")


def read_trainer(log: Log, trainer: Trainer) -> Reading:
    """The steps, the memory and the numbers of a run that a trainer printed."""
    parser = _Parser(trainer)
    for line in log.lines():
        parser.take(line)
    return parser.reading()


class _Parser:
    """What was found so far of a log."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.steps: list[Step] = []
        self.memory: dict[str, float] = {}
        self.facts: dict[str, float] = {}
        self.after = ""
        self.sums: dict[str, list[float]] = {"tokens": [], "samples": [], "consumed": []}
        self.consumed = (0, 0)

    def take(self, line: Line) -> None:
        """One more line."""
        self._take_memory(line.text)
        self._take_facts(line.text)
        found = None
        if self.trainer.needle in line.text:
            found = self.trainer.step.search(line.text)
        if found is None:
            self.after = event_of(line.text) or self.after
            return
        value = _float(found["value"]) * _UNITS.get(found.groupdict().get("unit") or "s", 1.0)
        if value <= 0:
            return
        number = self._number(found)
        batch = int(self.facts.get("global_batch_size", 0)) if self._tells_batch(line) else 0
        self.steps.append(
            Step(number=number, stream=line.stream, value=value, batch=batch, after=self.after)
        )
        self.after = ""
        self._take_checks(line.text, value)

    def reading(self) -> Reading:
        """All of it."""
        return Reading(
            format=self.trainer.name,
            title=self.trainer.title,
            is_training=True,
            quantity=self.trainer.quantity,
            steps=tuple(self.steps),
            memory=self.memory,
            facts=self.facts | self._derived(),
            notes=tuple(self._contradictions()),
        )

    def _number(self, found: re.Match[str]) -> int:
        if not self.trainer.counted:
            return len(self.steps) + 1
        groups = found.groupdict()
        return plain_count(groups["step"] or groups.get("bar") or 0)

    def _tells_batch(self, line: Line) -> bool:
        return "global batch size:" in line.text or "global_batch_size:" in line.text

    def _take_memory(self, text: str) -> None:
        for kind, pattern, unit in self.trainer.memory:
            if found := pattern.search(text):
                self.memory[kind] = max(self.memory.get(kind, 0.0), _float(found[1]) * unit)

    def _take_facts(self, text: str) -> None:
        for name, pattern in self.trainer.facts.items():
            if found := pattern.search(text):
                self.facts[name] = _float(next(filter(None, found.groups())))
        if mesh := _MESH.search(text):
            sizes = [plain_count(size) for _, size in _SIZE.findall(mesh[1])]
            product = 1
            for size in sizes:
                product *= size
            self.facts["num_gpus"] = product

    def _take_checks(self, text: str, value: float) -> None:
        if found := _MAXTEXT_TOKENS.search(text):
            self.sums["tokens"].append(_float(found[1]) * _float(found[2]))
        batch = self.facts.get("global_batch_size")
        if batch and (found := _SAMPLES_CHECK.search(text)):
            self.sums["samples"].append(_float(found[1]) * value / batch)
        if batch and (found := _CONSUMED.search(text)):
            number, consumed = plain_count(found[1]), plain_count(found[2])
            steps, more = number - self.consumed[0], consumed - self.consumed[1]
            if self.consumed[0] and steps > 0:
                self.sums["consumed"].append(more / steps / batch)
            self.consumed = number, consumed

    def _derived(self) -> dict[str, float]:
        """Numbers of the run that follow from what its lines tell together."""
        tokens = self.sums["tokens"]
        return {"tokens_per_gpu_and_step": _middle(tokens)} if tokens else {}

    def _contradictions(self) -> Iterator[str]:
        """Where numbers of the log do not agree with each other."""
        for ratios, words in (
            (self.sums["samples"], "its sequences per second times its step time are"),
            (self.sums["consumed"], "the sequences that it consumed a step are"),
        ):
            ratio = _middle(ratios)
            if abs(ratio - 1) > _AGREES:
                yield f"the log contradicts itself: {words} {ratio:.3g} of its global batch size"


def event_of(text: str) -> str:
    """What a line tells of beside steps: an evaluation, a checkpoint, or nothing."""
    return next((name for pattern, name in EVENTS if pattern.search(text)), "")


def _middle(values: list[float]) -> float:
    """The median; 1 of none."""
    return median(values) if values else 1.0


def _float(text: str) -> float:
    return plain_number(text.replace(",", "")) or 0.0
