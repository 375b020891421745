"""Documents that describe a server by keys of their own, not by its command.

Kubernetes objects of KServe, NIM, Kubeflow, KAITO and KubeAI; values and objects of vLLM's
production-stack and of llm-d; engines of Truss. Sources: kaito-project/kaito,
docs/inference/README.md (0.6), whose presets vLLM serves; substratusai/kubeai,
docs/reference/kubernetes-api.md (0.21); basetenlabs/truss-examples (2026-04);
llm-d-incubation/llm-d-modelservice, README.md (0.3); of torchtune,
kubeflow/trainer at 8c0f505, ``pkg/runtime/framework/plugins/torch/torchtune.go`` (recipe and
configuration) and ``manifests/base/runtimes/torchtune`` (two GPUs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.documents.shell.syntax import Word
from planner.documents.yaml_positions import YamlValue, documents
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import LENGTHS, JobResources
from planner.launch.wrappers.read_containers import MODULE as MODULE
from planner.launch.wrappers.read_containers import (
    Container,
    accelerators_at,
    apply_controller_variables,
    apply_mounts,
    compose_service,
    container_at,
    environment_at,
    gpu_limit,
    gpu_of_nodes,
    options_at,
    plain_word,
    plain_words,
    pod_resources,
    pods_of,
    program_of,
    vllm_words,
    word_at,
    words_at,
)
from planner.launch.wrappers.read_recipes import entries_of, options_of, recipes_of
from planner.launch.wrappers.read_resources import INSTANCES, parse_gpu_name

_FORMAT = ("spec", "predictor", "model", "modelFormat", "name")
_NIM_FORMAT, _NIM_IMAGES = "nvidia-nim-", "nvcr.io/nim/nvidia/"  # NVIDIA/nim-deploy, kserve
_NIM_PART = "nvcr.io/nim/"
# KServe's runtime that starts vLLM, and its own options; "" if vLLM lacks the option.
_OF_VLLM = ("huggingface", "vllm")
_RUNTIMES = ("ServingRuntime", "ClusterServingRuntime")
_MODELS = "/mnt/models"
"""Where KServe mounts the model of a service."""
_NO_PREFIXES = "--no-enable-prefix-caching"
_MORE_ARGUMENTS = "VLLM_ADDITIONAL_ARGS"
_IN_RUNTIME = re.compile(r"\{\{\s*\.(?P<name>Name)\s*\}\}")
_ALGORITHMS = {"fp8": "FP8", "fp4": "NVFP4"}
_KINDS = ("prefill", "decode")
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MODEL_KEYS = ("modelId", "modelName", "model", "id", "repository", "name", "path", "uri")
_ARGUMENTS, _COPIES = ("args", "extraArgs"), ("replicaCount", "replicas")
_TORCHTUNE_GPUS = 2
_ADAPTED, _QUANTIZED = "model.lora_attn_modules", "model.quantize_base"


def containers_of(text: str, name: str) -> tuple[Container, ...]:
    """Return the containers and servers in a text of YAML documents; empty if it has none.

    Raises LaunchError if the text is no YAML, is too long or nested too deeply.
    """
    containers = tuple(_containers(text, name))
    return containers or tuple(
        server for document in documents(text, name) for server in _servers(document)
    )


def _containers(text: str, name: str) -> Iterator[Container]:
    """Yield the containers of Kubernetes objects, Compose files and values of charts."""
    all_documents = [*documents(text, name)]
    served = {
        document.get("spec", "predictor", "model", "runtime").text or "": document
        for document in all_documents
        if document.get("kind").text == "InferenceService"
    }
    runtimes = {
        document.get("metadata", "name").text: document
        for document in all_documents
        if document.get("kind").text in _RUNTIMES
    }
    for document in all_documents:
        kind = document.get("kind").text
        user = served.get(document.get("metadata", "name").text or "")
        if kind in _RUNTIMES and user is not None:
            yield from _of_service_with_runtime(user, document)
        elif document.get(*_FORMAT[:-2], "runtime").text in runtimes:
            continue
        elif document.get("services").is_mapping and not kind:
            for section in dict(document.get("services").items()).values():
                yield compose_service(section, name)
        elif kind == "VLLMRuntime":
            yield _of_runtime_of_stack(document.get("spec"))
        elif kind == "LLMInferenceService":
            yield from _of_service(document.get("spec"))
        elif _NIM_FORMAT in (model_format := document.get(*_FORMAT).text or ""):
            image = f"{_NIM_IMAGES}{model_format.partition(_NIM_FORMAT)[2]}"
            predictor = document.get("spec", "predictor")
            yield _of_nim(image, predictor, predictor.get("model"), "minReplicas")
        elif kind == "NIMService":
            spec = document.get("spec")
            yield _of_nim(spec.get("image", "repository").text or "", spec, spec, "replicas")
        elif (document.get(*_FORMAT).text or "").lower() in _OF_VLLM:
            yield from _of_runtime(document.get("spec", "predictor"))
        elif kind == "TrainJob":
            yield _of_train_job(document.get("spec"))
        elif kind:
            yield from pods_of(document, kind)
        else:
            for spec in document.get("servingEngineSpec", "modelSpec").entries():
                yield _of_values(spec)
            yield from _of_chart(document)


def _servers(document: YamlValue) -> Iterator[Container]:
    """Yield the servers of a document, by the tool whose keys it has; none otherwise."""
    if document.get("inference", "preset", "name").text:
        yield _of_kaito(document)
    elif (document.get("apiVersion").text or "").startswith("kubeai.org/"):
        yield _of_kubeai(document.get("spec"))
    elif _NIM_PART in (image := document.get("image", "repository").text or ""):  # of its chart
        yield _of_nim(image, document, document, "replicaCount")
    elif document.get("trt_llm", "build").is_mapping:
        yield _of_trt_llm(document)
    elif pools := _pools_at(document):
        yield from _of_pools(*pools)
    else:
        yield from recipes_of(document)
        yield from entries_of(document)


def _of_train_job(spec: YamlValue) -> Container:
    """Return the container of a Kubeflow TrainJob: its command or its runtime's; nodes and GPUs."""
    trainer = spec.get("trainer")
    container = container_at(trainer, {})
    each = gpu_limit(trainer, "resourcesPerNode")
    each = each or trainer.get("numProcPerNode").option_text("numProcPerNode")
    nodes = trainer.get("numNodes").option_text("numNodes")
    resources = JobResources(num_nodes=nodes, gpus_per_node=each)
    runtime = spec.get("runtimeRef", "name")
    arguments = [entry.text or "" for entry in trainer.get("args").entries()]
    words = _torchtune_command(runtime.text or "", arguments, each.single if each else None)
    if words and not trainer.get("command").entries():
        placed = tuple(plain_word(word, runtime.line) for word in words)
        container = replace(container, words=placed, line=runtime.line)
    return replace(container, resources=resources)


