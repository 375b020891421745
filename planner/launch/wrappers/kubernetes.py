"""Manifests of Kubernetes: jobs that end, servers that stay, groups of pods, services of KServe."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.text import shell_word
from planner.documents.writing import documents
from planner.errors import LaunchError
from planner.launch.target import (
    Argument,
    Draft,
    File,
    Job,
    Process,
    Target,
    Value,
    Variable,
    filled,
)
from planner.launch.wrappers.script import (
    MASTER_PORT,
    MEASURES,
    SOME_STEPS,
    Placed,
    arguments_lines,
    asked,
    benchmark,
    command,
    exports,
    placed,
    reaches,
    runs_by_rank,
    uses,
)
from planner.launch.write import environment_of, heading, variables_of

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
    "Huawei": "huawei.com/Ascend910",
}
_HEALTH = ("vllm", "sglang", "tensorrt-llm", "llama-server")


def image_of(target: Target, job: Job, process: Process) -> str:
    """The official image that has the program, else a text that no registry takes for one."""
    first = next((word for one in process.arguments for word in one.words), "")
    if isinstance(first, str) and first in _PROGRAMS:
        return _PROGRAMS[first]
    known = (_AMD_IMAGES if job.gpu.vendor == "AMD" else _IMAGES).get(target.name)
    version = _VERSION.search(target.version)
    if known is None or version is None:
        return f"<image with {target.version}>"
    return known.format(version[0])


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
    reached: list[dict[str, Value]] = []
    for link in links:
        name = names[link.process.name]
        host = f"{name}-{link.copy}.{name}"
        reached.append(
            {
                "stem": link.stem,
                "copy": link.copy,
                "host": host,
                "host_word": shell_word(host),
                "port": link.process.port,
            }
        )
    values: dict[str, Value] = {
        "has_files": bool(draft.files),
        "folder": FOLDER,
        "work": _WORK,
        "environment": exports(environment_of(target, job, process)),
        "asked": asked([process]),
        "several_nodes": process.num_nodes > 1,
        "num_nodes": process.num_nodes,
        "master_port": MASTER_PORT,
        "given": [f"export {name}={word}" for name, word in given.items()],
        "port": process.port,
        "links": reached,
        "arguments": arguments_lines(process),
        "command": command(process),
    }
    return _REFERENCE.sub("$$", filled("pod.sh", values))


_LONGEST_NAME = 40
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_OF_GROUP = "leaderworkerset.sigs.k8s.io/name"
_SECRET = re.compile(r".*_(?:TOKEN|KEY|SECRET|PASSWORD)")
_HUB_TOKEN = "HF_TOKEN"

Object = dict[str, object]


def wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """One manifest of everything, and one that measures the job, or a script.

    Raises
    ------
    LaunchError
        A launcher needs to reach other nodes by itself, which pods cannot.
    """
    manifest = _file(Manifest(target, job, draft), is_benchmark=False)
    if not job.is_training:
        return (manifest, *benchmark(target, job, draft))
    steps = (
        # Its settings are objects of their own, so that neither file changes the other's.
        Manifest(target, job, Draft(processes=(one,), files=draft.files), part=f"-{one.name}")
        for one in draft.benchmark
    )
    return (manifest, *(_file(one, is_benchmark=True) for one in steps))


def _file(manifest: Manifest, *, is_benchmark: bool) -> File:
    target, job, draft = manifest.target, manifest.job, manifest.draft
    names = [process.name for process in draft.processes]
    name = f"{names[0] if len(names) == 1 else 'launch'}.yaml"
    how = [*([SOME_STEPS] if is_benchmark else []), f"  kubectl apply -f {name}"]
    ports = [one for one in draft.processes if one.port]
    if draft.benchmark and ports:
        last = ports[-1]
        service = f"service/{manifest.name_of(last)}"
        how.append(f"  kubectl port-forward {service} {last.port}  # for the benchmark")
    told = Draft(processes=()) if is_benchmark else draft
    head = heading(target, job, told, draft.processes, how, manifest.asks())
    text = "\n".join(head) + "\n" + documents(manifest.objects())
    start = f"kubectl apply -f {name}"
    meaning = MEASURES if is_benchmark else "everything that the cluster needs"
    return File(name=name, text=text, meaning=meaning, start=start)


class Manifest:
    """The objects that a draft becomes; ``part`` ends the names of those that all pods share."""

    def __init__(self, target: Target, job: Job, draft: Draft, part: str = "") -> None:
        processes = tuple(map(_on_claim, draft.processes))
        self.target, self.job, self.draft = target, job, replace(draft, processes=processes)
        self.places = placed(processes, job.cluster.gpus_per_node)
        self.stem = dns_label(job.model.name)
        self.shared = f"{self.stem}{part}"

    def name_of(self, process: Process) -> str:
        """How the cluster calls a process."""
        return f"{self.stem}-{dns_label(process.name)}"

    def asks(self) -> list[str]:
        """What the user does to the file and the cluster before it can run."""
        values = [one.name for one in variables_of(self.draft.processes)]
        found = []
        if values:
            found.append(f"these values: in the ConfigMap {self.shared}-settings below")
        found += self._images()
        if self.job.is_training:
            found.append(
                f"a PersistentVolumeClaim `data` with data and checkpoints, seen at {CLAIM}"
            )
        if self.job.num_nodes > 1:
            found.append("the resource of your network, such as rdma/hca, beside that of the GPUs")
        if self._secrets():
            names = ", ".join(self._secrets())
            found.append(f"the Secret {self.stem}-secrets, where it is needed: {names}")
        return found

    def _images(self) -> list[str]:
        """What is said of images that no registry has under the name written here."""
        images: dict[str, list[str]] = {}
        for process in self.draft.processes:
            images.setdefault(image_of(self.target, self.job, process), []).append(process.name)
        return [
            f"image: {image} of {', '.join(names)}, in place of what stands in <>"
            for image, names in images.items()
            if "<" in image
        ]

    def objects(self) -> list[Object]:
        """All objects, those that others name first."""
        found = self.settings()
        for process in self.draft.processes:
            found += self._of(process)
        return found

    def settings(self) -> list[Object]:
        """What the user sets, and the files beside the commands."""
        asked = variables_of(self.draft.processes)
        plain = {one.name: one.default or "" for one in asked if not _SECRET.fullmatch(one.name)}
        files = {file.name.replace("/", "."): file.text for file in self.draft.files}
        parts = (("settings", plain), ("files", files))
        return [
            {**self._head("v1", "ConfigMap", f"{self.shared}-{end}"), "data": data}
            for end, data in parts
            if data
        ]

    def pod(self, process: Process, given: Mapping[str, str], *, answers: bool) -> Object:
        """The specification of a pod that runs a process; ``answers`` requests of others."""
        volumes: list[Object] = [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            *([self._files()] if self.draft.files else []),
        ]
        if self.job.is_training:
            claim = {"persistentVolumeClaim": {"claimName": "data"}}
            volumes.append({"name": "data", **claim})
        # The addresses of services as variables would collide with those of the programs.
        return {
            "enableServiceLinks": False,
            "containers": [self.container(process, given, answers=answers)],
            "volumes": volumes,
        }

    def container(self, process: Process, given: Mapping[str, str], *, answers: bool) -> Object:
        """The container of a process."""
        links = tuple(reaches(process, self.places))
        names = {one.name: self.name_of(one) for one in self.draft.processes}
        script = pod_script(self.target, self.job, self.draft, process, given, links, names)
        mounts = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
        mounts += [{"name": "files", "mountPath": FOLDER}] if self.draft.files else []
        mounts += [{"name": "data", "mountPath": CLAIM}] if self.job.is_training else []
        found: Object = {
            "name": dns_label(process.name),
            "image": image_of(self.target, self.job, process),
            "command": ["/bin/bash", "-c"],
            "args": [script],
            "env": self._environment(process),
        }
        if any(not _SECRET.fullmatch(one.name) for one in variables_of([process])):
            found["envFrom"] = [{"configMapRef": {"name": f"{self.shared}-settings"}}]
        if process.port and answers:
            found["ports"] = [{"name": "http", "containerPort": process.port}]
            # Of these ``/health`` tells that they serve.
            if process.gpus_per_node and self.target.name in _HEALTH:
                found["readinessProbe"] = {
                    "httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10,
                }  # fmt: skip
        if process.gpus_per_node:
            resource = _RESOURCES.get(self.job.gpu.vendor, _RESOURCES["NVIDIA"])
            found["resources"] = {"limits": {resource: process.gpus_per_node}}
        found["volumeMounts"] = mounts
        return {key: value for key, value in found.items() if value != []}

    def _of(self, process: Process) -> list[Object]:
        if process.num_nodes > 1 and runs_by_rank(process):
            raise LaunchError(
                f"{process.launcher} starts ranks on other nodes itself, which pods do not let it: "
                "choose --wrapper slurm, or a plan of one node."
            )
        if self.job.is_training:
            return self._job(process)
        if process.num_nodes > 1:
            return self._group(process)
        is_reached = any(
            place.process is process for one in self.draft.processes
            for place in reaches(one, self.places)
        )  # fmt: skip
        if is_reached or uses(process, "COPY"):
            return self._replicas(process, "StatefulSet")
        return self._replicas(process, "Deployment")

    def _job(self, process: Process) -> list[Object]:
        """A job whose pods know their number, and the service that gives them names."""
        name, nodes = self.name_of(process), process.num_nodes
        given = {"NODE_RANK": '"$JOB_COMPLETION_INDEX"', "MASTER_ADDR": f"{name}-0.{name}"}
        pod = self.pod(process, given if nodes > 1 else {}, answers=False)
        pod |= {"restartPolicy": "Never"}
        if nodes > 1:
            pod |= {"subdomain": name}
        # An interruption fails the pods of all nodes.
        failures = math.ceil(2 * float(self.job["interruptions"] or 0)) + 3
        spec: Object = {"backoffLimit": nodes * failures}
        if nodes > 1:
            spec |= {"completionMode": "Indexed", "completions": nodes, "parallelism": nodes}
        spec["template"] = {"metadata": {"labels": {"app": name}}, "spec": pod}
        found: Object = {**self._head("batch/v1", "Job", name), "spec": spec}
        return [self._service(name, {"app": name}, None), found] if nodes > 1 else [found]

    def _replicas(self, process: Process, kind: str) -> list[Object]:
        """Copies of one pod and the service before them."""
        name = self.name_of(process)
        given = {"COPY": '"${HOSTNAME##*-}"'} if uses(process, "COPY") else {}
        spec: Object = {
            "replicas": process.copies,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": self.pod(process, given, answers=True),
            },
        }
        is_named = kind == "StatefulSet"
        if is_named:
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        found = {**self._head("apps/v1", kind, name), "spec": spec}
        if not process.port:
            return [found]
        return [self._service(name, {"app": name}, process.port, is_headless=is_named), found]

    def _group(self, process: Process) -> list[Object]:
        """Copies of a group of pods, one for each node."""
        name = self.name_of(process)
        given = {"NODE_RANK": '"$LWS_WORKER_INDEX"', "MASTER_ADDR": '"$LWS_LEADER_ADDRESS"'}
        labels = {"app": name, "role": "leader"}
        template: Object = {
            "size": process.num_nodes,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": {
                "metadata": {"labels": labels},
                "spec": self.pod(process, given, answers=True),
            },
            "workerTemplate": {"spec": self.pod(process, given, answers=False)},
        }
        spec = {"replicas": process.copies, "leaderWorkerTemplate": template}
        found = {
            **self._head("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name),
            "spec": spec,
        }
        if not process.port:
            return [found]
        # The set makes a service of its own name itself.
        selector = {_OF_GROUP: name, "role": "leader"}
        return [self._service(f"{name}-http", selector, process.port), found]

    def _environment(self, process: Process) -> list[Object]:
        found: list[Object] = [
            {"name": name, "valueFrom": {"secretKeyRef": {
                "name": f"{self.stem}-secrets", "key": name, "optional": name == _HUB_TOKEN}}}
            for name in self._secrets()
        ]  # fmt: skip
        if uses(process, "HOST_ADDRESS"):
            address: Object = {"fieldRef": {"fieldPath": "status.podIP"}}
            found.append({"name": "HOST_ADDRESS", "valueFrom": address})
        if uses(process, "COPY") and process.num_nodes > 1:
            field = {"fieldPath": f"metadata.labels['{_GROUP}']"}
            found.append({"name": "COPY", "valueFrom": {"fieldRef": field}})
        return found

    def _secrets(self) -> list[str]:
        names = [one.name for one in variables_of(self.draft.processes)]
        hub = [_HUB_TOKEN] if self.job.hub_name and not self.job.is_training else []
        return list(dict.fromkeys([*hub, *(name for name in names if _SECRET.fullmatch(name))]))

    def _files(self) -> Object:
        items = [
            {"key": file.name.replace("/", "."), "path": file.name} for file in self.draft.files
        ]
        return {"name": "files", "configMap": {"name": f"{self.shared}-files", "items": items}}

    def _service(
        self, name: str, selector: Mapping[str, str], port: int | None, *, is_headless: bool = True
    ) -> Object:
        spec: Object = {"selector": dict(selector)}
        if port is not None:
            spec["ports"] = [{"name": "http", "port": port, "targetPort": "http"}]
        if port is None or (is_headless and not name.endswith("-http")):
            spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
        return {**self._head("v1", "Service", name), "spec": spec}

    def _head(self, version: str, kind: str, name: str) -> Object:
        labels = {"app.kubernetes.io/part-of": self.stem}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
        }


def _on_claim(process: Process) -> Process:
    """The process with its output on the claim, where the user does not say another place."""

    def moved(argument: Argument) -> Argument:
        return replace(argument, words=tuple(map(on_claim, argument.words)))

    def on_claim(word: str | Variable) -> str | Variable:
        if isinstance(word, str) or not word.is_output or word.default is None:
            return word
        return replace(word, default=posixpath.join(CLAIM, word.default))

    return replace(process, arguments=tuple(map(moved, process.arguments)))


def dns_label(text: str) -> str:
    """A name that Kubernetes takes for objects and hosts.

    >>> dns_label("Llama 3.1 70B_Instruct")
    'llama-3-1-70b-instruct'
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    label = words[:_LONGEST_NAME].strip("-")
    return label if label[:1].isalpha() else f"m-{label}".strip("-")


