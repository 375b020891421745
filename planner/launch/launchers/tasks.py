"""Servers that YAML of other tools tells: tasks of SkyPilot, models of KubeAI, Truss, srt-slurm.

Sources: skypilot-org/skypilot, docs, Task YAML and environment variables (0.10);
substratusai/kubeai, docs/reference/kubernetes-api.md (0.21); basetenlabs/truss, config.yaml (0.9);
NVIDIA/srt-slurm, recipes/, whose sections are options of each worker's engine.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.documents.shell.inner import read_inner
from planner.documents.shell.text import stated
from planner.documents.shell.values import Pieces, Word
from planner.documents.yaml_places import Place, documents
from planner.launch.launchers.containers import (
    Container,
    environment_at,
    in_mounts,
    plain_word,
    program_of,
    word_at,
)
from planner.launch.understood import World

_SKY = "SKYPILOT_"
_CACHE = "/app/model_cache/"
# Keys of a recipe, and the words that start their engine.
_ENGINES = {
    "sglang_config": ("python3", "-m", "sglang.launch_server", "--model-path"),
    "vllm_config": ("vllm", "serve", "--model"),
    "trtllm_config": ("trtllm-serve",),
}
_WORKERS = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}
_OWN_MODEL = ("model-path", "model")


def tasks_of(text: str, name: str) -> tuple[Container, ...]:
    """What a file of YAML documents starts as a task; empty where it has none.

    Raises
    ------
    LaunchError
        It is no YAML, is too long or nested too deeply.
    """
    return tuple(one for document in documents(text, name) for one in _tasks(document, name))


def _tasks(document: Place, name: str) -> Iterator[Container]:
    resources = document.get("resources")
    if document.get("run").text:
        yield _of_sky(document, resources)
    elif (document.get("apiVersion").text or "").startswith("kubeai.org/"):
        yield _of_kubeai(document.get("spec"))
    elif document.get("docker_server", "start_command").text:
        yield _of_truss(document, name)
    elif document.get("backend").is_mapping and resources.get("gpu_type").text:
        yield from _of_recipe(document)


def _counted(place: Place) -> World:
    """The first of the accelerators that may be taken: ``H100:8``, a list or a mapping of such."""
    (first, number), *_ = [*place.items()] or [("", place)]
    place = next(iter(place.entries()), place)
    word, _, count = (first or place.text or "").partition(":")
    if not word:
        return World()
    count = number.text or count if first else count
    return World(gpu=word, gpus_per_node=stated("accelerators", count or "1", place.line))


def _of_sky(document: Place, resources: Place) -> Container:
    choices = [resources, *resources.get("any_of").entries(), *resources.entries()]
    worlds = (_counted(one.get("accelerators")) for one in choices)
    world = next((one for one in worlds if one.gpu), World())
    nodes = document.get("num_nodes")
    each = "1" if world.gpus_per_node is None else str(world.gpus_per_node.single)
    known = {"NUM_GPUS_PER_NODE": each, "NUM_NODES": nodes.text or "1", "NODE_RANK": "0"}
    run = document.get("run")
    words = (plain_word("bash", run.line), plain_word("-c", run.line), word_at(run.pieces, run))
    return Container(
        name=document.get("name").text or "",
        image="",
        words=words,
        environment={
            **environment_at(document.get("envs")),
            **{_SKY + name: plain_word(value, nodes.line) for name, value in known.items()},
        },
        world=World(
            num_nodes=nodes.given("num_nodes"), gpus_per_node=world.gpus_per_node, gpu=world.gpu
        ),
        line=run.line,
    )


def _of_kubeai(spec: Place) -> Container:
    """A model of KubeAI: its engine's server, with options as they are."""
    profile, _, count = (spec.get("resourceProfile").text or "").partition(":")
    url = spec.get("url")
    is_vllm = spec.get("engine").text == "VLLM"
    options = (word_at(entry.pieces, entry) for entry in spec.get("args").entries())
    program = (plain_word(word, spec.line) for word in ("vllm", "serve"))
    model = word_at(Place.pieces_after(url, "hf://"), url)
    return Container(
        name="",
        image=spec.get("image").text or "",
        words=(*program, model, *options) if is_vllm else (),
        environment=environment_at(spec.get("env")),
        world=World(
            gpu=profile or None,
            gpus_per_node=stated("resourceProfile", count or "1", spec.line) if profile else None,
            copies=spec.get("replicas").given("replicas"),
        ),
        line=spec.line,
    )


def _of_truss(document: Place, name: str) -> Container:
    start = document.get("docker_server", "start_command")
    mounts = [
        (f"{_CACHE}{one.get('volume_folder').text}", one.get("repo_id").text or "")
        for one in document.get("model_cache").entries()
    ]
    mounts += [
        (one.get("mount_location").text or "", (one.get("source").text or "").partition("@")[0])
        for one in document.get("weights").entries()
    ]
    environment = environment_at(document.get("environment_variables"))
    pieces: Pieces = in_mounts(start.pieces, mounts)
    commands = read_inner(pieces, environment, start.source, name).commands
    words = [word for command in commands[:1] for word in command.words]
    image = document.get("base_image", "image").text or ""
    return Container(
        name="",
        image=image,
        words=program_of(image, words, start.line),
        environment=environment,
        world=_counted(document.get("resources", "accelerator")),
        line=start.line,
    )


def _of_recipe(document: Place) -> Iterator[Container]:
    """The workers of a recipe of srt-slurm, each kind with the options of its engine."""
    resources = document.get("resources")
    for engine, program in _ENGINES.items():
        for kind, words in _WORKERS.items():
            section = document.get("backend", engine, kind)
            if not section.is_mapping:
                continue
            served = [section.get(f"served{dash}model{dash}name") for dash in "-_"]
            named = [one for one in served if one.text]
            model = next(iter(named), document.get("model", "path"))
            yield Container(
                name=kind,
                image=document.get("model", "container").text or "",
                words=(
                    *(plain_word(word, section.line) for word in program),
                    word_at(model.pieces, model),
                    *_options(section, "" if engine == "trtllm_config" else "--"),
                ),
                world=World(
                    gpu=resources.get("gpu_type").text,
                    copies=resources.get(f"{words}_workers").given("workers"),
                ),
                role=kind if kind == words else "",
                line=section.line,
            )


def _options(section: Place, dashes: str, above: str = "") -> Iterator[Word]:
    """The keys of a section as options of a command, or as ``key=value`` words of a document."""
    for key, value in section.items():
        own = above + (key.replace("_", "-") if dashes else key)
        if value.is_mapping and not dashes:
            yield from _options(value, dashes, f"{own}.")
        elif value.text is None or own in _OWN_MODEL:
            continue
        elif not dashes:
            yield plain_word(f"{own}={value.text}", value.line)
        elif value.text.lower() != "false":
            yield plain_word(f"{dashes}{own}", value.line)
            if value.text.lower() != "true":
                yield word_at(value.pieces, value)