def _of_service(spec: YamlValue) -> Iterator[Container]:
    """Yield a vLLM server for each pool of a KServe LLMInferenceService, from its keys."""
    uri, called = spec.get("model", "uri"), spec.get("model", "name")
    model = uri if (uri.text or "").startswith("hf://") else called
    pools = [("decode" if spec.get("prefill").is_mapping else "", spec)]
    pools += [("prefill", spec.get("prefill"))] if spec.get("prefill").is_mapping else []
    for role, pool in pools:
        container = next(
            (container_at(section, {}) for section in pool.get("template", "containers").entries()),
            Container(),
        )
        sizes = pool.get("parallelism")
        options = [*options_at(sizes, option_aliases("kserve parallelism"))]
        if sizes.get("expert").text == "true":
            options.append(plain_word("--enable-expert-parallel", sizes.get("expert").line))
        if more := container.environment.get(_MORE_ARGUMENTS):
            options += [plain_word(word, more.line) for word in (more.text or "").split()]
        limits = [gpu_limit(p) for p in pool.get("template", "containers").entries()]
        yield Container(
            words=vllm_words(model, options, spec.line),
            environment=container.environment,
            resources=JobResources(
                gpu=gpu_of_nodes(pool.get("template")),
                gpus_per_node=next(iter(limits), None),
                copies=pool.get("replicas").option_text("replicas"),
            ),
            role=role,
            line=pool.line,
        )


def _of_nim(image: str, pod: YamlValue, section: YamlValue, copies: str) -> Container:
    """Return the server of a NIM image, in KServe or NVIDIA's operator: its GPUs and copies."""
    return Container(
        words=program_of(image, (), section.line, gpu_limit(section)),
        environment=environment_at(section.get("env")),
        resources=pod_resources(pod, section, copies),
        line=section.line,
    )


_VERSION_TAG = re.compile(r"v?\d+(?:\.\d+)*(?:-\d+)?|latest|main")


def _model_path(uri: str) -> str:
    """Return the path that ends with the model of a storage address.

    The tag of an image is the model, unless it is a version: then the image's name is.

    >>> _model_path("oci://quay.io/a/catalog:granite-3.3-8b-instruct")
    'oci///quay.io/a/catalog/granite-3.3-8b-instruct'
    >>> _model_path("oci://registry.redhat.io/a/modelcar-granite-3-1-8b-instruct:1.5")
    'oci///registry.redhat.io/a/granite-3-1-8b-instruct'
    """
    image, _, tag = uri.rpartition(":")
    if uri.startswith("oci://") and _VERSION_TAG.fullmatch(tag):
        folder, slash, name = image.rpartition("/")
        uri = f"{folder}{slash}{name.removeprefix('modelcar-')}"
    return uri.replace(":", "/")


