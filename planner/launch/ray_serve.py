"""Ray Serve LLM: what files of ``serve deploy`` and manifests of KubeRay say of each model.

A model is described in the words of `LLMConfig` (ray-project/ray 2.50,
python/ray/llm/_internal/serve/core/configs/llm_config.py), here as the call of it that a program
would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from planner.documents.python import Call, Untold, Value
from planner.documents.yaml_places import Place, documents
from planner.errors import LaunchError
from planner.launch.launchers.containers import gpu_limit, gpu_of_nodes
from planner.launch.option_table import OptionTable

CONFIG = "LLMConfig"
_SERVICE = "RayService"
_POOLS = ("prefill_config", "decode_config")
_VARIABLES = {
    "MODEL_ID": "model",
    "TENSOR_PARALLELISM": "tensor_parallel_size",
    "PIPELINE_PARALLELISM": "pipeline_parallel_size",
}
_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size")


def configs_of(text: str, name: str) -> Iterator[tuple[Call, str]]:
    """The models that a YAML text serves, each with its pool: ``prefill``, ``decode`` or "".

    Raises
    ------
    LaunchError
        It is no YAML, or a replica takes more GPUs than the workers of its cluster have.
    """
    for document in documents(text, name):
        if document.get("kind").text == _SERVICE:
            yield from _of_service(document.get("spec"), text, name)
        else:
            yield from _of_applications(document)
            if document.get("model_loading_config").is_mapping:
                yield _config(document), ""


def _of_applications(document: Place) -> Iterator[tuple[Call, str]]:
    for application in document.get("applications").entries():
        arguments = application.get("args")
        for place in (*arguments.get("llm_configs").entries(), arguments.get("llm_config")):
            if place.is_mapping:
                yield _config(place), ""
        for key in _POOLS:
            if arguments.get(key).is_mapping:
                yield _config(arguments.get(key)), key.removesuffix("_config")
        if (own := _own_application(application)) is not None:
            yield own, ""


def _own_application(application: Place) -> Call | None:
    """vLLM in an application of its own, as in ray-operator/config/samples/vllm of KubeRay 1.3.

    Its options are arguments, or variables of the environment.
    """
    arguments, variables = application.get("args"), application.get("runtime_env", "env_vars")
    given = {key.replace("-", "_"): _value(below) for key, below in arguments.items()}
    known = OptionTable.load("vllm").options & {f"--{key.replace('_', '-')}" for key in given}
    kwargs = given if {"--model"} < known else {}
    for name, option in _VARIABLES.items():
        if (text := variables.get(name).text) is not None:
            kwargs = {**kwargs, option: int(text) if text.isdigit() else text}
    if "model" not in kwargs:
        return None
    deployed = next(iter(application.get("deployments").entries()), Place.nothing(application))
    config = {"model_source": kwargs.pop("model"), "engine_kwargs": kwargs}
    return replace(_config(application), given={**config, "deployment_config": _value(deployed)})


def _of_service(spec: Place, text: str, name: str) -> Iterator[tuple[Call, str]]:
    """The text within the manifest, on the GPUs of its groups of workers."""
    inner = spec.get("serveConfigV2").node
    if inner is None:
        return
    within = inner.text
    if text[inner.start : inner.start + 1] == "|":  # its lines are those of the file
        start = text.find("\n", inner.start, inner.end) + 1
        within = "\n" * text.count("\n", 0, start) + text[start : inner.end]
    groups = spec.get("rayClusterConfig", "workerGroupSpecs").entries()
    gpus, kind = 0, None
    for group in groups:
        kind = kind or gpu_of_nodes(group.get("template", "spec"))
        each = [gpu_limit(one) for one in group.get("template", "spec", "containers").entries()]
        of_pod = sum(int(one.single or 0) for one in each if one and (one.single or "").isdigit())
        counts = [group.get(key).text or "1" for key in ("numOfHosts", "replicas", "maxReplicas")]
        hosts, *pods = (int(one) if one.isdigit() else 1 for one in counts)
        gpus += of_pod * hosts * max(pods)
    for document in documents(within, name):
        for config, pool in _of_applications(document):
            kwargs = config.given.get("engine_kwargs")
            sizes = [kwargs.get(split) for split in _SPLITS] if isinstance(kwargs, dict) else []
            takes = prod(size for size in sizes if isinstance(size, int))
            if 0 < gpus < takes:
                raise LaunchError(
                    f"{name}:{config.line}: a replica takes {takes} GPUs, and the groups of "
                    f"workers have {gpus} at most: change one of them."
                )
            own = {"accelerator_type": kind} if kind else {}
            yield replace(config, given={**own, **config.given}), pool


def _config(place: Place) -> Call:
    return Call(
        name=CONFIG,
        line=place.line,
        given={key: _value(below) for key, below in place.items()},
        lines={key: below.line for key, below in place.items()},
    )


def _value(place: Place) -> Value:
    """What a program would have in place of it."""
    if place.is_mapping:
        return {key: _value(below) for key, below in place.items()}
    if place.node is not None and place.node.kind == "list":
        return [_value(below) for below in place.entries()]
    if place.node is not None and place.node.unknown:
        return Untold(why=place.node.unknown)
    return None if place.node is None else place.node.value
