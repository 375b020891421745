"""Models of Ray Serve in YAML.

They are described in the words of `LLMConfig` (ray-project/ray 2.50,
python/ray/llm/_internal/serve/core/configs/llm_config.py), here as the call of it that a program
would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from planner.documents.python_calls import Call, UnknownValue, Value
from planner.documents.yaml_positions import YamlValue, documents
from planner.errors import LaunchError
from planner.launch.option_table import OptionTable, option_aliases
from planner.launch.wrappers.read_containers import gpu_limit, gpu_of_nodes

CONFIG = "LLMConfig"
_SERVICE = "RayService"
_POOLS = ("prefill_config", "decode_config")
_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size")


def ray_serve_configs(text: str, name: str) -> Iterator[tuple[Call, str]]:
    """Yield the engine configurations of a YAML text, each with its pool (prefill, decode or "").

    Raises LaunchError if it is no YAML, or a replica takes more GPUs than the workers of its
    cluster have.
    """
    for document in documents(text, name):
        if document.get("kind").text == _SERVICE:
            yield from _service_configs(document.get("spec"), text, name)
        else:
            yield from _application_configs(document)
            if document.get("model_loading_config").is_mapping:
                yield _config_call(document), ""


def _application_configs(document: YamlValue) -> Iterator[tuple[Call, str]]:
    """Yield each engine configuration of Ray Serve and its pool: ``prefill``, ``decode`` or ""."""
    for application in document.get("applications").entries():
        arguments = application.get("args")
        for config_value in (*arguments.get("llm_configs").entries(), arguments.get("llm_config")):
            if config_value.is_mapping:
                yield _config_call(config_value), ""
        for key in _POOLS:
            if arguments.get(key).is_mapping:
                yield _config_call(arguments.get(key)), key.removesuffix("_config")
        if (config := _application_config(application)) is not None:
            yield config, ""


def _application_config(application: YamlValue) -> Call | None:
    """Return vLLM's configuration in a custom Ray Serve application; None for other applications.

    As in ray-operator/config/samples/vllm of KubeRay 1.3. Options are arguments, or variables of
    the environment.
    """
    arguments, variables = application.get("args"), application.get("runtime_env", "env_vars")
    arguments_by_name = {
        key.replace("-", "_"): _plain_value(child) for key, child in arguments.items()
    }
    vllm_options = OptionTable.load("vllm").options & {
        f"--{key.replace('_', '-')}" for key in arguments_by_name
    }
    kwargs = arguments_by_name if {"--model"} < vllm_options else {}
    for name, option in option_aliases("ray serve").items():
        if (text := variables.get(name).text) is not None:
            kwargs = {**kwargs, option: int(text) if text.isdigit() else text}
    if "model" not in kwargs:
        return None
    deployment = next(
        iter(application.get("deployments").entries()), YamlValue.nothing(application)
    )
    config = {"model_source": kwargs.pop("model"), "engine_kwargs": kwargs}
    return replace(
        _config_call(application),
        keywords={**config, "deployment_config": _plain_value(deployment)},
    )


def _service_configs(spec: YamlValue, text: str, name: str) -> Iterator[tuple[Call, str]]:
    """Yield the engine configurations of a RayService, with the GPU type of its workers.

    Raises LaunchError if a replica takes more GPUs than the workers have.
    """
    inner = spec.get("serveConfigV2").node
    if inner is None:
        return
    inner_text = inner.text
    if text[inner.start : inner.start + 1] == "|":  # its lines are those of the file
        start = text.find("\n", inner.start, inner.end) + 1
        inner_text = "\n" * text.count("\n", 0, start) + text[start : inner.end]
    groups = spec.get("rayClusterConfig", "workerGroupSpecs").entries()
    gpus, gpu_type = 0, None
    for group in groups:
        gpu_type = gpu_type or gpu_of_nodes(group.get("template", "spec"))
        limits = [
            gpu_limit(container)
            for container in group.get("template", "spec", "containers").entries()
        ]
        gpus_per_pod = sum(
            int(container.single or 0)
            for container in limits
            if container and (container.single or "").isdigit()
        )
        counts = [group.get(key).text or "1" for key in ("numOfHosts", "replicas", "maxReplicas")]
        hosts, *pods = (int(count) if count.isdigit() else 1 for count in counts)
        gpus += gpus_per_pod * hosts * max(pods)
    for document in documents(inner_text, name):
        for config, pool in _application_configs(document):
            kwargs = config.keywords.get("engine_kwargs")
            sizes = [kwargs.get(split) for split in _SPLITS] if isinstance(kwargs, dict) else []
            gpus_per_replica = prod(size for size in sizes if isinstance(size, int))
            if 0 < gpus < gpus_per_replica:
                raise LaunchError(
                    f"{name}:{config.line}: a replica takes {gpus_per_replica} GPUs, and the "
                    "groups of "
                    f"workers have {gpus} at most: change one of them."
                )
            accelerator = {"accelerator_type": gpu_type} if gpu_type else {}
            yield replace(config, keywords={**accelerator, **config.keywords}), pool


def _config_call(value: YamlValue) -> Call:
    """Return a YAML mapping as a call of the configuration class, with the line of each key."""
    return Call(
        name=CONFIG,
        line=value.line,
        keywords={key: _plain_value(child) for key, child in value.items()},
        lines={key: child.line for key, child in value.items()},
    )


def _plain_value(value: YamlValue) -> Value:
    """Return a YAML value as a Python value."""
    if value.is_mapping:
        return {key: _plain_value(child) for key, child in value.items()}
    if value.node is not None and value.node.kind == "list":
        return [_plain_value(child) for child in value.entries()]
    if value.node is not None and value.node.unknown:
        return UnknownValue(why=value.node.unknown)
    return None if value.node is None else value.node.value
