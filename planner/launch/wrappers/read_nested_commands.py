"""Commands anywhere in YAML and JSON, for documents of kinds that no other module knows.

A text or a list under a key such as ``run`` or ``command``, or with the name of a program that
starts many GPUs, is a command. The keys around it give GPUs, nodes, copies and variables, the
nearest first: SkyPilot (docs, Task YAML, 0.10) and dstack (docs/reference/dstack.yml, 0.19) are
read in this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.documents.shell.nested_scripts import read_inner
from planner.documents.shell.syntax import Pieces, Word, computed_text
from planner.documents.yaml_positions import YamlValue, documents
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import JobResources, parse_int
from planner.launch.wrappers.read_containers import (
    Container,
    accelerators_at,
    container_at,
    environment_at,
    gpu_limit,
    gpu_of_nodes,
    plain_word,
    shell_words,
    word_at,
)
from planner.launch.wrappers.read_resources import INSTANCES
from planner.specs.quantization import checkpoint_of

_COMMAND_KEY = re.compile(r"(?i)(?:.*[_-])?(?:run|cmd|commands?|scripts?|args|entry_?point|exec)")
_PROGRAM = re.compile(
    r"\b(?:(?:vllm|sglang)(?:\.[\w.]+)?|trtllm\w*|tensorrt_llm|llama-server|text-generation-launcher|lmdeploy"
    r"|ollama|torchrun|accelerate|deepspeed|axolotl|llamafactory-cli|swift|tune) "
)
_PROGRAMS = {"vllm": "vllm serve", "sglang": "python3 -m sglang.launch_server"}
"""Programs by the word in the name of their image."""
_GPUS = ("accelerators", "accelerator", "gpu", "gpus", "gpu_type", "gpuType")
# The last of each are those of oracle-quickstart/oci-ai-blueprints.
_INSTANCES = ("instance_type", "instanceType", "recipe_node_shape")
_COUNTS = ("num_gpus", "numGpus", "gpu_count", "gpuCount", "gpus_per_node", "gpusPerNode",
           "recipe_nvidia_gpu_count")  # fmt: skip
_NODES = ("num_nodes", "numNodes", "nnodes", "nodes", "node_count", "nodeCount",
          "multinode_num_nodes_to_use_from_shared_pool")  # fmt: skip
_COPIES = ("replicas", "minReplicas", "replicaCount", "num_replicas", "recipe_replica_count")
_ENVIRONMENTS = ("env", "envs", "environment", "environment_variables", "environmentVariables")


def nested_containers(text: str, name: str) -> Iterator[Container]:
    """Yield each command in a text of YAML or JSON documents, with the resources around it.

    Raises LaunchError if the text is no YAML, is too long or nested too deeply.
    """
    all_documents = documents(text, name)
    model = _model_of_group(all_documents)
    for document in all_documents:
        yield from _containers_below(document, (), name, model)


def _model_of_group(all_documents: Sequence[YamlValue]) -> str:
    """Return the model of a service of OME, or that its runtime is named after; "" if unknown."""
    for document in all_documents:
        named = (document.get("metadata", "name").text or "").removeprefix("srt-")
        for name in (document.get("spec", "model", "name").text or "", named):
            if checkpoint_of(name).model:
                return name
    return ""


def _containers_below(
    section: YamlValue, around: tuple[YamlValue, ...], name: str, model: str = ""
) -> Iterator[Container]:
    """Yield the commands in and below a section; ``around`` are the mappings that hold it.

    ``model`` is what the controller of OME mounts.
    """
    levels = (*around, section) if section.is_mapping else around
    has_image = section.get("image").text is not None
    if section.get("command").entries() or (has_image and section.get("args").entries()):
        sizes = _group_sizes(_group_resources(levels))
        sizes |= {"MODEL_PATH": computed_text(model)} if model else {}
        container = container_at(section, {}, sizes=sizes)
        yield _with_levels(container.words, levels, container.line)
    for key, value in section.items():
        is_part = key in ("command", "args") and value.entries()  # of the container above
        words = () if is_part else _command_words(key, value, name)
        if words and words[0].begins.startswith("--"):  # the program is that of an image
            texts = " ".join(value.text or "" for value in dict(section.items()).values())
            engine = next((word for word in _PROGRAMS if word in texts.lower()), "")
            program = _PROGRAMS[engine].split() if engine else ()
            words = (*(plain_word(word, value.line) for word in program), *words)
        if words:
            yield _with_levels(words, levels, value.line)
        yield from _containers_below(value, levels, name, model)
    for entry in section.entries():
        yield from _containers_below(entry, levels, name, model)


_ENGINE_KEYS = {
    "vllm serve": {"tensor_parallel_size", "gpu_memory_utilization", "max_model_len"},
    "python3 -m sglang.launch_server": {"tp_size", "mem_fraction_static", "context_length"},
    "llama-server": {"n_ctx", "n_gpu_layers"},
}
"""Programs whose options stand as keys in documents of any kind, and keys that are theirs alone."""


_MODELS = ("model", "repo_id", "model_id", "hf_model_id", "model_name", "model_path")


def engine_mappings(text: str, name: str) -> Iterator[Container]:
    """Yield an engine's command for each mapping of a text with the engine's options as keys.

    Raises LaunchError if the text is no YAML, is too long or nested too deeply.
    """
    for document in documents(text, name):
        yield from _engines_below(document, ())


def _engines_below(section: YamlValue, around: tuple[YamlValue, ...]) -> Iterator[Container]:
    levels = (*around, section) if section.is_mapping else around
    values = dict(section.items())
    program = next((p for p, keys in _ENGINE_KEYS.items() if len(keys & {*values}) > 1), None)
    if program is not None:
        words = [plain_word(word, section.line) for word in program.split()]
        named = [level.get(key) for level in levels[::-1] for key in _MODELS]
        model = next((value for value in named if "/" in (value.text or "")), None)
        if model is not None and not {"model", "model_path"} & {*values}:
            words += [plain_word("--model", model.line), word_at(model.pieces, model)]
        for key, value in values.items():
            text = (value.text or "").lower()
            if text in ("", "false", "null", "none") and not value.entries():
                continue
            option = option_aliases("llama-cpp-python").get(
                f"--{key}", f"--{key.replace('_', '-')}"
            )
            words.append(plain_word(option, value.line))
            if text != "true":
                words += [word_at(entry.pieces, entry) for entry in value.entries() or (value,)]
        if program == "llama-server":  # of llama-cpp-python, which takes one request at once
            words += [plain_word(word, section.line) for word in ("--parallel", "1")]
        yield _with_levels(words, levels, section.line)
        return
    for value in (*values.values(), *section.entries()):
        yield from _engines_below(value, levels)


def _command_words(key: str, value: YamlValue, name: str) -> tuple[Word, ...]:
    """Return the words of a command under a key: those of a list, or a script; else nothing."""
    entries = value.entries()
    texts = [entry.text or "" for entry in entries] or [value.text or ""]
    is_command = _COMMAND_KEY.fullmatch(key) is not None
    if not texts[0].strip() or not (is_command or any(map(_PROGRAM.search, texts))):
        return ()
    if entries and not re.search(r"\s", texts[0].strip()):
        return tuple(word_at(entry.pieces, entry) for entry in entries)
    lines = [(*entry.pieces, *computed_text("\n")) for entry in entries] or [value.pieces]
    pieces: Pieces = tuple(piece for line in lines for piece in line)
    if not is_command:
        try:
            read_inner(pieces, {}, value.source, name)
        except LaunchError:  # a text for people
            return ()
    return shell_words(word_at(pieces, value))


def _with_levels(words: Sequence[Word], levels: Sequence[YamlValue], line: int) -> Container:
    """Return a command with the resources and variables of the mappings around it."""
    environment: dict[str, Word] = {}
    for level in levels:
        for key in _ENVIRONMENTS:
            environment |= environment_at(level.get(key))
    resources = _group_resources(levels)
    has_size = any(level.get("size").text is not None for level in levels)
    numbers = {
        "num_nodes": resources.num_nodes,
        "gpus_per_node": resources.gpus_per_node,
        "node_rank": None,
    }
    for name, field in option_aliases("job variables").items():
        option = numbers[field]
        default = "0" if field == "node_rank" else "1"
        text = default if option is None else option.single or default
        environment[name] = plain_word(text, line if option is None else option.line)
    return Container(
        words=tuple(words),
        environment=environment,
        resources=resources,
        is_follower=has_size and _worker_count(levels) is not None,
        line=line,
    )


def _worker_count(levels: Sequence[YamlValue]) -> int | None:
    """Return how many workers follow the leader of a group of OME; None without a group."""
    sizes = (level.get("worker", "size").text for level in reversed(levels))
    return next((int(size) for size in sizes if size and size.isdecimal()), None)


def _group_resources(levels: Sequence[YamlValue]) -> JobResources:
    """Return the resources around a command, with the nodes of a group of OME."""
    resources = _resources_of(levels)
    if (workers := _worker_count(levels)) is None:
        return resources
    size = implied_option("worker.size", str(workers + 1), levels[-1].line)
    return replace(resources, num_nodes=size)


def _group_sizes(resources: JobResources) -> dict[str, Pieces]:
    """Return the variables that the controllers of OME and LeaderWorkerSet set in each pod.

    Source: sgl-project/ome, pkg/controller/v1beta1/inferenceservice/components/engine.go: the
    parallelism is the GPUs of a pod times leader and workers.
    """
    numbers = (resources.num_nodes, resources.gpus_per_node)
    nodes, gpus = (1 if option is None else parse_int(option) for option in numbers)
    sizes = {"LWS_GROUP_SIZE": nodes}
    if nodes and gpus and resources.gpus_per_node is not None:
        sizes["PARALLELISM_SIZE"] = nodes * gpus
    return {name: computed_text(str(size)) for name, size in sizes.items() if size}


def _resources_of(levels: Sequence[YamlValue]) -> JobResources:
    """Return the nodes, GPUs and copies that the nearest keys around a command give."""
    sections = [
        section
        for level in reversed(levels)
        for part in (level, level.get("resources"))
        for section in (part, *part.get("any_of").entries(), *part.entries())
    ]

    def nearest(keys: Sequence[str]) -> YamlValue:
        values = (section.get(key) for section in sections for key in keys)
        return next((value for value in values if value.text), YamlValue.nothing(levels[0]))

    candidates = (accelerators_at(section.get(key), key) for section in sections for key in _GPUS)
    machines = (job for job in candidates if job.gpu or job.gpus_per_node)
    accelerators = next(machines, JobResources())
    gpu, count = accelerators.gpu, accelerators.gpus_per_node
    instance = nearest(_INSTANCES)
    if gpu is None and (machine := INSTANCES.get((instance.text or "").lower())) is not None:
        gpu = machine.gpu
        count = count or implied_option("instance type", str(machine.gpus), instance.line)
    gpu = gpu or next(filter(None, map(gpu_of_nodes, sections)), None)
    limits = (gpu_limit(level) for level in reversed(levels))
    return JobResources(
        num_nodes=nearest(_NODES).option_text("num_nodes"),
        gpus_per_node=nearest(_COUNTS).option_text("num_gpus")
        or count
        or next(filter(None, limits), None),
        gpu=gpu,
        copies=nearest(_COPIES).option_text("replicas"),
    )
