"""Commands in YAML files of SkyPilot, dstack, KubeAI, KAITO, Truss and llm-d.

Sources: skypilot-org/skypilot, docs, Task YAML and environment variables (0.10); dstackai/dstack,
docs/reference/dstack.yml/service.md (0.19); kaito-project/kaito, docs/inference/README.md (0.6),
whose presets vLLM serves; substratusai/kubeai, docs/reference/kubernetes-api.md (0.21);
basetenlabs/truss, config.yaml (0.9) and, of its engines, basetenlabs/truss-examples (2026-04);
llm-d-incubation/llm-d-modelservice, README.md (0.3), and llm-d/llm-d-deployer, charts (1.0), whose
values configure the workers of both kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.documents.shell.edits import implied_option
from planner.documents.shell.nested_scripts import read_inner
from planner.documents.shell.syntax import Pieces, computed_text
from planner.documents.yaml_positions import YamlValue, documents
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import LENGTHS, JobResources
from planner.launch.wrappers.read_containers import (
    Container,
    apply_mounts,
    container_at,
    environment_at,
    gpu_limit,
    options_at,
    plain_word,
    plain_words,
    program_of,
    shell_words,
    word_at,
)
from planner.launch.wrappers.read_recipes import entries_of, options_of, recipes_of
from planner.launch.wrappers.read_resources import INSTANCES, parse_gpu_name

_SKY = "SKYPILOT_"
_CACHE = "/app/model_cache/"
_ALGORITHMS = {"fp8": "FP8", "fp4": "NVFP4"}
_KINDS = ("prefill", "decode")
_OF_DSTACK = ("service", "task")
_GPUS_OF_DSTACK = ("GPUS_NUM", "GPUS_PER_NODE")
_MEMORY = re.compile(r"\d+(?:\.\.|GB|MB|$)", re.IGNORECASE)


def tasks_of(text: str, name: str) -> tuple[Container, ...]:
    """Return the containers that a file of YAML tasks describes; empty if it has none.

    Raises `LaunchError`: it is no YAML, is too long or nested too deeply.
    """
    return tuple(task for document in documents(text, name) for task in _tasks(document, name))


def _tasks(document: YamlValue, name: str) -> Iterator[Container]:
    """Yield the containers of a document, by the tool whose keys it has; none otherwise."""
    resources = document.get("resources")
    if document.get("run").text:
        yield _of_sky(document, resources)
    elif document.get("type").text in _OF_DSTACK and document.get("commands").entries():
        yield _of_dstack(document, resources)
    elif document.get("inference", "preset", "name").text:
        yield _of_kaito(document)
    elif (document.get("apiVersion").text or "").startswith("kubeai.org/"):
        yield _of_kubeai(document.get("spec"))
    elif document.get("docker_server", "start_command").text:
        yield _of_truss(document, name)
    elif document.get("trt_llm", "build").is_mapping:
        yield _of_trt_llm(document)
    elif pools := _pools_at(document):
        yield from _of_pools(*pools)
    else:
        yield from recipes_of(document)
        yield from entries_of(document)


def _accelerators(section: YamlValue) -> JobResources:
    """Return the GPUs of the first accelerator choice: ``H100:8``, a list or a mapping."""
    (first, number), *_ = [*section.items()] or [("", section)]
    section = next(iter(section.entries()), section)
    word, _, count = (first or section.text or "").partition(":")
    if not word:
        return JobResources()
    count = number.text or count if first else count
    return JobResources(
        gpu=word, gpus_per_node=implied_option("accelerators", count or "1", section.line)
    )


def _of_sky(document: YamlValue, resources: YamlValue) -> Container:
    """Return the container of a SkyPilot task, with the GPUs of its first resource choice."""
    choices = [resources, *resources.get("any_of").entries(), *resources.entries()]
    jobs = (_accelerators(choice.get("accelerators")) for choice in choices)
    job = next((job for job in jobs if job.gpu), JobResources())
    nodes = document.get("num_nodes")
    gpus_per_node = "1" if job.gpus_per_node is None else str(job.gpus_per_node.single)
    variables = {
        "NUM_GPUS_PER_NODE": gpus_per_node,
        "NUM_NODES": nodes.text or "1",
        "NODE_RANK": "0",
    }
    run = document.get("run")
    return Container(
        name=document.get("name").text or "",
        image="",
        words=shell_words(word_at(run.pieces, run)),
        environment={
            **environment_at(document.get("envs")),
            **{_SKY + name: plain_word(value, nodes.line) for name, value in variables.items()},
        },
        resources=JobResources(
            num_nodes=nodes.option_text("num_nodes"),
            gpus_per_node=job.gpus_per_node,
            gpu=job.gpu,
        ),
        line=run.line,
    )


def _of_dstack(document: YamlValue, resources: YamlValue) -> Container:
    """Return the container of a dstack task or service, whose commands form one script."""
    gpu, commands = resources.get("gpu"), document.get("commands")
    word, _, count = (gpu.get("name").text or gpu.text or "").partition(":")
    count = gpu.get("count").text or count or "1"
    script = [
        piece for entry in commands.entries() for piece in (*entry.pieces, *computed_text("\n"))
    ]
    is_size = _MEMORY.match(word) is not None  # any GPU with that much of it
    return Container(
        name=document.get("name").text or "",
        image=document.get("image").text or "",
        words=shell_words(word_at(tuple(script), commands)),
        environment={
            **environment_at(document.get("env")),
            **{f"DSTACK_{name}": plain_word(count, gpu.line) for name in _GPUS_OF_DSTACK},
        },
        resources=JobResources(
            gpu=None if is_size else word or None,
            gpus_per_node=implied_option("gpu", count, gpu.line) if count.isdecimal() else None,
            copies=document.get("replicas").option_text("replicas"),
        ),
        line=commands.line,
    )


def _of_kaito(document: YamlValue) -> Container:
    """Return the vLLM server of a KAITO workspace's preset, on all GPUs of the machine."""
    name, kind = document.get("inference", "preset", "name"), document.get("resource")
    instance = kind.get("instanceType")
    machine = INSTANCES.get((instance.text or "").lower())
    words = [*plain_words(f"vllm serve {name.text}", name.line)]
    if machine is not None:
        words += plain_words(f"--tensor-parallel-size {machine.gpus}", instance.line)
    return Container(
        name="",
        image="",
        words=tuple(words),
        resources=JobResources(
            gpu=instance.text if machine is None else machine.gpu,
            num_nodes=kind.get("count").option_text("count"),
            gpus_per_node=None
            if machine is None
            else implied_option("instanceType", str(machine.gpus), instance.line),
        ),
        line=name.line,
    )


