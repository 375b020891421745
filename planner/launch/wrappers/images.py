"""Containers: the image of a target and what a pod runs in it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.launch.environment import environment_of
from planner.launch.job import Job
from planner.launch.target import Draft, Process, Target
from planner.launch.wrappers.placing import Placed
from planner.launch.wrappers.script import STRICT
from planner.launch.wrappers.shell import MASTER_PORT, arguments_lines, asked, command, exports
from planner.shell.quoting import shell_word

FOLDER = "/launch"
"""Where the files beside the commands are mounted."""
CLAIM = "/data"
"""Where a job that trains finds data and leaves checkpoints."""
_WORK = "/tmp/launch"

# Official images and how their tags name a version.
# docs.vllm.ai, deployment/docker; docs.sglang.io, installation; nvidia.github.io/TensorRT-LLM,
# installation/containers; ggml-org/llama.cpp, docs/docker.md.
_IMAGES = {
    "vllm": "vllm/vllm-openai:v{}",
    "sglang": "lmsysorg/sglang:v{}",
    "tensorrt-llm": "nvcr.io/nvidia/tensorrt-llm/release:{}",
    "llama-server": "ghcr.io/ggml-org/llama.cpp:server-cuda-{}",
}
# Programs that are in no image of their target: vLLM's router has images of its own, tagged by day.
_PROGRAMS = {"vllm-router": "vllm/vllm-router:<nightly tag>"}
_AMD_IMAGES = {"vllm": "rocm/vllm:<tag for {}>", "sglang": "lmsysorg/sglang:<ROCm tag of v{}>"}
# What Kubernetes itself would replace in arguments: $(NAME), and $$ by one $.
_REFERENCE = re.compile(r"\$(?=\$|\([\w.-]+\))")
_VERSION = re.compile(r"\b(?:b\d{3,}|\d+\.\d+(?:\.\w+)*)\b")
_RESOURCES = {
    "NVIDIA": "nvidia.com/gpu",
    "AMD": "amd.com/gpu",
    "Intel": "habana.ai/gaudi",
    "Google": "google.com/tpu",
    "AWS": "aws.amazon.com/neuron",
}
_HEALTH = ("vllm", "sglang", "tensorrt-llm", "llama-server")


def image_of(target: Target, job: Job, process: Process) -> str:
    """The official image that has the program, else a text that no registry takes for one."""
    if (own := _PROGRAMS.get(_program(process))) is not None:
        return own
    known = (_AMD_IMAGES if job.gpu.vendor == "AMD" else _IMAGES).get(target.name)
    version = _VERSION.search(target.version)
    if known is None or version is None:
        return f"<image with {target.version}>"
    return known.format(version[0])


def _program(process: Process) -> str:
    """The first word of a process."""
    words = [word for one in process.arguments for word in one.words]
    return words[0] if words and isinstance(words[0], str) else ""


def gpu_resource(job: Job) -> str:
    """What a cluster of the vendor's GPUs calls one of them."""
    return _RESOURCES.get(job.gpu.vendor, "nvidia.com/gpu")


def _working_folder() -> list[str]:
    return [
        f"# {FOLDER} is read-only, and some programs write where they run.",
        f"mkdir -p {_WORK} && cp -rL {FOLDER}/* {_WORK}",
        f"cd {_WORK}",
    ]


def answers_health(target: Target, process: Process) -> bool:
    """Whether ``/health`` of the process tells that it serves."""
    return bool(process.port and process.gpus_per_node and target.name in _HEALTH)


def pod_script(
    target: Target,
    job: Job,
    draft: Draft,
    process: Process,
    given: Mapping[str, str],
    links: tuple[Placed, ...],
    names: Mapping[str, str],
) -> str:
    """What ``bash -c`` runs in a pod.

    ``given`` are variables with the shell's words for them: the place in the job. ``links`` are
    the copies that the process reaches, ``names`` how the cluster calls their processes.
    """
    lines = [*STRICT, *(_working_folder() if draft.files else [])]
    lines += exports(environment_of(target, job, process))
    lines += asked([process])
    if process.num_nodes > 1:
        lines += [f"export NUM_NODES={process.num_nodes} MASTER_PORT={MASTER_PORT}"]
    lines += [f"export {name}={word}" for name, word in given.items()]
    lines += [f"export PORT={process.port}"] if process.port else []
    for link in links:
        name = names[link.process.name]
        host = f"{name}-{link.copy}.{name}"
        lines += [
            f"export {link.stem}_HOST_{link.copy}={shell_word(host)}",
            f"export {link.stem}_URL_{link.copy}=http://{host}:{link.process.port}",
        ]
    lines += [*arguments_lines(process), f"exec {command(process)}"]
    return _REFERENCE.sub("$$", "\n".join(lines) + "\n")
