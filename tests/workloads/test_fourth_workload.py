"""A workload that is registered gets every driver, file, comparison, advice and plan."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.base.arrays import CodeArray, FloatArray
from planner.configurations.configuration_tables import (
    ConfigurationTable,
    Rule,
    first_broken,
    is_indivisible,
    prediction_rule,
)
from planner.configurations.enumerate import OpenMesh, as_values, coded_values, single_axis
from planner.errors import SearchSpaceError
from planner.estimators.machine import Machine
from planner.layers.model import count_parameters
from planner.optimize.source import Candidates, Columns, Need, Source
from planner.question.request import Request
from planner.question.terms import glossary, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.engine import EngineProfile
from planner.specs.model import ModelSpec
from planner.workloads import registry
from planner.workloads.assumptions import PlanNotes
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.workload import (
    HardwareScenario,
    ResultWording,
    Workload,
    WorkloadQuestion,
    counts,
    evaluate_single,
    floats,
    format_parameter_column,
    repeated,
)

NAME = "score"
# Scoring knows these names of the table; a workload that is shipped stands in its column "of".
TERMS = (
    *("model", "gpu", "cluster", "space", "engine", "price", "num_gpus", "tensor_parallel"),
    *("micro_batch_size", "input_tokens", "throughput", "request_latency", "memory_headroom"),
)
SPACE = """
name = "{name}"
description = "Scoring of texts"
engine = "vllm"

[parameters]
{parameters}
"""
WIDE = "tensor_parallel = { powers_of_two_up_to = 16 }\nmicro_batch_size = [1, 4, 16, 64]"


@dataclass(frozen=True, kw_only=True)
class ScoreConfigurations(ConfigurationTable):
    """Copies of a model that read texts and write nothing."""

    workload = NAME

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    micro_batch_size: FloatArray


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What is to be scored."""

    input_tokens: int


@dataclass(frozen=True, kw_only=True)
class ScoreSetting:
    """What is the same for all configurations."""

    machine: Machine
    model: ModelSpec
    profile: EngineProfile
    workload: Texts


RULES = (
    Rule(
        name="gpu_count",
        description="tensor_parallel must divide the number of GPUs",
        violated=lambda c, _: is_indivisible(c.num_gpus, c.tensor_parallel),
    ),
    prediction_rule("host", "the host is full"),
    prediction_rule("full", "the GPU is full"),
)


@dataclass(frozen=True, kw_only=True)
class ScoreSource(Source):
    """Scoring on one GPU with one engine."""

    inputs: ScoreSetting
    mesh: OpenMesh[ScoreConfigurations]
    counts: tuple[int, ...]
    mode: str = ""

    rules = RULES
    num_rules = 1
    block_rows = 7

    def broken(self, configurations: ScoreConfigurations) -> CodeArray:
        """The first rule that each breaks."""
        return first_broken(RULES[:1], configurations, None)

    def judged(
        self, configurations: ScoreConfigurations, broken: CodeArray | None = None
    ) -> Scores:
        """Two FLOPs per weight and token, at half the peak; a byte per token and layer."""
        c, setting = configurations, self.inputs
        codes = self.broken(c) if broken is None else broken
        gpu, size = setting.machine.gpu, count_parameters(setting.model).total
        tokens = setting.workload.input_tokens * c.micro_batch_size
        time = 1e-3 + 2 * size * tokens / (0.5 * gpu.peak_flops["fp16"] * c.tensor_parallel)
        need = 2 * size / c.tensor_parallel + 1e5 * tokens
        codes = np.where((codes == 0) & (need > gpu.allocatable_memory), np.int8(3), codes)
        return Scores(source=self, configurations=c, rejected_by=codes, time=time, need=need)