def _of_service_with_runtime(service: YamlValue, runtime: YamlValue) -> Iterator[Container]:
    """Yield the containers of a KServe runtime with the model, options and GPUs of a service."""
    predictor = service.get("spec", "predictor")
    section = predictor.get("model")
    mounts = [(_MODELS, _model_path(section.get("storageUri").text or ""))]
    variables = {"Name": service.get("metadata", "name").pieces}
    for entry in runtime.get("spec", "containers").entries():
        container = container_at(entry, {}, mounts)
        more = [word_at(apply_mounts(e.pieces, mounts), e) for e in section.get("args").entries()]
        words = (
            word_at(apply_controller_variables(word.pieces, _IN_RUNTIME, variables), entry)
            for word in container.words
        )
        yield replace(
            container,
            words=(*words, *more),
            environment={**container.environment, **environment_at(section.get("env"))},
            resources=pod_resources(
                predictor, section if gpu_limit(section) else entry, "minReplicas"
            ),
        )


def _of_runtime(predictor: YamlValue) -> Iterator[Container]:
    """Yield the vLLM server of KServe's Hugging Face runtime; nothing for its other backend."""
    section = predictor.get("model")
    words = words_at(section.get("args"))
    if any(word.begins.replace("_", "-") == "--backend=huggingface" for word in words):
        return
    options: list[Word] = []
    for entry in section.get("args").entries():
        option, equals, _ = (entry.text or "").partition("=")
        engine_option = option_aliases("kserve huggingface").get(option.replace("_", "-"))
        if engine_option is None:
            options.append(word_at(entry.pieces, entry))
        elif engine_option:
            options.append(plain_word(engine_option, entry.line))
            if equals:
                options.append(word_at(YamlValue.pieces_after(entry, f"{option}="), entry))
    uri = section.get("storageUri")
    if uri.text and not any(word.text == "--model" for word in options):
        before = "hf://"
        if uri.text.startswith("oci://"):  # an image whose tag is the model
            before = f"{uri.text.rpartition(':')[0]}:"
        path = word_at(YamlValue.pieces_after(uri, before), uri)
        if _VERSION_TAG.fullmatch(path.text or ""):
            path = plain_word(_model_path(uri.text).rpartition("/")[2], uri.line)
        options = [plain_word("--model", uri.line), path, *options]
    runtime = section.get("runtime")
    if runtime.text and "huggingface" not in runtime.text:  # its arguments are elsewhere
        options.append(plain_word(f"runtime={runtime.text}", runtime.line))
    yield Container(
        words=(*(plain_word(word, section.line) for word in MODULE), *options),
        environment=environment_at(section.get("env")),
        resources=pod_resources(predictor, section, "minReplicas"),
        line=section.line,
    )


def _of_values(section: YamlValue) -> Container:
    """Return the vLLM server of a ``modelSpec`` entry in the values of vLLM's production-stack."""
    cache = section.get("lmcacheConfig")
    kind = cache.get("nixlRole").text or cache.get("kvRole").text or ""
    return Container(
        words=_of_stack(section, section.get("modelURL"), section.get("vllmConfig")),
        resources=JobResources(
            gpu=gpu_of_nodes(section),
            gpus_per_node=section.get("requestGPU").option_text("requestGPU"),
            copies=section.get("replicaCount").option_text("replicaCount"),
        ),
        role=option_aliases("lmcache").get(kind, ""),
        line=section.line,
    )


def _of_chart(values: YamlValue) -> Iterator[Container]:
    """Yield the vLLM server of a chart's values, by its image and by keys named as options are.

    The chart's templates decide what the keys do, so that they are a doubt.
    """
    image = values.get("image", "repository").text or ""
    if not any(part in image for part, each in option_aliases("image").items() if "vllm" in each):
        return
    sections = [values, *(value for _, value in values.items() if value.is_mapping)]
    leaves = {
        _BETWEEN_WORDS.sub("-", key).lower().replace("_", "-"): value
        for section in sections
        for key, value in section.items()
        if value.text
    }
    options: list[Word] = []
    for option in option_aliases("chart values").values():
        value = leaves.get(option.removeprefix("--"), YamlValue.nothing(values))
        if value.text not in (None, "false"):
            options += (plain_word(option, value.line), word_at(value.pieces, value))
    options += words_at(*(section.get(key) for section in sections for key in _ARGUMENTS))
    models = [values.get("model", key) for key in _MODEL_KEYS]
    models += [section.get(key) for section in sections for key in _MODEL_KEYS[:3]]
    model = next((value for value in models if value.text), None)
    words = [] if model is None else [word_at(model.pieces, model)]
    copies = next((values.get(key) for key in _COPIES if values.get(key).text), None)
    yield Container(
        words=program_of(image, [*words, *options], values.line),
        environment=environment_at(values.get("env")),
        resources=JobResources(
            gpu=gpu_of_nodes(values),
            gpus_per_node=gpu_limit(values),
            copies=copies.option_text("replicas") if copies is not None else None,
        ),
        line=values.line,
        doubts=("the templates of its chart",),
    )


