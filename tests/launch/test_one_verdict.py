"""One question has one answer, wherever its GPU and its release are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from make_public_launches import Case, cases

from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchFile
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import readers

VLLM = "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2"
_POD = """\
      containers:
      - name: server
        image: vllm/vllm-openai:latest
        command: ["/bin/sh", "-c"]
        args: ["vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2"]
        resources: {limits: {nvidia.com/gpu: "2"}}
"""
_DEPLOYMENT = (
    """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  replicas: 1
  template:
    spec:
      nodeSelector: {LABEL: WORD}
"""
    + _POD
)
_AFFINITY = (
    """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: nvidia.com/gpu.product, operator: In, values: [WORD]}
"""
    + _POD
)


def _deployment(label: str, word: str) -> str:
    return _DEPLOYMENT.replace("LABEL", label).replace("WORD", word)


WRAPPERS = {
    "product": ("pod.yaml", _deployment("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")),
    "gke": ("pod.yaml", _deployment("cloud.google.com/gke-accelerator", "nvidia-h100-80gb")),
    "instance": ("pod.yaml", _deployment("node.kubernetes.io/instance-type", "p5.48xlarge")),
    "karpenter": ("pod.yaml", _deployment("karpenter.k8s.aws/instance-gpu-name", "h100")),
    "small": ("pod.yaml", _deployment("cloud.google.com/gke-accelerator", "nvidia-l4")),
    "a100": ("pod.yaml", _deployment("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB")),
    "affinity": ("pod.yaml", _AFFINITY.replace("WORD", "NVIDIA-H100-80GB-HBM3")),
    "kubeai": (
        "model.yaml",
        "apiVersion: kubeai.org/v1\nkind: Model\nmetadata: {name: m}\nspec:\n"
        "  features: [TextGeneration]\n  url: hf://Qwen/Qwen3-32B\n  engine: VLLM\n"
        "  args: [--tensor-parallel-size=2]\n  resourceProfile: nvidia-gpu-h100:2\n",
    ),
    "skypilot": (
        "task.yaml",
        f"resources:\n  accelerators: H100:2\nrun: |\n  {VLLM}\n",
    ),
    "dstack": (
        "service.yaml",
        f"type: service\nname: m\ncommands:\n  - {VLLM}\nport: 8000\nresources:\n  gpu: H100:2\n",
    ),
    "slurm": ("job.sh", f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:h100:2\n{VLLM}\n"),
    "kserve": (
        "service.yaml",
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: m}\n"
        "spec:\n  predictor:\n    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n"
        "    model:\n      modelFormat: {name: huggingface}\n"
        "      args: [--model_id=Qwen/Qwen3-32B, --tensor-parallel-size=2]\n"
        "      resources: {limits: {nvidia.com/gpu: '2'}}\n",
    ),
    "kaito": (
        "workspace.yaml",
        "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nmetadata: {name: m}\n"
        "resource: {instanceType: Standard_NC80adis_H100_v5}\n"
        "inference: {preset: {name: qwen2.5-coder-32b-instruct}}\n",
    ),
}  # fmt: skip
WRAPPERS |= {
    "kserve-llm": (
        "service.yaml",
        "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nmetadata: {name: m}\n"
        "spec:\n  model: {uri: hf://Qwen/Qwen3-32B, name: Qwen/Qwen3-32B}\n"
        "  parallelism: {tensor: 2}\n  template:\n"
        "    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n"
        "    containers:\n    - name: main\n      resources: {limits: {nvidia.com/gpu: '2'}}\n",
    ),
    "production-stack": (
        "values.yaml",
        "servingEngineSpec:\n  modelSpec:\n  - name: m\n    repository: vllm/vllm-openai\n"
        "    modelURL: Qwen/Qwen3-32B\n    replicaCount: 1\n    requestGPU: 2\n"
        "    vllmConfig: {tensorParallelSize: 2}\n    nodeSelectorTerms:\n"
        "    - matchExpressions:\n"
        "      - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3]}\n",
    ),
    "dynamo": (
        "graph.yaml",
        "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: m}\n"
        "spec:\n  services:\n    worker:\n      componentType: worker\n      replicas: 1\n"
        "      resources: {limits: {gpu: '2'}}\n      extraPodSpec:\n"
        "        nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}\n"
        "        mainContainer:\n          command: [python3, -m, dynamo.vllm]\n"
        "          args: [--model, Qwen/Qwen3-32B, --tensor-parallel-size, '2']\n",
    ),
    "llm-d": (
        "values.yaml",
        "modelArtifacts: {uri: hf://Qwen/Qwen3-32B, name: Qwen/Qwen3-32B}\n"
        "accelerator: {type: nvidia}\ndecode:\n  replicas: 1\n"
        "  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n"
        "  parallelism: {tensor: 2}\n  containers:\n  - name: vllm\n    modelCommand: vllmServe\n"
        "    resources: {limits: {nvidia.com/gpu: '2'}}\n",
    ),
}


def _on_named_gpu(path: Path, imported: ImportedLaunch) -> ImportedLaunch:
    return read_launch(path, gpu=str(imported.values["gpu"]))


@pytest.mark.parametrize("name", WRAPPERS)
def test_defaults_are_those_of_the_gpu_that_a_wrapper_names(name: str, tmp_path: Path) -> None:
    file, text = WRAPPERS[name]
    path = tmp_path / file
    path.write_text(text, encoding="utf-8")
    imported = read_launch(path)
    assert imported.values.get("gpu"), "its GPU is not read"
    named = _on_named_gpu(path, imported)
    assert imported.values == named.values
    assert imported.defaults == named.defaults
    large = name not in ("small", "a100")
    assert imported.values["concurrency"] == (1024 if large else 256)
    assert imported.values["max_num_batched_tokens"] == (8192 if large else 2048)


PUBLIC = [case for case in cases() if not case.refused and case.target in readers()]


@pytest.mark.parametrize("case", PUBLIC, ids=lambda case: case.name)
def test_a_public_file_that_names_its_gpu_is_read_as_on_it(case: Case) -> None:
    imported = read_launch(case.path)
    if "gpu" in imported.values:
        assert _on_named_gpu(case.path, imported).values == imported.values


RELEASES = ("0.6.4", "0.7.3", "0.8.5", "0.11.0", "0.17.1", "0.28.0")
GPUS = ("rtx3090", "a100", "h100", "b200", "mi300x")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("gpu", GPUS)
def test_a_release_is_the_same_wherever_it_is_named(gpu: str, release: str, tmp_path: Path) -> None:
    model, longest = "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len 20000"
    texts = {
        "pin": f"pip install vllm=={release}\nvllm serve {model} {longest}\n",
        "tag": f"docker run --gpus 1 vllm/vllm-openai:v{release} --model {model} {longest}\n",
        "flag": f"vllm serve {model} {longest} --tensor-parallel-size 1\n",
    }
    found = {}
    for name, text in texts.items():
        path = tmp_path / f"{name}.sh"
        path.write_text(text, encoding="utf-8")
        asked = {"gpu": gpu, "num_gpus": "1"}
        asked |= {"engine_version": release} if name == "flag" else {}
        question = LaunchFile(path=path, answers=asked).question().request
        found[name] = (
            question.engine, question.settings, question.max_model_len, question.max_num_seqs,
        )  # fmt: skip
    assert found["flag"] == found["pin"] == found["tag"]
