"""Kubernetes manifests: jobs, servers, groups of pods, and services of KServe."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.edits import shell_word
from planner.documents.yaml_writer import documents, yaml_scalar, yaml_text
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    Process,
    ShellVariable,
    Value,
    fill_template,
)
from planner.launch.wrappers.write_script import (
    MEASURES,
    SOME_STEPS,
    PlacedProcess,
    benchmark,
    find_reached_copies,
    place_processes,
    process_values,
    runs_by_rank,
    uses_variable,
)
from planner.launch.write.write_launch import heading_lines, user_variables

FOLDER = "/launch"
"""Mount path of the files that commands read."""
CLAIM = "/data"
"""Mount path of data and checkpoints of a training."""
_WORK_FOLDER = "/tmp/launch"

# Programs in separate images: vLLM's router has images tagged by day.
_PROGRAMS = {"vllm-router": "vllm/vllm-router:<nightly tag>"}
# References that Kubernetes replaces in arguments: $(NAME), and $$ by one $.
_REFERENCE = re.compile(r"\$(?=\$|\([\w.-]+\))")
_VERSION = re.compile(r"\b(?:b\d{3,}|\d+\.\d+(?:\.\w+)*)\b")
_NVIDIA_GPU = "nvidia.com/gpu"
_HEALTH_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama-server")


def image_of(target: LaunchTarget, job: LaunchJob, process: Process) -> str:
    """Return the official image with a process's program, else a placeholder in <>."""
    program = next((word for argument in process.arguments for word in argument.words), "")
    if isinstance(program, str) and program in _PROGRAMS:
        return _PROGRAMS[program]
    # How the tags of official images name a version.
    images = option_aliases("image written AMD" if job.gpu.vendor == "AMD" else "image written")
    image = images.get(target.name)
    version = _VERSION.search(target.version)
    if image is None or version is None:
        return f"<image with {target.version}>"
    return image.format(version[0])


