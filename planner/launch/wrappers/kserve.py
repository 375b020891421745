"""An InferenceService of KServe: one kind of server, scaled and reached as KServe does it."""

from __future__ import annotations

from planner.documents.writing import documents
from planner.errors import LaunchError
from planner.launch.heading import heading
from planner.launch.job import Job
from planner.launch.target import Draft, File, Process, Target
from planner.launch.wrappers.kubernetes import Manifest, Object
from planner.launch.wrappers.script import benchmark
from planner.launch.wrappers.shell import uses

_CONTAINER = "kserve-container"


def wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """The manifest, and what measures the server.

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
    (container,) = pod["containers"]
    container["name"] = _CONTAINER
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