def _of_kubeai(spec: YamlValue) -> Container:
    """Return the vLLM server of a KubeAI model; no command for other engines."""
    profile, _, count = (spec.get("resourceProfile").text or "").partition(":")
    url = spec.get("url")
    is_vllm = spec.get("engine").text == "VLLM"
    options = (word_at(entry.pieces, entry) for entry in spec.get("args").entries())
    program = plain_words("vllm serve", spec.line)
    model = word_at(YamlValue.pieces_after(url, "hf://"), url)
    return Container(
        name="",
        image=spec.get("image").text or "",
        words=(*program, model, *options) if is_vllm else (),
        environment=environment_at(spec.get("env")),
        resources=JobResources(
            gpu=profile or None,
            gpus_per_node=implied_option("resourceProfile", count or "1", spec.line)
            if profile
            else None,
            copies=spec.get("replicas").option_text("replicas"),
        ),
        line=spec.line,
    )


def _of_truss(document: YamlValue, name: str) -> Container:
    """Return the container of a Truss server, with its model folders replaced by repositories."""
    start = document.get("docker_server", "start_command")
    mounts = [
        (f"{_CACHE}{entry.get('volume_folder').text}", entry.get("repo_id").text or "")
        for entry in document.get("model_cache").entries()
    ]
    mounts += [
        (entry.get("mount_location").text or "", (entry.get("source").text or "").partition("@")[0])
        for entry in document.get("weights").entries()
    ]
    environment = environment_at(document.get("environment_variables"))
    pieces: Pieces = apply_mounts(start.pieces, mounts)
    commands = read_inner(pieces, environment, start.source, name).commands
    words = [word for command in commands[:1] for word in command.words]
    image = document.get("base_image", "image").text or ""
    return Container(
        name="",
        image=image,
        words=program_of(image, words, start.line),
        environment=environment,
        resources=_accelerators(document.get("resources", "accelerator")),
        line=start.line,
    )


