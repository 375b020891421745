"""Published recipes that describe servers by keys of their own.

Sources: NVIDIA/srt-slurm, recipes/, whose sections are options of each worker's engine;
vllm-project/recipes, models/ and strategies/ (2026-08); SemiAnalysisAI/InferenceX,
configs/CONFIGS.md and .github/workflows/benchmark-tmpl.yml (2026-08), whose scripts take model,
degrees, lengths and load from their environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from planner.base import read_files
from planner.base.records import record
from planner.documents.shell.edits import LARGEST, ParsedOption, implied_option
from planner.documents.shell.syntax import Word, computed_text, unknown_text
from planner.documents.yaml_positions import YamlValue, documents
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import LENGTHS, MAX_PARENT_FOLDERS, JobResources
from planner.launch.wrappers.read_containers import (
    Container,
    environment_at,
    plain_word,
    plain_words,
    vllm_words,
    word_at,
    words_at,
)

_SECTIONS = ("sglang_config", "vllm_config", "trtllm_config")
_WORKERS = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}
_MODEL_OPTIONS = ("model-path", "model")
_LENGTHS = dict(zip(LENGTHS, ("isl", "osl"), strict=True))
_SEVERAL = re.compile(r"\d+(?:\s*[x,]\s*\d+)*")
# Strategies of vLLM's recipes on one node, as the options of their files.
_STRATEGIES = {"single_node_tp": (), "single_node_tep": ("--enable-expert-parallel",)}
_AS_MANY = "the recipe uses all GPUs of the node"


def recipes_of(document: YamlValue) -> Iterator[Container]:
    """Yield the servers of a recipe (srt-slurm or vLLM's recipes); nothing for other documents."""
    if document.get("backend").is_mapping and document.get("resources", "gpu_type").text:
        yield from _of_srt(document)
    elif document.get("model", "model_id").text and document.get("variants").is_mapping:
        yield from _of_vllm(document)


def requests_at(lengths: YamlValue, concurrency: YamlValue) -> dict[str, ParsedOption]:
    """Return a benchmark's input and output tokens per request, and concurrent requests.

    Of several concurrencies, listed or as ``4x8x32``, the largest counts.
    """
    load = {
        name: option
        for name, key in _LENGTHS.items()
        if (option := lengths.get(key).option_text(key))
    }
    texts = [entry.text or "" for entry in (*concurrency.entries(), concurrency)]
    numbers = [
        int(number)
        for text in texts
        if _SEVERAL.fullmatch(text)
        for number in re.findall(r"\d+", text)
    ]
    if numbers:
        suffix = " (the largest)" if len(numbers) > 1 else ""
        load["at_once"] = implied_option(
            f"concurrency{suffix}", str(max(numbers)), concurrency.line
        )
    return load


def _of_srt(document: YamlValue) -> Iterator[Container]:
    """Yield the prefill, decode or aggregated workers of a recipe of srt-slurm."""
    resources, measured = document.get("resources"), document.get("benchmark")
    load = requests_at(measured, measured.get("concurrencies"))
    for engine in _SECTIONS:
        for kind, words in _WORKERS.items():
            section = document.get("backend", engine, kind)
            if not section.is_mapping:
                continue
            served = [section.get(f"served{dash}model{dash}name") for dash in "-_"]
            model_names = [name for name in served if name.text]
            model = next(iter(model_names), document.get("model", "path"))
            yield Container(
                words=(
                    *plain_words(option_aliases("server")[engine], section.line),
                    word_at(model.pieces, model),
                    *options_of(section, "" if engine == "trtllm_config" else "--"),
                ),
                resources=JobResources(
                    gpu=resources.get("gpu_type").text,
                    copies=resources.get(f"{words}_workers").option_text("workers"),
                ),
                role=kind if kind == words else "",
                load=load,
                line=section.line,
            )


def options_of(section: YamlValue, dashes: str, above: str = "") -> Iterator[Word]:
    """Yield the keys of a section as command options; with ``dashes`` "" as ``key=value`` words."""
    for key, value in section.items():
        name = above + (key.replace("_", "-") if dashes else key)
        if value.is_mapping and not dashes:
            yield from options_of(value, dashes, f"{name}.")
        elif value.text is None or name in _MODEL_OPTIONS:
            continue
        elif not dashes:
            yield plain_word(f"{name}={value.text}", value.line)
        elif value.text.lower() != "false":
            yield plain_word(f"{dashes}{name}", value.line)
            if value.text.lower() != "true":
                yield word_at(value.pieces, value)


def _of_vllm(document: YamlValue) -> Iterator[Container]:
    """Yield a server on one node for each variant of a model in vLLM's recipes."""
    model = document.get("model")
    compatible = [entry.text or "" for entry in document.get("compatible_strategies").entries()]
    strategy = next((name for name in compatible if name in _STRATEGIES), "")
    opted = {entry.text for entry in document.get("opt_in_features").entries()}
    features = [feature.get("args") for name, feature in document.get("features").items()
                if name not in opted]  # fmt: skip
    for variant in dict(document.get("variants").items()).values():
        model_id = variant.get("model_id")
        checkpoint = model_id if model_id.text else model.get("model_id")
        lists = [model.get("base_args"), *features, variant.get("extra_args")]
        yield Container(
            words=(
                *vllm_words(checkpoint, words_at(*lists), variant.line),
                *(plain_word(word, variant.line) for word in _STRATEGIES.get(strategy, ())),
                plain_word("--tensor-parallel-size", variant.line),
                Word.of(unknown_text(_AS_MANY), variant.line, "GPUS"),
            ),
            environment=environment_at(model.get("base_env")),
            line=variant.line,
        )


# Words in names of InferenceX frameworks, and the engine that they start.
_FRAMEWORKS = {"sglang": "sglang_config", "vllm": "vllm_config", "trt": "trtllm_config"}
# Attention of requests of their own on each of the GPUs that tp counts.
_BENCHMARK_OPTIONS = {
    "sglang_config": ("--enable-dp-attention", "--dp-size", "{tp}"),
    "vllm_config": ("--tensor-parallel-size", "1", "--data-parallel-size", "{tp}"),
    "trtllm_config": ("--enable_attention_dp",),
}
_EXPERTS = "--enable-expert-parallel"
_DRAFTS = {
    "sglang_config": ("--speculative-algorithm", "NEXTN"),
    "vllm_config": ("--speculative-config", ""),
    "trtllm_config": ("speculative_config.decoding_type=MTP",),
}
_CONFIGS = ("configs", ".github/configs")
_OF_SCRIPTS = "check_env_vars"
# Variables of scripts: the key of a point, and the default.
_VARIABLES = {"TP": ("tp", "1"), "EP_SIZE": ("ep", "1"), "DP_ATTENTION": ("dp-attn", "false")}
_ENTRY = re.compile(
    r"^(?P<name>[\w.-]+):[ \t]*(?:#[^\n]*)?\n(?:(?:[ \t#][^\n]*)?\n)+", re.MULTILINE
)


def entries_of(document: YamlValue) -> Iterator[Container]:
    """Servers of a document of such entries; none otherwise."""
    for entry in dict(document.items()).values():
        if entry.get("framework").text and entry.get("scenarios").is_mapping:
            yield from _servers(entry)


@record(kw_only=True)
class RecipeEntry:
    """Environment of a script: an entry in the configs of its repository.

    ``text`` is the entry on its lines of its ``file``; ``environment`` has the variables of its
    first point, as ``note`` explains.
    """

    file: Path
    text: str
    environment: Mapping[str, str]
    note: str


def entry_of(path: Path, text: str) -> RecipeEntry | None:
    """Return the InferenceX entry whose name has the words of a script's name; else None."""
    if _OF_SCRIPTS not in text:
        return None
    words = {*re.split(r"[_-]", path.stem.lower())}
    for file in _configs_above(path):
        with suppress(LaunchError):
            config_text = read_files.read_text(file, LARGEST, LaunchError)
            matches = [
                (len(parts), candidate)
                for candidate in _ENTRY.finditer(config_text)
                if words <= (parts := {*candidate["name"].lower().split("-")})
            ]
            if not matches:
                continue
            _, match = min(matches, key=lambda each: each[0])
            (document, *_) = documents(match[0], file.name)
            entry = document.get(match["name"])
            for scenario, point in _points(entry):
                values = _values(entry, scenario, point)
                description = ", ".join(f"{name} {value}" for name, value in values.items())
                return RecipeEntry(
                    file=file,
                    text="\n" * config_text.count("\n", 0, match.start()) + match[0],
                    environment=values,
                    note=f"{description}: as {match['name']} of {file.name} runs the script.",
                )
    return None


def _configs_above(path: Path) -> Iterator[Path]:
    """Yield ``*master*.yaml`` in configuration folders next to a file and in folders above."""
    for folder in path.absolute().parents[:MAX_PARENT_FOLDERS]:
        for name in _CONFIGS:
            with suppress(OSError):
                files = (folder / name).glob("**/*master*.yaml")
                yield from sorted(files, key=lambda file: (len(file.parts), file.name))


def _points(entry: YamlValue) -> Iterator[tuple[YamlValue, YamlValue]]:
    """The scenarios of an entry with each point of their search spaces."""
    for scenarios in dict(entry.get("scenarios").items()).values():
        for scenario in scenarios.entries():
            yield from ((scenario, point) for point in scenario.get("search-space").entries())


def _values(entry: YamlValue, scenario: YamlValue, point: YamlValue) -> dict[str, str]:
    """Return the environment variables of a script for one point of its search space."""
    load = requests_at(scenario, _numbers(point))
    terms = {"ISL": "input_tokens", "OSL": "output_tokens", "CONC": "at_once"}
    return {
        "MODEL": entry.get("model").text or "",
        **{name: point.get(key).text or other for name, (key, other) in _VARIABLES.items()},
        **{name: load[term].single or "" for name, term in terms.items() if term in load},
    }


def _numbers(point: YamlValue) -> YamlValue:
    concurrencies = point.get("conc-list")
    return concurrencies if concurrencies.entries() else point.get("conc-end")


def _servers(entry: YamlValue) -> Iterator[Container]:
    """Yield the servers of an InferenceX entry, one per point of its search spaces and pool.

    The script that runs the entry may have further options.
    """
    framework = entry.get("framework").text or ""
    parts = {*framework.replace("_", "-").split("-")}
    engine = next((name for word, name in _FRAMEWORKS.items() if word in parts), None)
    if engine is None:
        return
    node = entry.node
    entry_text = (
        "" if node is None else "\n" * (entry.line - 1) + entry.source[node.start : node.end]
    )
    runner = (entry.get("runner").text or "").partition(":")
    gpu = (runner[2] or runner[0]).partition("-")[0]
    for scenario, point in _points(entry):
        pools = {role: point.get(role) for role in ("prefill", "decode")}
        workers = {role: pool for role, pool in pools.items() if pool.is_mapping} or {"": point}
        for role, worker in workers.items():
            yield Container(
                words=(
                    *plain_words(option_aliases("server")[engine], point.line),
                    plain_word(entry.get("model").text or "", entry.get("model").line),
                    *_parallel_options(worker, engine, point.get("spec-decoding").text == "mtp"),
                ),
                resources=JobResources(
                    gpu=worker.get("hardware").text or gpu,
                    copies=worker.get("num-worker").option_text("num-worker"),
                ),
                role=role,
                load=requests_at(scenario, _numbers(point)),
                deployment=point.line,
                text=entry_text,
                line=point.line,
            )


def _parallel_options(worker: YamlValue, engine: str, drafts: bool) -> Iterator[Word]:
    """Yield engine options for a worker's parallelism; ``drafts``: it drafts with MTP modules."""
    texts: list[str] = []
    options_by_key = option_aliases(f"inferencex {engine}")
    has_attention_dp = worker.get("dp-attn").text == "true"
    attention_options = tuple(
        text.format(tp=worker.get("tp").text or "1") for text in _BENCHMARK_OPTIONS[engine]
    )
    for key, option in options_by_key.items():
        if (text := worker.get(key).text) and not (
            has_attention_dp and option in attention_options
        ):
            texts += [option, text]
    texts += attention_options if has_attention_dp else ()
    if "ep" not in options_by_key and (worker.get("ep").text or "1") != "1":
        texts.append(_EXPERTS)
    texts += _DRAFTS[engine] if drafts else ()
    for text in texts:
        pieces = (
            computed_text(text)
            if text
            else unknown_text("the script sets how many tokens are drafted")
        )
        yield Word.of(pieces, worker.line, text)
