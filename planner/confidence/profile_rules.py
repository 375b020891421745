"""Which profile stands for the software of a run, by its name, its version and its device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TypeVar

from planner.base.enums import AdapterTargets
from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.base.software_enums import AttentionKernel, LossKernel
from planner.base.training_aliases import TrainingObjective
from planner.specs.engine import EngineProfile

FOLDER = Path(__file__).parent
Rule = TypeVar("Rule")


@cache
def read_table(name: str, folder: Path = FOLDER) -> tuple[Mapping[str, str], ...]:
    """The rows of a CSV file, of this package where no folder is given."""
    return tuple(packaged_rows(folder / name))


_PARSERS: Mapping[str, Callable[[str], object]] = {
    "str": str, "bool": "1".__eq__, "int": int, "float": float
}  # fmt: skip


def _rules(kind: type[Rule], name: str) -> Iterator[Rule]:
    """Yield the rows of a CSV table as ``kind`` objects; empty cells take the field's default."""
    types = kind.__annotations__.items()
    reads = {
        field: _PARSERS[str(annotation).removesuffix(" | None")] for field, annotation in types
    }
    for row in read_table(name):
        cells = {name: cell for name, cell in row.items() if cell}
        yield kind(**{name: reads[name](cell) for name, cell in cells.items()})


@record(kw_only=True)
class FrameworkRule:
    """The profile of a framework, and its defaults for unspecified options of a run.

    ``nearest``: the profile is not of this framework, only the closest to it. A feature
    is on from a year on, never if None. ``recompute`` may be another with several GPUs, after a
    slash. ``recompute`` or ``virtual_pipeline`` None: several
    values are plausible. ``sharded_profile`` stands for runs on more than one GPU.
    ``fused_loss_from``: the loss is one kernel; before, or if None, it runs as several that
    keep float32 copies of the logits. ``per_logit``: bytes where it is not the profile's loss,
    ``quantized_per_logit`` with quantized weights, if that differs, as where these have no
    compute type and PEFT casts the rest to fp32.
    ``memory_kind``: what the framework itself prints; empty if that is not known.
    ``adapter_profile`` stands for the framework where it trains an adapter, if another one
    does, ``fused_adapter_profile`` where it does so with fused kernels; ``lora_targets`` is
    what it then adapts. ``sample_length``: tokens of a sample of fine-tuning. ``trains_mtp``: its
    recipes train a model's multi-token prediction. ``attention_kernel``: the kernels that runs have
    which say none, where they are not those of the profile. ``loops_experts_until``: the last year
    in which its experts are a loop, as those of Transformers before 5. ``copies_logits_until``:
    the last year in which its loss shifts a copy of the logits, not the labels. ``fused_loss``:
    what its users mean by a fused loss, where it is another: Liger and cut cross-entropy never have
    all logits.
    """

    label: str
    profile: str
    pattern: str = ""
    sharded_profile: str = ""
    nearest: bool = False
    flash_attention_from: int | None = None
    sequence_parallel_from: int | None = None
    recompute: str | None = None
    virtual_pipeline: int | None = None
    fused_loss_from: int | None = None
    per_logit: float | None = None
    memory_kind: str = ""
    adapter_profile: str = ""
    fused_adapter_profile: str = ""
    lora_targets: str = AdapterTargets.ATTENTION
    trains_mtp: bool = False
    sample_length: int = 1024  # TRL's max_length
    attention_kernel: str = AttentionKernel.AUTO.word
    loops_experts_until: int | None = None
    copies_logits_until: int | None = None
    fused_loss: str = LossKernel.FUSED.word
    quantized_per_logit: float | None = None

    def rule_for_adapter(self, *, fused: bool) -> FrameworkRule:
        """The rule for a run that trains an adapter, with fused kernels or without."""
        profile = self.fused_adapter_profile if fused else self.adapter_profile
        return replace(self, profile=profile, nearest=False)


@cache
def framework_rule(text: str) -> FrameworkRule:
    """The first rule whose pattern is in a framework's text; the last one has none."""
    return next(rule for rule in _framework_rules() if re.search(rule.pattern, text.lower()))


def framework_labels() -> tuple[str, ...]:
    """The names of the frameworks that there are rules for."""
    return tuple(dict.fromkeys(rule.label for rule in _framework_rules()))