def pod_script(
    target: LaunchTarget,
    job: LaunchJob,
    draft: LaunchDraft,
    process: Process,
    variables: Mapping[str, str],
    links: tuple[PlacedProcess, ...],
    names: Mapping[str, str],
) -> str:
    """Return the script that ``bash -c`` runs in the pod of a process.

    ``variables`` are the rank variables with their shell expressions. ``links`` are the copies that
    the process connects to, ``names`` the cluster's names of their processes.
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
        **process_values(target, job, process),
        "has_files": bool(draft.files),
        "folder": FOLDER,
        "work": _WORK_FOLDER,
        "given": [f"export {name}={word}" for name, word in variables.items()],
        "links": reached,
    }
    return _REFERENCE.sub("$$", fill_template("pod.sh", values))


_LONGEST_NAME = 40
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
_SECRET = re.compile(r".*_(?:TOKEN|KEY|SECRET|PASSWORD)")
_HUB_TOKEN = "HF_TOKEN"
_ALL_BLANK_LINES = 10**9  # scripts inside stay unchanged

Object = dict[str, object]


def make_files(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft
) -> tuple[LaunchOutputFile, ...]:
    """Return a manifest of all processes, and a manifest or script of the benchmark.

    Raises LaunchError if a launcher connects to other nodes itself, which pods do not allow.
    """
    manifest = _manifest_file(Manifest(target, job, draft), is_benchmark=False)
    if not job.is_training:
        return (manifest, *benchmark(target, job, draft))
    steps = (
        # Separate settings objects, so that neither file changes the other's.
        Manifest(
            target,
            job,
            LaunchDraft(processes=(process,), files=draft.files),
            part=f"-{process.name}",
        )
        for process in draft.benchmark
    )
    return (
        manifest,
        *(_manifest_file(benchmark_manifest, is_benchmark=True) for benchmark_manifest in steps),
    )


def _manifest_file(manifest: Manifest, *, is_benchmark: bool) -> LaunchOutputFile:
    """Return the YAML file of a manifest, with comments on how to start it."""
    draft = manifest.draft
    names = [process.name for process in draft.processes]
    name = f"{names[0] if len(names) == 1 else 'launch'}.yaml"
    start_lines = [*([SOME_STEPS] if is_benchmark else []), f"  kubectl apply -f {name}"]
    listening = [process for process in draft.processes if process.port]
    if draft.benchmark and listening:
        server = listening[-1]
        service = f"service/{manifest.name_of(server)}"
        start_lines.append(f"  kubectl port-forward {service} {server.port}  # for the benchmark")
    shown_draft = LaunchDraft(processes=()) if is_benchmark else draft
    meaning = MEASURES if is_benchmark else "everything that the cluster needs"
    return manifest.file(name, shown_draft, start_lines, manifest.text(), meaning)


class Manifest:
    """The objects of a draft; ``part`` is a suffix of the names of shared objects."""

    def __init__(
        self, target: LaunchTarget, job: LaunchJob, draft: LaunchDraft, part: str = ""
    ) -> None:
        """Place the processes of a launch draft on nodes; their default output is on a claim."""
        processes = tuple(map(_move_output_to_claim, draft.processes))
        self.target, self.job, self.draft = target, job, replace(draft, processes=processes)
        self.places = place_processes(processes, job.cluster.gpus_per_node)
        self.stem = dns_label(job.model.name)
        self.shared = f"{self.stem}{part}"

    def name_of(self, process: Process) -> str:
        """Name of a process in the cluster."""
        return f"{self.stem}-{dns_label(process.name)}"

    def user_steps(self) -> list[str]:
        """Return what the user must do or set before the manifest can run, one text per step."""
        values = [variable.name for variable in user_variables(self.draft.processes)]
        steps = []
        if values:
            steps.append(f"these values: in the ConfigMap {self.shared}-settings below")
        steps += self._images()
        if self.job.is_training:
            steps.append(
                f"a PersistentVolumeClaim `data` with data and checkpoints, seen at {CLAIM}"
            )
        if self.job.num_nodes > 1:
            steps.append("the resource of your network, such as rdma/hca, next to that of the GPUs")
        if self._secrets():
            names = ", ".join(self._secrets())
            steps.append(f"the Secret {self.stem}-secrets, where it is needed: {names}")
        return steps

    def _images(self) -> list[str]:
        """Return a step for each image with a placeholder in its name, which the user must set."""
        images: dict[str, list[str]] = {}
        for process in self.draft.processes:
            images.setdefault(image_of(self.target, self.job, process), []).append(process.name)
        return [
            f"image: {image} of {', '.join(names)}, in place of what stands in <>"
            for image, names in images.items()
            if "<" in image
        ]

    def file(
        self, name: str, draft: LaunchDraft, start_lines: list[str], text: str, meaning: str
    ) -> LaunchOutputFile:
        """Return a file of objects with a heading about ``draft`` and how to start it."""
        processes = self.draft.processes
        head = heading_lines(
            self.target, self.job, draft, processes, start_lines, self.user_steps()
        )
        return LaunchOutputFile(
            name=name,
            text="\n".join([*head, text]),
            meaning=meaning,
            start=f"kubectl apply -f {name}",
        )

    def text(self) -> str:
        """All objects; those that others refer to come first."""
        return documents(self.settings()) + "".join(map(self._object_text, self.draft.processes))

    def settings(self) -> list[Object]:
        """Return ConfigMaps of the user's settings and of files that commands read."""
        variables = user_variables(self.draft.processes)
        public_values = {
            variable.name: variable.default or ""
            for variable in variables
            if not _SECRET.fullmatch(variable.name)
        }
        files = {file.name.replace("/", "."): file.text for file in self.draft.files}
        config_maps = (("settings", public_values), ("files", files))
        labels = {"app.kubernetes.io/part-of": self.stem}
        return [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"{self.shared}-{suffix}", "labels": labels},
                "data": data,
            }
            for suffix, data in config_maps
            if data
        ]

    def pod(
        self, process: Process, variables: Mapping[str, str], *, answers: bool, container: str = ""
    ) -> list[str]:
        """Return the YAML lines of a pod that runs a process.

        ``variables`` are rank variables; ``answers``: True if the process serves requests;
        ``container`` is its name, by default that of the process.
        """
        names = {other.name: self.name_of(other) for other in self.draft.processes}
        links = tuple(find_reached_copies(process, self.places))
        script = pod_script(self.target, self.job, self.draft, process, variables, links, names)
        files = [
            {"key": file.name.replace("/", "."), "path": file.name} for file in self.draft.files
        ]
        gpus, port = process.gpus_per_node, process.port if answers else 0
        values: dict[str, Value] = {
            "container": yaml_scalar(container or dns_label(process.name)),
            "image": yaml_scalar(image_of(self.target, self.job, process)),
            "script": _yaml_lines(args=[script]),
            "environment": _yaml_lines(env=self._environment(process)),
            "has_settings": any(
                not _SECRET.fullmatch(variable.name) for variable in user_variables([process])
            ),
            "shared": self.shared,
            "port": port,
            # These engines have ``/health`` as a readiness check.
            "has_health": bool(port and gpus) and self.target.name in _HEALTH_ENGINES,
            "resource": option_aliases("resource written").get(self.job.gpu.vendor, _NVIDIA_GPU),
            "gpus": gpus,
            "files": _yaml_lines(items=files),
            "folder": FOLDER,
            "is_training": self.job.is_training,
            "claim": CLAIM,
        }
        return fill_template("pod.yaml", values, blank_lines=_ALL_BLANK_LINES).split("\n")[:-1]

    def _object_text(self, process: Process) -> str:
        """Return the YAML of a process and its service: a job with indexed pods, copies of one
        pod, or groups of pods with one pod per node.
        """
        has_several_nodes, name = process.num_nodes > 1, self.name_of(process)
        if has_several_nodes and runs_by_rank(process):
            raise LaunchError(
                f"{process.launcher} starts ranks on other nodes itself, which pods do not let it: "
                "choose --wrapper slurm, or a plan of one node."
            )
        is_training = self.job.is_training
        is_group, counts = has_several_nodes and not is_training, uses_variable(process, "COPY")
        reached_copies = (
            placed
            for other in self.draft.processes
            for placed in find_reached_copies(other, self.places)
        )
        is_named = not (is_training or is_group) and (
            counts or any(placed.process is process for placed in reached_copies)
        )
        version, kind = "apps/v1", "StatefulSet" if is_named else "Deployment"
        service, variables = name if process.port else "", dict[str, str]()
        if is_training:
            version, kind, service = "batch/v1", "Job", name if has_several_nodes else ""
            index = '"$JOB_COMPLETION_INDEX"'
            variables = (
                {"NODE_RANK": index, "MASTER_ADDR": f"{name}-0.{name}"} if has_several_nodes else {}
            )
        elif is_group:
            version, kind = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
            variables = {"NODE_RANK": '"$LWS_WORKER_INDEX"', "MASTER_ADDR": '"$LWS_LEADER_ADDRESS"'}
            # The set creates a service with its own name.
            service = f"{name}-http" if process.port else ""
        elif counts:
            variables = {"COPY": '"${HOSTNAME##*-}"'}
        # An interruption fails the pods of all nodes.
        failures = math.ceil(2 * float(self.job["interruptions"] or 0)) + 3
        values: dict[str, Value] = {
            "stem": self.stem,
            "name": name,
            "service": service,
            "port": 0 if is_training else process.port,
            "is_headless": is_training or is_named,
            "version": version,
            "kind": kind,
            "group_label": _GROUP_NAME,
            "is_training": is_training,
            "is_group": is_group,
            "is_named": is_named,
            "failures": process.num_nodes * failures,
            "several_nodes": has_several_nodes,
            "num_nodes": process.num_nodes,
            "copies": process.copies,
            "pod": self.pod(process, variables, answers=not is_training),
            "worker": self.pod(process, variables, answers=False) if is_group else (),
        }
        return fill_template("kubernetes.yaml", values, blank_lines=_ALL_BLANK_LINES)

    def _environment(self, process: Process) -> list[Object]:
        """Return environment entries of a pod: secrets, and host address and copy index if used."""
        entries: list[Object] = [
            {"name": name, "valueFrom": {"secretKeyRef": {
                "name": f"{self.stem}-secrets", "key": name, "optional": name == _HUB_TOKEN}}}
            for name in self._secrets()
        ]  # fmt: skip
        fields = {
            "HOST_ADDRESS": "status.podIP" * uses_variable(process, "HOST_ADDRESS"),
            "COPY": f"metadata.labels['{_GROUP}']"
            * (uses_variable(process, "COPY") * process.num_nodes > 1),
        }
        for name, path in fields.items():
            if path:
                entries.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
        return entries

    def _secrets(self) -> list[str]:
        names = [variable.name for variable in user_variables(self.draft.processes)]
        hub = [_HUB_TOKEN] if self.job.hub_name and not self.job.is_training else []
        return list(dict.fromkeys([*hub, *(name for name in names if _SECRET.fullmatch(name))]))