def _of_trt_llm(document: YamlValue) -> Container:
    """Return the ``trtllm-serve`` command of an engine that Truss builds or starts."""
    spec = document.get("trt_llm")
    build, runtime = spec.get("build"), spec.get("runtime")
    repository = build.get("checkpoint_repository", "repo")
    words = [plain_word("trtllm-serve", build.line), word_at(repository.pieces, repository)]
    for section in (build, runtime):
        words += options_at(section, option_aliases("truss trt_llm"))
    kind = build.get("quantization_type")
    stored, _, cache = (kind.text or "no_quant").partition("_")
    if stored != "no":
        algorithm = _ALGORITHMS.get(stored) if cache in ("", "kv") else kind.text
        words += plain_words(f"--quantization {algorithm or stored}", kind.line)
    if cache == "kv":
        words += plain_words("--kv_cache_dtype fp8", kind.line)
    drafts = build.get("speculator", "num_draft_tokens")
    if drafts.text:
        words.append(plain_word(f"speculative_config.max_draft_len={drafts.text}", drafts.line))
    words += options_of(runtime.get("patch_kwargs"), "")
    encoder = build.get("base_model")
    is_encoder = (encoder.text or "").startswith("encoder")
    return Container(
        name="",
        image="",
        words=tuple(words),
        resources=_accelerators(document.get("resources", "accelerator")),
        load={LENGTHS[1]: implied_option("base_model", "1", encoder.line)} if is_encoder else {},
        line=build.line,
    )


def _pools_at(document: YamlValue) -> tuple[YamlValue, YamlValue] | None:
    """Return the sections of llm-d values with the workers, and with their model; else None."""
    for section in (document, document.get("spec")):
        artifacts = section.get("modelArtifacts")
        if artifacts.is_mapping and any(section.get(kind).is_mapping for kind in _KINDS):
            uri, name = artifacts.get("uri").text or "", artifacts.get("name")
            is_hub = uri.startswith("hf://") and "{{" not in uri  # a template of the name
            return section, artifacts.get("uri") if is_hub or not name.text else name
    for section in (document, document.get("llm-d")):
        sample = section.get("sampleApplication")
        if (model := sample.get("model", "modelArtifactURI")).text:
            return sample, model
    return None


def _of_pools(values: YamlValue, model: YamlValue) -> Iterator[Container]:
    """Yield the prefill and decode workers of llm-d; skip pools that are off or have no copies."""
    off = (("create", "false"), ("enabled", "false"), ("replicas", "0"))
    pools = {
        kind: pool
        for kind in _KINDS
        if (pool := values.get(kind)).is_mapping
        and not any(pool.get(key).text == text for key, text in off)
    }
    for kind, pool in pools.items():
        section = next(iter(pool.get("containers").entries()), pool)
        container = container_at(section, {})
        words = container.words
        if section.get("modelCommand").text != "custom":
            options = [
                word_at(entry.pieces, entry)
                for key in ("args", "extraArgs")
                for entry in section.get(key).entries()
            ]
            option_names = {word.begins.partition("=")[0] for word in options}
            sizes = {
                key: option
                for key, option in option_aliases("llm-d").items()
                if option not in option_names
            }
            options += options_at(pool.get("parallelism"), sizes)
            program = plain_words("vllm serve", pool.line)
            words = (*program, word_at(YamlValue.pieces_after(model, "hf://"), model), *options)
        labels = [*pool.get("acceleratorTypes", "labelValues").entries()]
        labels += [*values.get("acceleratorTypes", "labelValues").entries()]
        labels += [label for _, label in pool.get("nodeSelector").items()]
        yield Container(
            name=kind,
            image=container.image,
            words=words,
            environment=container.environment,
            resources=JobResources(
                gpu=next(
                    (label.text for label in labels if parse_gpu_name(label.text or "")), None
                ),
                gpus_per_node=gpu_limit(section) or gpu_limit(values),
                copies=pool.get("replicas").option_text("replicas"),
            ),
            role=kind if len(pools) == len(_KINDS) else "",
            line=pool.line,
        )