@cache
def _framework_rules() -> tuple[FrameworkRule, ...]:
    """Return the profile rules of all frameworks; empty sharded and fused profiles use the base."""
    return tuple(
        replace(
            rule,
            sharded_profile=rule.sharded_profile or rule.profile,
            fused_adapter_profile=rule.fused_adapter_profile or rule.adapter_profile,
        )
        for rule in _rules(FrameworkRule, "frameworks.csv")
    )


@cache
def first_run_slowdown(framework: str) -> float:
    """Return step time of the slowest published first run over the tuned one, at least 1.

    ``framework`` is a label of `planner.confidence.profile_rules`. The frameworks of the table are
    one family, whose runs differ by what is tuned, not by the name.

    >>> first_run_slowdown("NeMo"), first_run_slowdown("HF Trainer")
    (5.0, 1.0)
    """
    return max(_first_runs(framework), default=1.0)


@cache
def usual_first_run_slowdown(framework: str) -> float:
    """Return the median step time of published first runs over the tuned one, at least 1.

    >>> usual_first_run_slowdown("NeMo"), usual_first_run_slowdown("HF Trainer")
    (2.0, 1.0)
    """
    return median(_first_runs(framework) or [1.0])


def _first_runs(framework: str) -> list[float]:
    """Return how many times as long first runs took; empty for frameworks of other families."""
    rows = read_table("first_runs.csv")
    if framework not in {row["framework"] for row in rows}:
        return []
    return [float(row["slower"]) for row in rows]


def is_first_run(tuned: bool | None, objective: TrainingObjective) -> bool:
    """Return whether a run is untuned: as ``tuned`` specifies, else if it is fine-tuning.

    Pretraining is planned for months and tuned before it starts.
    """
    return objective is not TrainingObjective.PRETRAIN if tuned is None else not tuned


@record(kw_only=True)
class EngineRule:
    """Which profile stands for an engine; ``nearest``: it is only the closest to it.

    ``version`` is a pattern of versions it holds for; a run without a version is taken to
    have one of them ``until`` this year. ``gpu`` and ``mode`` are patterns of the devices and
    of the modes of runs that it holds for. ``stages``: how those of its pipelines work on a
    static batch. ``all_logits``: bytes of a logit where those of whole prompts are computed.
    """

    label: str
    profile: str
    pattern: str = ""
    mode: str = ""
    gpu: str = ""
    version: str = ""
    until: int | None = None
    nearest: bool = False
    stages: str = ""
    all_logits: float = 0.0

    def matches(self, engine: str, version: str, year: float | None, gpu: str, mode: str) -> bool:
        """Return whether the rule applies to an engine version, year, GPU and mode."""
        checks = ((self.pattern, engine.lower()), (self.gpu, gpu), (self.mode, mode))
        if not all(re.search(pattern, text) for pattern, text in checks):
            return False
        if not self.version:
            return True
        if version:
            return re.search(self.version, version) is not None
        return year is not None and self.until is not None and year <= self.until


@cache
def engine_rule(
    engine: str, version: str = "", year: float | None = None, gpu: str = "", mode: str = ""
) -> EngineRule:
    """Return the first rule that matches an engine; the last rule matches all."""
    run = (engine, version, year, gpu, mode)
    return next(rule for rule in _engine_rules() if rule.matches(*run))


def engine_labels() -> tuple[str, ...]:
    """The names of the engines that there are rules for."""
    return tuple(dict.fromkeys(rule.label for rule in _engine_rules()))


def rule_of_profile(engine: EngineProfile, gpu: str) -> EngineRule:
    """Return the rule that an engine profile names.

    Of rules whose label that is, the last one: those before it are of some devices, or older. Of a
    name that no label is, a number behind it is a version.
    """
    named = [rule for rule in _engine_rules() if rule.label == engine.name]
    if named:
        return named[-1]
    name, _, version = engine.name.rpartition(" ")
    if not name or not version[:1].isdecimal():
        name, version = engine.name.replace(" ", "-"), ""
    return engine_rule(name, version, gpu=gpu)


@cache
def _engine_rules() -> tuple[EngineRule, ...]:
    return tuple(_rules(EngineRule, "engines.csv"))
