"""Cases of runs of any kind, and the prediction for a case."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Self

from planner.base.records import record
from planner.confidence.error_classes import gpu_class, has_experts
from planner.confidence.evidence import Conditions
from planner.confidence.intervals import MemoryErrors, Rule
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import ClusterSpec, GpuSpec
from planner.specs.model import ModelSpec

RATES = (*terms_about("rate"), "total_tokens_per_s")
"""Quantities that are larger where a run is faster."""
MEMORY = "peak_memory_gib"


@record(kw_only=True)
class Case(ABC):
    """A run as input of the estimator; measurements are never read."""

    model: ModelSpec
    gpu: GpuSpec
    cluster: ClusterSpec
    catalogue: Catalogue = field(default_factory=Catalogue)

    @property
    @abstractmethod
    def software(self) -> Rule:
        """The rule of its framework or engine."""

    @property
    @abstractmethod
    def group(self) -> Hashable:
        """Cases of one group are predicted in one pass."""

    @property
    def setup(self) -> Hashable:
        """Key of the setup; cases of one setup differ only in the intensity of their traffic."""
        return self.group

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """Kind of the run; errors of runs of one kind are pooled."""

    @property
    @abstractmethod
    def memory_errors(self) -> MemoryErrors:
        """Distribution of needed over predicted memory for runs of this kind."""

    @property
    @abstractmethod
    def conditions(self) -> Conditions:
        """The conditions of the run that decide how much evidence there is."""

    @property
    def release(self) -> str:
        """The release of its engine; "": not stated."""
        return ""

    @property
    def as_tuned(self) -> Self | None:
        """The case of the same run as fast as tuned ones; None if this one is."""
        return None

    @cached_property
    def gpu_class(self) -> str:
        """The GPU's generation, or its vendor."""
        return gpu_class(self.gpu)

    @cached_property
    def kind(self) -> str:
        """Dense, or a mixture of experts."""
        return "moe" if has_experts(self.model) else "dense"


@record(kw_only=True)
class Prediction:
    """Predictions for one run, by quantity in the units of the tables.

    ``reason`` says why there is no prediction, else it is empty; ``impossible`` why the run's
    columns cannot be its layout, so that the prediction is for another layout. ``tuned_values`` are
    of the same run as fast as tuned ones; empty if the values are. The memory among
    ``values`` is of the kind that the run's source reports; ``device_memory`` [bytes] is the memory
    of the whole device. The run needs ``needed_memory`` [bytes]; programs may use the ``capacity``
    [bytes]. ``fit_probability`` is the probability that it fits; ``fits``: it is high enough.
    """

    case: Case | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    tuned_values: Mapping[str, float] = field(default_factory=dict)
    device_memory: float = float("nan")
    needed_memory: float = float("nan")
    capacity: float = float("nan")
    fit_probability: float = float("nan")
    fits: bool = False
    basis: str = ""
    reason: str = ""
    impossible: str = ""


@record(kw_only=True)
class Range:
    """A predicted value with its 90 % interval."""

    value: float
    low: float
    high: float
