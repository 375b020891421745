"""NVIDIA Dynamo: the graphs that are written, and that they are read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from round_trip import lost
from serving_trip import planned

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import LaunchSettings
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob
from planner.launch.targets.dynamo import TARGET
from planner.launch.write.write_launch import make_launch
from planner.question.request import Request

POOLS = {
    "tensor_parallel": 2,
    "quantization": "fp8",
    "kv_cache": "fp8",
    "concurrency": 64,
    "prefill_replicas": 2,
    "prefill_tensor_parallel": 1,
}
ENGINES = ("vllm", "sglang", "tensorrt-llm")


def graph_of(job: LaunchJob) -> dict[str, Any]:
    (file,) = TARGET.make_draft(job).files
    graph = yaml.safe_load(file.text)
    assert isinstance(graph, dict)
    return graph


def component(graph: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in graph["spec"]["components"] if one["name"] == name]
    assert isinstance(found, dict)
    return found


def arguments(graph: dict[str, Any], name: str) -> list[str]:
    (container,) = component(graph, name)["podTemplate"]["spec"]["containers"]
    assert all(isinstance(word, str) for word in container["args"])
    return list(container["args"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_of_pools(engine: str) -> None:
    job = planned(model="llama-3.1-8b", engine=engine, mode="disaggregated", settings=POOLS)
    graph = graph_of(job)
    assert graph["kind"] == "DynamoGraphDeployment"
    kinds = [(one["type"], one["replicas"]) for one in graph["spec"]["components"]]
    assert kinds == [("frontend", 1), ("prefill", 2), ("decode", 3)]
    for pool, gpus in (("prefill", "1"), ("decode", "2")):
        (container,) = component(graph, pool)["podTemplate"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": gpus}
        words = arguments(graph, pool)
        assert words[words.index("--disaggregation-mode") + 1] == pool
        assert words.count("--kv-transfer-config") == (1 if engine == "vllm" else 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_a_graph_is_read_again(engine: str, mode: str, tmp_path: Path) -> None:
    asked = POOLS if mode == "disaggregated" else {"tensor_parallel": 4, "concurrency": 32}
    if engine == "tensorrt-llm":  # types of weights are the checkpoint's
        asked = {**asked, "quantization": "w16a16"}
    job = planned(model="llama-3.1-8b", engine=engine, mode=mode, settings=asked)
    (file,) = TARGET.make_draft(job).files
    path = tmp_path / file.name
    path.write_text(file.text)
    read = read_launch(path)
    wrong = lost(TARGET, job, LaunchSettings(workload="serve", values=read.values))
    # Graphs have no more of the table than pools; compare what the engines' words say.
    for name in ("tensor_parallel", "concurrency", "kv_cache", "num_gpus", "replicas"):
        if name in job.saved_plan.parameters:
            assert str(read.values[name]) == str(job.saved_plan.parameters[name]), name
    assert not wrong
    assert read.values["mode"] == mode
    if mode == "disaggregated":
        assert str(read.values["prefill_tensor_parallel"]) == "1"
        assert int(read.values["prefill_replicas"]) == 2


def test_workers_of_several_nodes() -> None:
    asked = {"tensor_parallel": 8, "pipeline_parallel": 2, "concurrency": 32}
    job = planned(model="deepseek-v3", engine="vllm", num_gpus=16, settings=asked)
    worker = component(graph_of(job), "serve")
    assert worker["multinode"] == {"nodeCount": 2}
    # The operator says which node is which.
    assert "--nnodes" not in arguments(graph_of(job), "serve")


def test_what_the_engine_cannot_say_and_what_is_to_be_replaced() -> None:
    asked = {"tensor_parallel": 8, "quantization": "w4a16"}
    job = planned(model="llama-3.1-70b", engine="vllm", draft_tokens=2, settings=asked)
    draft = TARGET.make_draft(job)
    assert [one.parameter for one in draft.unexpressed] == ["checkpoint_quantization"]
    notes = " ".join(draft.notes)
    assert "Replace MODEL" in notes
    assert "Replace DRAFT_MODEL" in notes
    words = arguments(graph_of(job), "serve")
    assert words[words.index("--spec-model") + 1] == "DRAFT_MODEL"


def test_a_worker_whose_type_alone_tells_its_pool(tmp_path: Path) -> None:
    job = planned(model="llama-3.1-8b", engine="vllm", mode="disaggregated", settings=POOLS)
    graph = graph_of(job)
    for pool in ("prefill", "decode"):
        (container,) = component(graph, pool)["podTemplate"]["spec"]["containers"]
        words = container["args"]
        place = words.index("--disaggregation-mode")
        container["args"] = words[:place] + words[place + 2 :]
    path = tmp_path / "graph.yaml"
    path.write_text(yaml.safe_dump(graph))
    values = read_launch(path).values
    assert (values["mode"], values["prefill_replicas"]) == ("disaggregated", 2)


def test_a_graph_needs_no_other_document_around_it() -> None:
    request = Request(
        workload="serve", model="llama-3.1-8b", gpu="h100-sxm", engine="vllm", num_gpus=1
    )
    launch = make_launch(request, "dynamo", "kubernetes")
    assert launch.starts == ("kubectl apply -f graph.yaml", "bash benchmark.sh")
    for wrapper in ("slurm", "kserve"):
        with pytest.raises(LaunchError, match=f"leave --wrapper {wrapper} out"):
            make_launch(request, "dynamo", wrapper)
    assert [file.name for file in launch.files] == ["graph.yaml", "benchmark.sh", "plan.toml"]
    assert "kubectl apply -f graph.yaml" in launch.starts