@dataclass(frozen=True, kw_only=True)
class Scores(Candidates):
    """Predictions of scoring."""

    source: ScoreSource
    configurations: ScoreConfigurations
    rejected_by: CodeArray
    time: FloatArray
    need: FloatArray

    @property
    def memory(self) -> tuple[Need, Need]:
        """Nothing of the host's, the weights and tokens of the GPU's."""
        return (np.zeros(()), np.inf), (
            self.need,
            self.source.inputs.machine.gpu.allocatable_memory,
        )

    @property
    def num_gpus(self) -> FloatArray:
        """GPUs of all copies."""
        return self.configurations.num_gpus

    @property
    def request_latency(self) -> FloatArray:
        """Seconds of a batch."""
        return self.time

    @property
    def memory_headroom(self) -> FloatArray:
        """Bytes that stay free."""
        return self.source.inputs.machine.gpu.allocatable_memory - self.need

    @property
    def throughput(self) -> FloatArray:
        """Texts per second."""
        c = self.configurations
        return c.micro_batch_size * c.num_gpus / c.tensor_parallel / self.time

    def columns(self) -> Columns:
        """Where it runs, its configuration, its predictions."""
        c, shape, source = self.configurations, self.shape, self.source
        return {
            **repeated(source.named, shape),
            "num_gpus": counts(c.num_gpus, shape),
            **{
                name: format_parameter_column(name, getattr(c, name), shape)
                for name in c.names()[1:]
            },
            "request_latency_s": floats(self.time, shape),
            "requests_per_s": floats(self.throughput, shape),
            "peak_memory_gib": floats(self.need / 2**30, shape),
            "memory_headroom_gib": floats(self.memory_headroom / 2**30, shape),
            "memory_weights_gib": floats(self.need / 2**30, shape),
            "host_memory_gib": floats(0.0, shape),
        }


def ask(request: Request, catalogue: Catalogue, notes: PlanNotes) -> WorkloadQuestion:
    return WorkloadQuestion(
        request=request,
        model=catalogue.load_model(request.model),
        work=Texts(input_tokens=request.input_tokens or 512),
        counts=tuple(gpu_counts(request.num_gpus)),
        space=(request.space or "score", None),
    )


def sources(scene: HardwareScenario) -> list[Source]:
    question = scene.question
    said = {"tensor_parallel": 1, "micro_batch_size": 1}
    said |= {**scene.space.parameters, **question.request.settings}
    said["num_gpus"] = list(question.counts)
    kind = ScoreConfigurations
    return [
        ScoreSource(
            inputs=ScoreSetting(
                machine=scene.place.machine,
                model=question.model,
                profile=scene.profile,
                workload=question.work,
            ),
            mesh=OpenMesh(
                kind=kind,
                axes=[
                    [single_axis(kind, name, coded_values(name, as_values(said[name], {})))]
                    for name in said
                ],
            ),
            counts=question.counts,
        )
    ]


