"""Containers of Kubernetes pods and of docker compose: commands and resources.

Nothing is run and no image is opened: a container without a command runs what its image is known
to start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from types import MappingProxyType

from planner.base.records import record
from planner.documents.shell import HereDocument
from planner.documents.shell.edits import ParsedOption, Span, implied_option
from planner.documents.shell.nested_scripts import read_inner
from planner.documents.shell.syntax import (
    Command,
    Pieces,
    Script,
    TextPiece,
    Word,
    computed_text,
    text_of,
    unknown_text,
)
from planner.documents.yaml_positions import YamlValue, documents
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import JobResources
from planner.launch.wrappers.read_resources import parse_gpu_name
from planner.specs.quantization import checkpoint_of


def config_maps(text: str, name: str) -> dict[str, HereDocument]:
    """Return the files of all ConfigMaps in a YAML text by key, with their positions in it.
    Raises LaunchError if the text is no YAML, is too long or nested too deeply.
    """
    return {
        key: HereDocument(
            text=file.text, span=Span(0, 0), line=file.line, expanded=True, pieces=file.pieces
        )
        for document in documents(text, name)
        if document.get("kind").text == "ConfigMap"
        for key, file in document.get("data").items()
        if file.text
    }


# NVIDIA's documents call its image of any model ${NIM_LLM_IMAGE}.
_NIM = re.compile(r"nvcr\.io/nim/[\w.-]+/(?P<model>[\w.-]+)|\$\{?NIM_\w+\}?$")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server")
_GPU_LIMITS = (
    *("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu", "habana.ai/gaudi"),
    *("google.com/tpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"),
    *("huawei.com/Ascend910", "huawei.com/ascend-1980"),
)
_GROUPS_OF_RESOURCES = ("limits", "requests")
_GPU_KINDS = (
    *("cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator"),
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "karpenter.k8s.aws/instance-gpu-name"),
    *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "accelerator"),
    "gpu.nvidia.com/class",
)
"""Labels of nodes that name their GPU, or the type of machine that has it."""
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_ROLES = ("prefill", "decode")
_GROUPS = ("size", "podGroupSize", "parallelism", "multinode.nodeCount")
# Options of servers that transfer their KV cache; without them a role is only a name.
_PASSES = "-transfer-"
_MEMORY = re.compile(r"\d+(?:\.\.|GB|MB|$)", re.IGNORECASE)
_REPLICAS_OF_WORKERS = re.compile(r"ReplicaSpecs/Worker(?:/|$)")
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash"})
"""Programs that run the script in their argument."""
_SCRIPT_FLAG = re.compile(r"-([^-].*)?c", re.DOTALL)
"""The option of a shell before a script: ``-c``, ``-lc``."""
_IN_KUBERNETES = re.compile(r"\$\((?P<name>[A-Za-z_]\w*)\)")
_IN_COMPOSE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>(?:[^${}]|\$\{[^{}]*\})*))?\})"
)


@record(kw_only=True)
class Container:
    """One kind of container of a file.

    ``words`` are program and arguments, with the program of the image if the file names none; a
    shell's ``-c`` is not parsed yet. ``role``: role of a worker of a disaggregated service,
    ``prefill`` or ``decode``. ``is_follower``: another container leads its job. ``load``: requests
    sent to it, by the terms of `planner.launch.write.benchmark`. ``deployment`` separates services
    in a file; ``text`` is the part of the file about it, on its lines, empty for the full file.
    ``doubts`` are parts of it that may keep it from running as read.
    """

    words: tuple[Word, ...] = ()
    environment: Mapping[str, Word] = field(default_factory=dict)
    resources: JobResources = field(default_factory=JobResources)
    role: str = ""
    is_follower: bool = False
    load: Mapping[str, ParsedOption] = field(default_factory=dict)
    deployment: int = 0
    text: str = ""
    line: int = 1
    doubts: tuple[str, ...] = ()


def script_of(container: Container, text: str, name: str) -> Script:
    """Return a container's command as a script: the text that its shell reads, or one command.
    ``text`` and ``name`` are those of the file. Raises LaunchError as `read_inner` does.
    """
    words = container.words
    shell = (words[0].text or "").rpartition("/")[2] if words else ""
    flags = (i for i, word in enumerate(words) if _SCRIPT_FLAG.fullmatch(word.text or ""))
    index = next(flags, None)
    if index is not None and words[index + 1 : index + 2] and words[index + 1].text == "--":
        index += 1
    if shell in SHELLS and index is not None and index + 1 < len(words):
        arguments = words[index + 3 :] or None  # the word before them is the script's name
        return read_inner(words[index + 1].pieces, container.environment, text, name, arguments)
    span = Span(0, 0)
    command = Command(
        words=words, environment=container.environment, line=container.line, span=span
    )
    commands = (command,) if words else ()
    return Script(name=name, text=text, commands=commands, variables={}, directives=(), files={})


_ENGINE_OPTIONS = {
    "vllm serve": {"--gpu-memory-utilization", "--max-model-len", "--max-num-seqs",
                   "--tensor-parallel-size"},
    "python3 -m sglang.launch_server": {"--mem-fraction-static", "--tp-size", "--context-length"},
}  # fmt: skip


def program_of_options(words: Sequence[Word]) -> str:
    """Return the engine that two or more options are of, of whatever starts it; "" if none is."""
    names = {word.begins.partition("=")[0].replace("_", "-") for word in words}
    return next((p for p, options in _ENGINE_OPTIONS.items() if len(names & options) > 1), "")


def program_of(
    image: str, words: Sequence[Word], line: int, gpus: ParsedOption | None = None
) -> tuple[Word, ...]:
    """Return the command words, with the program of the image in front if they name none.
    A NIM image takes ``gpus`` as its number of GPUs.
    """
    started = (program for part, program in option_aliases("image").items() if part in image)
    command = tuple(next(started, "").split())
    names_program = bool(words) and not (words[0].text or "-").startswith("-")
    if nim := _NIM.search(image):
        number = gpus.single if gpus is not None else None
        command = ("nim", nim["model"] or "", number if number and number.isdecimal() else "")
        names_program = names_program and "://" not in (words[0].text or "")
    elif not command and "vllm" in image.lower() and words and not names_program:
        command = ("vllm", "serve")  # built by its Dockerfile under another name
    elif command[1:] and words and words[0].text == command[-1]:
        command, names_program = command[:-1], False  # what the image runs by itself
    elif not command and words and words[0].begins.startswith("--"):
        command = tuple(program_of_options(words).split())  # a patch of another file
    is_model = names_program and bool(_REPOSITORY.fullmatch(words[0].text or ""))
    if not command or (names_program and not is_model):
        return tuple(words)
    if command[:1] == ("vllm",) and any((w.begins + "=").startswith("--model=") for w in words):
        command = MODULE
    return (*(plain_word(word, line) for word in command), *words)


def pods_of(document: YamlValue, kind: str) -> Iterator[Container]:
    """Yield the containers of every pod in a Kubernetes object, with nodes, GPUs and copies.

    Replicas and group sizes count at the level nearest to the pod: the group size of a
    LeaderWorkerSet is ``size``, of a StormService of AIBrix ``podGroupSize``, of a worker of a
    DynamoGraphDeployment ``multinode.nodeCount``.
    """
    members = document.get("spec", "pytorchReplicaSpecs").items()
    all_members = _total_pods([section.get("replicas") for _, section in members])
    for path, around, pod in _pod_specs(document.get("spec"), (), ()):

        def nearest(*keys: str, levels: tuple[YamlValue, ...] = around) -> YamlValue:
            values = (each.get(*key.split(".")) for each in levels[::-1] for key in keys)
            return next((value for value in values if value.text), YamlValue.nothing(document))

        copies, nodes = nearest("replicas", "minReplicas"), nearest(*_GROUPS)
        kind_of_worker = nearest("subComponentType", "type").text or ""  # of Dynamo
        gpu = gpu_of_nodes(pod)
        labels = around[-2].get("metadata", "labels").items() if around[1:] else []
        roles = (*(value.text for _, value in labels), *path[::-1])
        role = next((role for role in roles if role in _ROLES), "")
        for section in _containers_in(pod):
            variables = {"LWS_GROUP_SIZE": nodes} if nodes.text else {}
            container = container_at(section, variables, _mount_points(section, pod.get("volumes")))
            if not container.words:
                continue
            texts = [text for word in container.words for text in (word.text or "").split()]
            several = kind == "StatefulSet" and "--nnodes" in texts
            resources = JobResources(
                num_nodes=all_members or (copies if several else nodes).option_text("nodes"),
                gpus_per_node=next(filter(None, map(gpu_limit, (section, *around[::-1]))), None),
                gpu=gpu,
                copies=None if several else copies.option_text("replicas"),
            )
            is_follower = bool(
                (_REPLICAS_OF_WORKERS.search("/".join(path)) and len(members) != 1)
                or "workerGroupSpecs" in path
                or (
                    path[-2:-1] == ("workerTemplate",)
                    and bool(around[-3].get("leaderTemplate").items())
                )
            )
            passes = any(_PASSES in (w.text or "").replace("_", "-") for w in container.words)
            worker_role = kind_of_worker if kind_of_worker in _ROLES else role if passes else ""
            lacks_gpu = (
                resources.gpus_per_node is None and gpu is None and _lacks_devices(section, pod)
            )
            yield replace(
                container,
                resources=resources,
                is_follower=is_follower,
                role=worker_role,
                doubts=(
                    *container.doubts,
                    *("resources without a GPU",) * lacks_gpu,
                    *(f"replicas {copies.text}",) * (not (copies.text or "1").isdecimal()),
                ),
            )


def _lacks_devices(section: YamlValue, pod: YamlValue) -> bool:
    """Whether a container asks for CPUs or memory and for no device, by any way to get one.

    Source: kubernetes.io, tasks/manage-gpus/scheduling-gpus and, of claims, dynamic resource
    allocation. Names of devices have a domain; a runtime class may give all of the node.
    """
    resources = section.get("resources")
    names = [name for group in _GROUPS_OF_RESOURCES for name, _ in resources.get(group).items()]
    others = (resources.get("claims"), pod.get("runtimeClassName"), pod.get("resourceClaims"))
    has_other_way = any(value.node is not None for value in others)
    return (
        bool(names)
        and not has_other_way
        and not any("/" in name or "gpu" in name for name in names)
    )


def _total_pods(replicas: Sequence[YamlValue]) -> ParsedOption | None:
    """Return the sum of ``replicas``, each 1 if unspecified; None for an empty list."""
    if not replicas:
        return None
    numbers = [int(entry.text or 1) for entry in replicas if (entry.text or "1").isdecimal()]
    return implied_option("replicas", str(sum(numbers)), replicas[0].line)


def _pod_specs(
    section: YamlValue, path: tuple[str, ...], around: tuple[YamlValue, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[YamlValue, ...], YamlValue]]:
    """Yield each pod below ``section``, which has containers: its keys, parents and itself.

    The key of a list entry is the entry's ``name``.
    """
    around = (*around, section)
    if _containers_in(section):
        yield path, around, section
        return
    for key, below in section.items():
        yield from _pod_specs(below, (*path, key), around)
    for below in section.entries():
        yield from _pod_specs(below, (*path, below.get("name").text or ""), around)


def _containers_in(section: YamlValue) -> list[YamlValue]:
    """Return the containers of a pod; Dynamo has one of them, under a key."""
    main = section.get("mainContainer")
    return section.get("containers").entries() or [main] * main.is_mapping


def _mount_points(section: YamlValue, volumes: YamlValue) -> Iterator[tuple[str, str]]:
    """Yield each mount path of a container whose volume is a host folder, with that folder."""
    folders = {
        volume.get("name").text: volume.get("hostPath", "path").text for volume in volumes.entries()
    }
    for mount in section.get("volumeMounts").entries():
        if path := folders.get(mount.get("name").text):
            yield mount.get("mountPath").text or "", path


def apply_mounts(pieces: Pieces, mounts: Iterable[tuple[str, str]]) -> Pieces:
    """Replace paths inside a container by the known models that the mounted folders name."""
    for inside, outside in mounts:
        path = outside.removeprefix("hf://")
        parts = (path, *path.strip("/").split("/")[::-1])
        candidates = parts if _REPOSITORY.fullmatch(path) else parts[1:]
        model = next((part for part in candidates if checkpoint_of(part).model), "")
        if (path := inside.rstrip("/")) and model:
            pattern = rf"(?<![^\s\"'=])(?P<name>{re.escape(path)})/?(?=[\s\"']|$)"
            pieces = apply_controller_variables(
                pieces, re.compile(pattern), {path: computed_text(model)}
            )
    return pieces


def container_at(
    section: YamlValue,
    variables: Mapping[str, YamlValue],
    mounts: Iterable[tuple[str, str]] = (),
    sizes: Mapping[str, Pieces] = MappingProxyType({}),
) -> Container:
    """Return the container of a pod section; ``variables`` are added to its environment.

    ``sizes`` are variables that a controller sets, by name.
    """
    environment = {
        name: word_at(value.pieces, value)
        for entry in section.get("envFrom").entries()
        for name, value in _config_map(entry.source, entry.get("configMapRef", "name").text).items()
    }
    environment |= environment_at(section.get("env"))
    environment |= {name: word_at(value.pieces, value) for name, value in variables.items()}
    mounts = tuple(mounts)
    values = {**sizes, **{name: word.pieces for name, word in environment.items()}}
    words = [
        word_at(
            apply_mounts(apply_controller_variables(entry.pieces, _IN_KUBERNETES, values), mounts),
            entry,
        )
        for key in ("command", "args")
        for entry in section.get(key).entries()
    ]
    image = section.get("image").text or ""
    names_program = bool(section.get("command").entries())
    lacks_program = names_program and words[0].begins.startswith("-")
    return Container(
        words=tuple(words)
        if names_program and not lacks_program
        else program_of(image, words, section.line, gpu_limit(section)),
        environment=environment,
        line=section.line,
        doubts=(*("command in place of args",) * lacks_program, *image_without_gpu(image)),
    )


# ggml-org/llama.cpp, docs/docker.md: images for GPUs end with the name of their library.
_HOST_IMAGE = re.compile(r"llama\.cpp:(server|full)(-b\d+)?(?=@|$)")


def image_without_gpu(image: str) -> tuple[str, ...]:
    """Return the part of an image's name that says it runs on the host alone, if one does.

    >>> image_without_gpu("ghcr.io/ggml-org/llama.cpp:server@sha256:1f"), image_without_gpu(
    ...     "ghcr.io/ggml-org/llama.cpp:server-cuda"
    ... )
    (('image llama.cpp:server, which uses no GPU',), ())
    """
    host = _HOST_IMAGE.search(image)
    return () if host is None else (f"image {host[0]}, which uses no GPU",)


def compose_service(section: YamlValue, name: str) -> Container:
    """Return the container of a Compose service, with mounted folders as paths outside."""
    environment = environment_at(section.get("environment"))
    volumes = (
        text_of(apply_controller_variables(entry.pieces, _IN_COMPOSE, {})) or entry.text or ""
        for entry in section.get("volumes").entries()
    )
    mounts = [(inside, path) for path, _, inside in (volume.partition(":") for volume in volumes)]
    mounts = [(inside.partition(":")[0], path) for inside, path in mounts]
    words: list[Word] = []

    def resolve(value: YamlValue) -> Pieces:
        return apply_mounts(apply_controller_variables(value.pieces, _IN_COMPOSE, {}), mounts)

    for key in ("entrypoint", "command"):
        part = section.get(key)
        if part.entries():
            words += [word_at(resolve(entry), entry) for entry in part.entries()]
        elif part.text:
            commands = read_inner(resolve(part), {}, part.source, name).commands
            words += [word for command in commands[:1] for word in command.words]
    name_in_file = section.get("image")
    image = text_of(apply_controller_variables(name_in_file.pieces, _IN_COMPOSE, {}))
    image = image or name_in_file.text or ""
    return Container(
        words=tuple(words)
        if section.get("entrypoint").node is not None
        else program_of(image, words, section.line, _devices(section)),
        environment=environment,
        resources=JobResources(gpus_per_node=_devices(section)),
        line=section.line,
        doubts=image_without_gpu(image),
    )


def gpu_of_nodes(pod: YamlValue) -> str | None:
    """Return the GPU label of nodes that a pod selects (known GPUs first); None if it has none."""
    labels = [pod.get("nodeSelector", key).text for key in _GPU_KINDS]
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = pod.get("affinity", "nodeAffinity", needed, "nodeSelectorTerms").entries()
    terms += pod.get("nodeSelectorTerms").entries()  # of vLLM's production-stack
    rules = [rule for term in terms for rule in term.get("matchExpressions").entries()]
    for rule in rules:
        is_kind = rule.get("key").text in _GPU_KINDS and rule.get("operator").text == "In"
        labels += [value.text for value in rule.get("values").entries()] if is_kind else []
    return min(filter(None, labels), key=lambda kind: parse_gpu_name(kind) is None, default=None)


def _devices(section: YamlValue) -> ParsedOption | None:
    """Return the number of GPUs that a Compose service reserves; None if all or unspecified."""
    devices = section.get("deploy", "resources", "reservations", "devices")
    for device in devices.entries():
        if (count := device.get("count")).text:
            return None if count.text == "all" else count.option_text("count")
        if ids := device.get("device_ids").entries():
            number = sum(len((entry.text or "").split(",")) for entry in ids)
            return implied_option("device_ids", str(number), ids[0].line)
    return None


def gpu_limit(container: YamlValue, section: str = "resources") -> ParsedOption | None:
    """Return the GPUs in a container's limits, else in its requests; None if in neither."""
    for group in _GROUPS_OF_RESOURCES:
        for key in _GPU_LIMITS:
            if (option := container.get(section, group, key).option_text(key)) is not None:
                return option
    return None


