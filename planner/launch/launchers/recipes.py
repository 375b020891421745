"""Published recipes whose keys tell servers without a command: those of srt-slurm and of vLLM.

Sources: NVIDIA/srt-slurm, recipes/, whose sections are options of each worker's engine;
vllm-project/recipes, models/ and strategies/ (2026-08).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from planner.documents.shell import HereDocument
from planner.documents.shell.text import Given, stated
from planner.documents.shell.values import Word, untold
from planner.documents.yaml_places import Place, documents
from planner.launch.launchers.containers import Container, environment_at, plain_word, word_at
from planner.launch.understood import LENGTHS, World

ENGINES = {
    "sglang_config": ("python3", "-m", "sglang.launch_server", "--model-path"),
    "vllm_config": ("vllm", "serve", "--model"),
    "trtllm_config": ("trtllm-serve",),
}
"""Keys of a recipe, and the words that start their engine."""
_WORKERS = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}
_OWN_MODEL = ("model-path", "model")
_LENGTHS = dict(zip(LENGTHS, ("isl", "osl"), strict=True))
_SEVERAL = re.compile(r"\d+(?:\s*[x,]\s*\d+)*")
# Strategies of vLLM's recipes on one node, as the options of their files.
_STRATEGIES = {"single_node_tp": (), "single_node_tep": ("--enable-expert-parallel",)}
_ALL_GIVEN = ("$@", "[@]}")
_AS_MANY = "the recipe takes all GPUs of the node"


def recipes_of(document: Place) -> Iterator[Container]:
    """The servers that a document tells as one of these recipes does; none of any other."""
    if document.get("backend").is_mapping and document.get("resources", "gpu_type").text:
        yield from _of_srt(document)
    elif document.get("model", "model_id").text and document.get("variants").is_mapping:
        yield from _of_vllm(document)


def requests_at(lengths: Place, at_once: Place) -> dict[str, Given]:
    """The requests that a benchmark sends: ``isl``, ``osl``, and how many at once.

    Of several numbers, listed or as ``4x8x32``, the largest.
    """
    said = {name: given for name, key in _LENGTHS.items() if (given := lengths.get(key).given(key))}
    texts = [one.text or "" for one in (*at_once.entries(), at_once)]
    numbers = [
        int(number)
        for text in texts
        if _SEVERAL.fullmatch(text)
        for number in re.findall(r"\d+", text)
    ]
    if numbers:
        which = " (the largest)" if len(numbers) > 1 else ""
        said["at_once"] = stated(f"concurrency{which}", str(max(numbers)), at_once.line)
    return said


def with_arguments(
    words: Sequence[Word], environment: Mapping[str, Word], files: Mapping[str, HereDocument]
) -> list[Word]:
    """The words of a command with the options that its container reads from a file of its own.

    As charts of AI-Hypercomputer/gpu-recipes do: src/helm-charts/*/inference-templates.
    """
    named = environment.get("SERVER_ARGS_FILE")
    keys = [] if named is None else [PurePath(named.text or "").name, "serving-configuration"]
    found = next((files[key] for key in keys if key in files), None)
    places = [at for at, word in enumerate(words) if word.raw.strip('"').endswith(_ALL_GIVEN)]
    if found is None or not places:
        return [*words]
    own = [word for one in documents(found.text, keys[0]) for word in options_of(one, "--")]
    return [*words[: places[0]], *own, *words[places[0] + 1 :]]


def _of_srt(document: Place) -> Iterator[Container]:
    """The workers of a recipe of srt-slurm, each kind with the options of its engine."""
    resources, measured = document.get("resources"), document.get("benchmark")
    load = requests_at(measured, measured.get("concurrencies"))
    for engine, program in ENGINES.items():
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
                    *options_of(section, "" if engine == "trtllm_config" else "--"),
                ),
                world=World(
                    gpu=resources.get("gpu_type").text,
                    copies=resources.get(f"{words}_workers").given("workers"),
                ),
                role=kind if kind == words else "",
                load=load,
                line=section.line,
            )


def options_of(section: Place, dashes: str, above: str = "") -> Iterator[Word]:
    """The keys of a section as options of a command, or as ``key=value`` words of a document."""
    for key, value in section.items():
        own = above + (key.replace("_", "-") if dashes else key)
        if value.is_mapping and not dashes:
            yield from options_of(value, dashes, f"{own}.")
        elif value.text is None or own in _OWN_MODEL:
            continue
        elif not dashes:
            yield plain_word(f"{own}={value.text}", value.line)
        elif value.text.lower() != "false":
            yield plain_word(f"{dashes}{own}", value.line)
            if value.text.lower() != "true":
                yield word_at(value.pieces, value)


def _of_vllm(document: Place) -> Iterator[Container]:
    """The checkpoints of a model that vLLM's recipes tell, on one node, the first as it stands."""
    model = document.get("model")
    compatible = [one.text or "" for one in document.get("compatible_strategies").entries()]
    strategy = next((name for name in compatible if name in _STRATEGIES), "")
    opted = {one.text for one in document.get("opt_in_features").entries()}
    features = [one.get("args") for name, one in document.get("features").items()
                if name not in opted]  # fmt: skip
    for name, variant in document.get("variants").items():
        own = variant.get("model_id")
        named = own if own.text else model.get("model_id")
        lists = [model.get("base_args"), *features, variant.get("extra_args")]
        yield Container(
            name=name,
            image="",
            words=(
                *(plain_word(word, variant.line) for word in ("vllm", "serve")),
                word_at(named.pieces, named),
                *_listed(lists),
                *(plain_word(word, variant.line) for word in _STRATEGIES.get(strategy, ())),
                plain_word("--tensor-parallel-size", variant.line),
                Word.of(untold(_AS_MANY), variant.line, "GPUS"),
            ),
            environment=environment_at(model.get("base_env")),
            line=variant.line,
        )


def _listed(lists: Sequence[Place]) -> Iterator[Word]:
    for one in lists:
        yield from (word_at(entry.pieces, entry) for entry in one.entries())