def _yaml_lines(**parts: object) -> list[str]:
    """YAML lines of the keys with a value."""
    present = {key: value for key, value in parts.items() if value}
    return yaml_text(present, list_by="").split("\n")[:-1] if present else []


def _move_output_to_claim(process: Process) -> Process:
    """Return the process with its default output folder on the volume claim."""

    def moved(argument: CommandWords) -> CommandWords:
        return replace(argument, words=tuple(map(on_claim, argument.words)))

    def on_claim(word: str | ShellVariable) -> str | ShellVariable:
        if isinstance(word, str) or not word.is_output or word.default is None:
            return word
        return replace(word, default=posixpath.join(CLAIM, word.default))

    return replace(process, arguments=tuple(map(moved, process.arguments)))


def dns_label(text: str) -> str:
    """Return a text as a valid name of Kubernetes objects and hosts.

    >>> dns_label("Llama 3.1 70B_Instruct")
    'llama-3-1-70b-instruct'
    """
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    label = words[:_LONGEST_NAME].strip("-")
    return label if label[:1].isalpha() else f"m-{label}".strip("-")


_KSERVE_CONTAINER = "kserve-container"


def make_kserve_files(
    target: LaunchTarget, job: LaunchJob, draft: LaunchDraft
) -> tuple[LaunchOutputFile, ...]:
    """Return an InferenceService of KServe, which scales and routes one kind of server.

    Raises LaunchError if the plan trains, or its servers are of several kinds or nodes.
    """
    process = _single_server(job, draft)
    server_draft = LaunchDraft(
        processes=(process,), files=draft.files, unexpressed=draft.unexpressed, left=draft.left,
        notes=draft.notes,
    )  # fmt: skip
    manifest = Manifest(target, job, server_draft)
    name = f"{process.name}.yaml"
    values: dict[str, Value] = {
        "name": manifest.name_of(process),
        # No autoscaling: as many pods as the plan has copies.
        "copies": process.copies,
        "pod": manifest.pod(process, {}, answers=True, container=_KSERVE_CONTAINER),
    }
    service = fill_template("kserve.yaml", values, blank_lines=_ALL_BLANK_LINES)
    text = documents(manifest.settings()) + service
    start_lines = [f"  kubectl apply -f {name}"]
    file = manifest.file(name, server_draft, start_lines, text, "the inference service")
    return (file, *benchmark(target, job, draft))


def _single_server(job: LaunchJob, draft: LaunchDraft) -> Process:
    """Return the only server process of a launch draft; KServe itself routes to its copies."""
    servers = [process for process in draft.processes if process.gpus_per_node]
    if job.is_training:
        raise LaunchError(
            "KServe serves and does not train: choose --wrapper kubernetes, slurm or script."
        )
    if len(servers) != 1 or servers[0].num_nodes > 1 or not servers[0].port:
        raise LaunchError(
            "An InferenceService has one kind of server, which fits on a node: choose "
            "--wrapper kubernetes."
        )
    if uses_variable(servers[0], "COPY"):
        raise LaunchError(
            "KServe does not number the copies of a server, which this server needs: choose "
            "--wrapper kubernetes."
        )
    return servers[0]