def pod_resources(pod: YamlValue, section: YamlValue, copies: str) -> JobResources:
    """Return GPU type and copies of a pod, and the GPUs in the limits of a section."""
    return JobResources(
        gpu=gpu_of_nodes(pod),
        gpus_per_node=gpu_limit(section),
        copies=pod.get(copies).option_text("replicas"),
    )


def accelerators_at(section: YamlValue, key: str) -> JobResources:
    """Return GPU and number under a key: ``H100:8``, ``8``, a list, or a mapping."""
    section = next(iter(section.entries()), section)
    (first, number), *_ = [*section.items()] or [("", section)]
    if section.get("name").text or section.get("count").text:
        first, number = section.get("name").text or "", section.get("count")
    word, _, count = (first or section.text or "").partition(":")
    count = number.text or count if first else count
    if word.isdecimal():
        word, count = "", word
    if not word and not count:
        return JobResources()
    is_size = _MEMORY.match(word) is not None  # any GPU with that much memory
    option = implied_option(key, count or "1", section.line)
    return JobResources(
        gpu=None if is_size else word or None,
        gpus_per_node=option if (count or "1").isdecimal() else None,
    )


@lru_cache(maxsize=4)
def _config_maps_of(source: str) -> Mapping[str | None, Mapping[str, YamlValue]]:
    """Return the values of the ConfigMaps in a text, by name and key."""
    if "ConfigMap" not in source:
        return {}
    with suppress(LaunchError):
        return {
            document.get("metadata", "name").text: dict(document.get("data").items())
            for document in documents(source, "the text")
            if document.get("kind").text == "ConfigMap"
        }
    return {}


