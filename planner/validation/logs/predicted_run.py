"""Predictions of a plan for the run of a log."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.base.csv_cells import Row, TypedRow
from planner.base.records import record
from planner.base.units import GIB
from planner.errors import PlannerError
from planner.optimize.result_columns import intervals
from planner.optimize.source import first_row
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec
from planner.validation.run_tables import MemoryKind, Range
from planner.validation.spec_library import Library
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import PLAN_FILE, SavedPlan
from planner.workloads.workload import Evaluation

TRAIN, STATIC, RL = "train", "inference", "rl"
# Parts of a GPU's memory that each kind of measurement does not see.
_OUTSIDE: Mapping[str, tuple[str, ...]] = {
    MemoryKind.DEVICE: (),
    MemoryKind.RESERVED: ("reserved", "communication_buffers"),
    MemoryKind.ALLOCATED: ("reserved", "communication_buffers", "fragmentation"),
}


@record(kw_only=True)
class PredictedRun:
    """A plan, and its one configuration evaluated."""

    pinned: SavedPlan
    evaluation: Evaluation
    catalogue: Catalogue

    @classmethod
    def of(cls, pinned: SavedPlan) -> PredictedRun:
        """Evaluate a saved plan again with the current specs.

        Raises SpecError, SearchSpaceError or InfeasibleError if it names unknown specs, or cannot
        be computed.
        """
        request = pinned.request()
        evaluation = evaluate(make_single_plan(request))
        return cls(pinned=pinned, evaluation=evaluation, catalogue=Catalogue(request.specs))

    @classmethod
    def read(cls, path: Path, specs: Path | None = None) -> PredictedRun:
        """Read the plan of a file, of a search or of a launch folder, and evaluate it.

        ``specs`` is a folder of the user's specs that replaces the one in the plan.

        Raises SpecError, SearchSpaceError or InfeasibleError if it is no plan, names unknown specs,
        or cannot be computed.
        """
        pinned = SavedPlan.read(path / PLAN_FILE if os.path.isdir(path) else path)
        if specs is not None:
            pinned = replace(pinned, specs_folder=str(specs.absolute()))
        return cls.of(pinned)

    @cached_property
    def row(self) -> TypedRow:
        """Its parameters and predictions, by result column."""
        return first_row({**self.evaluation.candidates.columns(), **self.evaluation.more})

    def model_differences(self, name: str) -> list[str]:
        """Say that a log names another built-in model; empty if not.

        A model that is not built in may have any name, such as that of a folder.
        """
        logged = Library(catalogue=self.catalogue).model(name) if name else None
        if logged is None or logged.name == self.model.name:
            return []
        return [f"model: {name} in the log, {self.model.name} in the plan"]

    @property
    def is_training(self) -> bool:
        """Whether it trains."""
        return self.pinned.workload == TRAIN

    @property
    def is_of_rollouts(self) -> bool:
        """Whether it trains on answers that it generates."""
        return self.pinned.workload == RL

    @property
    def inputs(self) -> Any:
        """The machine, the model, the software and the work."""
        return self.evaluation.source.inputs

    @property
    def model(self) -> ModelSpec:
        """The model that is trained or served."""
        model: ModelSpec = self.inputs.model
        return model

    @cached_property
    def ranges(self) -> Mapping[str, Range]:
        """Return predictions with their 90 % intervals, by result column."""
        confidence = self.evaluation.source.confidence_of(self.row)
        by_column = intervals(self.row, confidence)
        return {
            name: Range(value=float(self.row[name]), low=float(low), high=float(high))
            for name, (low, high) in by_column.items()
            if self.row[name] is not None
        }

    def memory(self, kind: str) -> Range:
        """Return the peak memory of the fullest GPU [GiB] as a kind of measurement counts it."""
        peak = float(self.row["peak_memory_gib"])
        measured = peak - sum(
            float(self.row.get(f"memory_{part}_gib") or 0.0) for part in _OUTSIDE[kind]
        )
        interval = self.ranges.get("peak_memory_gib", Range(value=peak, low=0.0, high=math.inf))
        factor = measured / peak
        return Range(value=measured, low=interval.low * factor, high=interval.high * factor)

    @property
    def out_of_memory(self) -> Range:
        """Return 1 if the plan is predicted to run out of memory, else 0; ends likewise."""
        capacity = self.inputs.machine.gpu.allocatable_memory / GIB
        peak = self.memory(MemoryKind.DEVICE)
        value, low, high = (float(end > capacity) for end in (peak.value, peak.low, peak.high))
        return Range(value=value, low=low, high=high)

    def at_load(
        self, concurrency: float | None, request_rate: float | None, requests: Row | None = None
    ) -> PredictedRun | None:
        """Predict the same deployment at another concurrency or request rate [1/s].

        ``requests`` are answers about the requests, such as their number. None: the deployment
        cannot sustain that load.
        """
        parameters = dict(self.pinned.parameters)
        answers = {**self.pinned.answers, **(requests or {})}
        if concurrency is not None:
            replicas = float(self.row.get("replicas") or 1)
            parameters["concurrency"] = max(round(concurrency / replicas), 1)
        elif request_rate is not None:
            parameters.pop("concurrency", None)
            answers["request_rate"] = request_rate
        else:
            return None
        pinned = replace(self.pinned, parameters=parameters, answers=answers)
        try:
            return PredictedRun.of(pinned)
        except PlannerError:
            return None