_OF_KSERVE = "kserve-container"


def kserve_wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """An InferenceService of KServe, which scales and reaches one kind of server in its own way.

    Raises
    ------
    LaunchError
        The plan trains, or its servers are of several kinds or nodes.
    """
    process = _server(job, draft)
    alone = Draft(
        processes=(process,), files=draft.files, unexpressed=draft.unexpressed, left=draft.left,
        notes=draft.notes,
    )  # fmt: skip
    manifest = Manifest(target, job, alone)
    name = f"{process.name}.yaml"
    head = heading(target, job, alone, [process], [f"  kubectl apply -f {name}"], manifest.asks())
    objects = [*manifest.settings(), _service(manifest, process)]
    text = "\n".join(head) + "\n" + documents(objects)
    start = f"kubectl apply -f {name}"
    file = File(name=name, text=text, meaning="the inference service", start=start)
    return (file, *benchmark(target, job, draft))


def _server(job: Job, draft: Draft) -> Process:
    """The one server; a router before its copies is KServe's own work."""
    servers = [one for one in draft.processes if one.gpus_per_node]
    if job.is_training:
        raise LaunchError(
            "KServe serves and does not train: choose --wrapper kubernetes, slurm or script."
        )
    if len(servers) != 1 or servers[0].num_nodes > 1 or not servers[0].port:
        raise LaunchError(
            "An InferenceService has one kind of server, which fits on a node: choose "
            "--wrapper kubernetes."
        )
    if uses(servers[0], "COPY"):
        raise LaunchError(
            "KServe does not number the copies of a server, which this one asks for: choose "
            "--wrapper kubernetes."
        )
    return servers[0]


def _service(manifest: Manifest, process: Process) -> Object:
    pod = manifest.pod(process, {}, answers=True)
    pod["containers"] = [
        {**manifest.container(process, {}, answers=True), "name": _OF_KSERVE},
    ]
    predictor = {"minReplicas": process.copies, "maxReplicas": process.copies, **pod}
    metadata = {
        "name": manifest.name_of(process),
        # Every copy is a pod that stays, as the plan has it.
        "annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"},
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"predictor": predictor},
    }