def _config_map(source: str, name: str | None) -> Mapping[str, YamlValue]:
    return _config_maps_of(source).get(name, {})


def environment_at(section: YamlValue) -> dict[str, Word]:
    """Return environment variables: from names and values, ``NAME=value`` texts, or a mapping."""
    variables: dict[str, Word] = {}
    for entry in section.entries():
        if entry.is_mapping:
            value = entry.get("value")
            reference = entry.get("valueFrom", "configMapKeyRef")
            if reference.is_mapping:
                data = _config_map(entry.source, reference.get("name").text)
                value = data.get(reference.get("key").text or "", value)
            reason = f"{entry.get('name').text} comes from elsewhere (line {entry.line})"
            pieces = value.pieces if value.text is not None else unknown_text(reason)
            variables[entry.get("name").text or ""] = word_at(
                pieces, value if value.text else entry
            )
        elif "=" in (entry.text or ""):
            name = (entry.text or "").partition("=")[0]
            variables[name] = word_at(YamlValue.pieces_after(entry, f"{name}="), entry)
    variables |= {key: word_at(value.pieces, value) for key, value in section.items()}
    return variables


def apply_controller_variables(
    pieces: Pieces, pattern: re.Pattern[str], values: Mapping[str, Pieces]
) -> Pieces:
    """Replace matches of ``pattern`` by ``values``, else by their default or unknown text."""
    done: list[TextPiece] = []
    for piece in pieces:
        passed = 0
        for match in pattern.finditer(piece.text):
            done.append(piece.part(passed, match.start()))
            passed = match.end()
            groups: dict[str, str | None] = match.groupdict()
            variable = str(groups["name"] or groups.get("bare"))
            if groups.get("escaped"):
                done.append(piece.part(*match.span("escaped")))
            elif variable in values:
                done += values[variable]
            elif groups.get("default") is not None:
                default = piece.part(*match.span("default"))
                done += apply_controller_variables((default,), pattern, values)
            else:
                done += unknown_text(f"{match.group()} is set by nothing in this file")
        done.append(piece.part(passed, len(piece.text)))
    return tuple(piece for piece in done if piece.text or piece.unknown) or computed_text("")