SCORE = Workload(
    name=NAME,
    profile_kind="engine",
    single="score_single",
    ask=ask,
    sources=sources,
    objectives=lambda _: ("throughput", "request_latency"),
    ideal=lambda profile: profile,
    reproducing_answers=lambda source: {"gpu": source.gpu, "engine": source.profile},
    evaluate_once=evaluate_single,
    wording=ResultWording(
        noun="way",
        question_lines=lambda setting: [f"Texts of {setting.workload.input_tokens} tokens"],
        format_short=lambda row: f"tp{row['tensor_parallel']}",
        broken_rule_text=lambda *_: "",
        results=lambda _: ("requests_per_s", "request_latency_s"),
        of_objective={"throughput": "requests_per_s", "request_latency": "request_latency_s"},
    ),
)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder with the spaces of scoring, while it is registered."""
    for name in TERMS:
        term = glossary()[name]
        monkeypatch.setitem(glossary(), name, dataclasses.replace(term, of=(*term.of, NAME)))
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    registry.register(SCORE)
    spaces = tmp_path / "spaces"
    spaces.mkdir()
    for name, parameters in (("score", WIDE), ("score_single", "")):
        text = SPACE.format(name=name, parameters=parameters)
        (spaces / f"{name}.toml").write_text(text, encoding="utf-8")
    terms_of.cache_clear()
    yield tmp_path
    terms_of.cache_clear()


def asked(folder: Path, **request: Any) -> dict[str, Any]:
    plain = {"workload": NAME, "model": "llama-2-13b", "gpu": "h100-sxm-80gb", "num_gpus": 8}
    return {**plain, "specs": folder, **request}


def words(folder: Path, *more: str, command: str = "search") -> tuple[str, ...]:
    plain = (command, "--workload", NAME, "--model", "llama-2-13b", "--specs", str(folder))
    return (*plain, *more)


def test_both_drivers_find_the_best_of_all(folder: Path) -> None:
    seen: list[pd.DataFrame] = []
    request = asked(folder, objectives=("throughput",))
    whole = planner.search(**request, sink=lambda table: seen.append(pd.DataFrame(table)))
    rows = pd.concat(seen)
    assert len(rows) == whole.configurations_feasible == 16
    assert whole.configurations_evaluated == 20
    assert whole.rejected_by == {"gpu_count": 4}
    assert whole.configurations_predicted == 16
    best = rows["requests_per_s"].max()
    sampled = planner.search(**request, driver="optuna", trials=40)
    for found in (whole, sampled):
        assert found.table["requests_per_s"][0] == pytest.approx(best)


def test_gpus_and_engines_are_compared(folder: Path) -> None:
    gpus = ("h100-sxm-80gb", "a100-sxm-80gb", "t4-16gb")
    found = planner.search(**asked(folder, gpu=gpus, engine=("vllm", "sglang"), num_gpus=1))
    compared = found.comparisons["gpu"]
    assert list(compared.table["gpu"]) == ["h100-sxm-80gb", "a100-sxm-80gb"]
    assert compared.without_plan == {"t4-16gb": "full"}
    assert len(found.problem.sources) == 6


def test_the_command_line_has_it_all(folder: Path, planner: Any, tmp_path: Path) -> None:
    table, plan, again = (tmp_path / name for name in ("all.csv", "plan.toml", "again.json"))
    asked = words(folder, "--gpu", "h100", "--gpus", "8")
    ran = planner(*asked, "--all", "--csv", table, "--save-plan", plan)
    assert ran.exit_code == 0, ran.err
    assert "Texts of 512 tokens" in ran.out
    assert "RECOMMENDED  " in ran.out
    whole = planner(*asked, "--full")
    assert "The recommended way" in whole.out
    rows = pd.read_csv(table)
    assert len(rows) == 16
    assert planner("estimate", "--plan", plan, "--specs", folder, "--json", again).exit_code == 0
    (row,) = json.loads(again.read_text())["rows"]
    assert row["requests_per_s"] == rows["requests_per_s"].max()
    found = re.search(r"planner (estimate (?:[^\\\n]|\\\n)*)", ran.out)
    assert found is not None
    printed = planner(*found[1].replace("\\\n", " ").split(), "--full")
    assert printed.exit_code == 0, printed.err
    assert (
        whole.out.partition("Speed")[2].splitlines()[1:4]
        == (printed.out.partition("Speed")[2].splitlines()[1:4])
    )


def test_advice_is_tried(folder: Path, planner: Any) -> None:
    asked = words(folder, "--model", "llama-2-70b", "--gpu", "h100", "--gpus", "1")
    ran = planner(*asked)
    assert ran.exit_code == 4
    assert re.search(r"need more than [\d.]+ GiB \(nearest: 12\d\.\d GiB, tp1\)", ran.err)
    tried = re.search(r"Try --gpus (\d+)", ran.err)
    assert tried is not None
    assert planner(*asked[:-1], tried[1]).exit_code == 0
    late = planner(*words(folder, "--gpu", "h100", "--gpus", "8", "--latency", "2ms"))
    assert late.exit_code == 4
    limit = re.search(r"Try --latency ([\d.]+ms)", late.err)
    assert limit is not None, late.err
    assert (
        planner(*words(folder, "--gpu", "h100", "--gpus", "8", "--latency", limit[1])).exit_code
        == 0
    )


def test_it_is_unknown_where_it_is_not_registered() -> None:
    assert NAME not in registry.workload_names()
    assert not terms_of(NAME, "parameter")
    with pytest.raises(SearchSpaceError, match="Unknown workload 'score'"):
        planner.search(workload=NAME, model="llama-2-13b", num_gpus=8)