def _of_runtime_of_stack(spec: YamlValue) -> Container:
    """Return the vLLM server of a VLLMRuntime, an object of vLLM's production-stack."""
    model, deployed = spec.get("model"), spec.get("deploymentConfig")
    return Container(
        words=_of_stack(model, model.get("modelURL"), model, spec.get("vllmConfig")),
        resources=JobResources(
            gpus_per_node=deployed.get("resources", "gpu").option_text("gpu"),
            copies=deployed.get("replicas").option_text("replicas"),
        ),
        line=spec.line,
    )


def _of_stack(section: YamlValue, url: YamlValue, *configs: YamlValue) -> tuple[Word, ...]:
    """Return the ``vllm serve`` command of a model; keys of ``configs`` are its options."""
    options: list[Word] = []
    for config in configs:
        options += options_at(config, option_aliases("production-stack"))
    caches = any(config.get("enablePrefixCaching").text == "true" for config in configs)
    options.append(plain_word("--enable-prefix-caching" if caches else _NO_PREFIXES, section.line))
    if any(each.get("enableLoRA").text == "true" for each in (section, *configs)):
        options.append(plain_word("--enable-lora", section.line))
    options += words_at(*(config.get("extraArgs") for config in configs))
    return vllm_words(url, options, section.line)


def _torchtune_command(runtime: str, arguments: Sequence[str], gpus: str | None) -> tuple[str, ...]:
    """Return the words of the command of a runtime; empty if it is not torchtune's.

    >>> " ".join(_torchtune_command("torchtune-llama3.2-1b", ["batch_size=4"], "1"))
    'full_finetune_single_device --config llama3_2/1B_full_single_device batch_size=4'
    """
    parts = runtime.split("-")
    if len(parts) != 3 or parts[0] != "torchtune":
        return ()
    texts = [text.lower() for text in arguments]
    kind = "lora" if any(text.startswith(_ADAPTED) for text in texts) else "full"
    ending = "qlora" if f"{_QUANTIZED}=true" in texts else kind
    recipe = "lora" if ending == "qlora" else kind
    is_one = gpus == "1"
    device_mode = "single_device" if is_one else "distributed"
    config = f"{parts[1].replace('.', '_')}/{parts[2].upper()}_{ending}"
    words = (
        f"{recipe}_finetune_{device_mode}",
        "--config",
        f"{config}_{device_mode}" if is_one else config,
    )
    launched = () if is_one else ("tune", "run", "--nproc_per_node", gpus or str(_TORCHTUNE_GPUS))
    return (*launched, *words, *arguments)


def _of_kaito(document: YamlValue) -> Container:
    """Return the vLLM server of a KAITO workspace's preset, on all GPUs of the machine."""
    name, kind = document.get("inference", "preset", "name"), document.get("resource")
    instance = kind.get("instanceType")
    machine = INSTANCES.get((instance.text or "").lower())
    words = [*plain_words(f"vllm serve {name.text}", name.line)]
    if machine is not None:
        words += plain_words(f"--tensor-parallel-size {machine.gpus}", instance.line)
    return Container(
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
    return Container(
        words=vllm_words(url, words_at(spec.get("args")), spec.line) if is_vllm else (),
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
        words=tuple(words),
        resources=accelerators_at(document.get("resources", "accelerator"), "accelerators"),
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
            options = words_at(section.get("args"), section.get("extraArgs"))
            option_names = {word.begins.partition("=")[0] for word in options}
            sizes = {
                key: option
                for key, option in option_aliases("llm-d").items()
                if option not in option_names
            }
            options += options_at(pool.get("parallelism"), sizes)
            words = vllm_words(model, options, pool.line)
        labels = [*pool.get("acceleratorTypes", "labelValues").entries()]
        labels += [*values.get("acceleratorTypes", "labelValues").entries()]
        labels += [label for _, label in pool.get("nodeSelector").items()]
        yield Container(
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