def word_at(pieces: Pieces, value: YamlValue) -> Word:
    """A word that stands at a place."""
    return Word.of(pieces, value.line, value.text or "")


def words_at(*lists: YamlValue) -> list[Word]:
    """The entries of lists as words."""
    return [word_at(entry.pieces, entry) for section in lists for entry in section.entries()]


def vllm_words(model: YamlValue, options: Iterable[Word], line: int) -> tuple[Word, ...]:
    """The command with which vLLM serves a model, given with or without ``hf://``."""
    name = word_at(YamlValue.pieces_after(model, "hf://"), model)
    return (*plain_words("vllm serve", line), name, *options)


def plain_word(text: str, line: int) -> Word:
    """A word that a key stands for."""
    return Word.of(computed_text(text), line, text)


def options_at(section: YamlValue, keys: Mapping[str, str]) -> Iterator[Word]:
    """Yield options with values from keys of a section; ``keys`` maps a key to its option."""
    for key, option in keys.items():
        if (value := section.get(*key.split("."))).text:
            yield plain_word(option, value.line)
            yield word_at(value.pieces, value)


def plain_words(text: str, line: int) -> tuple[Word, ...]:
    """The words of a command that a key stands for."""
    return tuple(plain_word(word, line) for word in text.split())


def shell_words(script: Word) -> tuple[Word, ...]:
    """The command of a shell that runs a script."""
    return (*plain_words("bash -c", script.line), script)
