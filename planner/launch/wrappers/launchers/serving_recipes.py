"""Programs, images and published recipes that start servers with options of their own.

Sources: NVIDIA/srt-slurm, recipes/, whose sections are options of each worker's engine;
vllm-project/recipes, models/ and strategies/ (2026-08); SemiAnalysisAI/InferenceX,
configs/CONFIGS.md and .github/workflows/benchmark-tmpl.yml (2026-08), whose scripts take model,
degrees, lengths and load from their environment.

Programs with options of their own: Xinference, DJL Serving, Triton, NIM.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from planner.base import read_files
from planner.base.records import record
from planner.documents.shell import HereDocument
from planner.documents.shell.edits import LARGEST, ParsedOption, implied_option
from planner.documents.shell.syntax import Word, computed_text, unknown_text
from planner.documents.yaml_positions import YamlValue, documents
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases, shipped_rows
from planner.launch.read.parsed_launch import LENGTHS, MAX_PARENT_FOLDERS, JobResources
from planner.launch.wrappers.launchers.containers import (
    Container,
    environment_at,
    plain_word,
    plain_words,
    word_at,
)

_SECTIONS = ("sglang_config", "vllm_config", "trtllm_config")
_WORKERS = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}
_MODEL_OPTIONS = ("model-path", "model")
_LENGTHS = dict(zip(LENGTHS, ("isl", "osl"), strict=True))
_SEVERAL = re.compile(r"\d+(?:\s*[x,]\s*\d+)*")
# Strategies of vLLM's recipes on one node, as the options of their files.
_STRATEGIES = {"single_node_tp": (), "single_node_tep": ("--enable-expert-parallel",)}
_ALL_ARGUMENTS = ("$@", "[@]}")
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


def add_file_options(
    words: Sequence[Word], environment: Mapping[str, Word], files: Mapping[str, HereDocument]
) -> list[Word]:
    """Replace the word for all arguments by the options that the container reads from a file.

    As charts of AI-Hypercomputer/gpu-recipes do: src/helm-charts/*/inference-templates.
    """
    file_variable = environment.get("SERVER_ARGS_FILE")
    keys = (
        []
        if file_variable is None
        else [PurePath(file_variable.text or "").name, "serving-configuration"]
    )
    arguments_file = next((files[key] for key in keys if key in files), None)
    positions = [
        position
        for position, word in enumerate(words)
        if word.raw.strip('"').endswith(_ALL_ARGUMENTS)
    ]
    if arguments_file is None or not positions:
        return [*words]
    options = [
        word
        for document in documents(arguments_file.text, keys[0])
        for word in options_of(document, "--")
    ]
    return [*words[: positions[0]], *options, *words[positions[0] + 1 :]]


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
                name=kind,
                image=document.get("model", "container").text or "",
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
    for name, variant in document.get("variants").items():
        model_id = variant.get("model_id")
        checkpoint = model_id if model_id.text else model.get("model_id")
        lists = [model.get("base_args"), *features, variant.get("extra_args")]
        yield Container(
            name=name,
            image="",
            words=(
                *plain_words("vllm serve", variant.line),
                word_at(checkpoint.pieces, checkpoint),
                *(word_at(entry.pieces, entry) for section in lists for entry in section.entries()),
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
                name=role,
                image=entry.get("image").text or "",
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


_FRONTEND_OPTIONS = ("--n-gpu", "--gpu-idx", "--worker-ip", "--model-path", "--n-worker")
_KINDS = ("instruct", "chat", "it")
_FIELD = re.compile(
    r"^[ \t]*(?P<name>backend|max_batch_size)[ \t]*:[ \t]*\"?(?P<value>\w+)", re.MULTILINE
)
_PARAMETER = re.compile(
    r"key\s*:\s*\"(?P<name>\w+)\"\s*,?\s*value\s*:?\s*\{\s*string_value\s*:\s*\"(?P<value>[^\"]*)\""
)
# docs.nvidia.com, NIM for LLMs, profiles of models: tensorrt_llm-h100-fp8-tp4-pp1-throughput,
# vllm-bf16-tp2-pp1; docs of 2.0 say that without one the best for the GPUs of the machine is taken.
_PROFILE = re.compile(
    r"(?P<engine>tensorrt_llm|vllm|sglang)-(?:[\w-]+-)?(?P<stored>fp8|nvfp4|mxfp4|bf16|fp16)"
    r"(?:-tp(?P<tp>\d+))?(?:-pp(?P<pp>\d+))?"
)


def unwrap_frontend(words: Sequence[Word], environment: Mapping[str, Word]) -> tuple[Word, ...]:
    """Return the server command that a front end (NIM, DJL, Xinference) starts; else ``words``."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "nim":
        return (*_of_nim(words, environment), *words[3:])
    if name == "djl-serving":
        variables = {key: word.text or "" for key, word in environment.items()}
        rows = {
            f"option.{key[7:].lower()}": variables[key]
            for key in variables
            if key.startswith("OPTION_")
        }
        rows = {"option.model_id": variables.get("HF_MODEL_ID", ""), **rows}
        rows.setdefault(
            "option.tensor_parallel_degree", variables.get("TENSOR_PARALLEL_DEGREE", "max")
        )
        command = served_by_properties("\n".join(f"{key}={rows[key]}" for key in rows))
        if not command:
            return (*words,)
        return (
            *_computed_words(shlex.split(command.replace("\\\n", " ").rstrip("\\")), words[0].line),
        )
    return _of_xinference(words) if (name, *texts[1:2]) == ("xinference", "launch") else (*words,)


def _computed_words(texts: Sequence[str], line: int) -> Iterator[Word]:
    return (Word.of(computed_text(text), line, text) for text in texts)


def _of_nim(words: Sequence[Word], environment: Mapping[str, Word]) -> Iterator[Word]:
    """Yield the engine command of a NIM profile; without a profile vLLM on all specified GPUs.

    ``words`` are ``nim``, the model of the image and the number of GPUs, then options.
    """
    _, model, number = (word.text or "" for word in words[:3])
    texts = {name: word.text or "" for name, word in environment.items()}
    model_name = texts.get("NIM_MODEL_PATH") or texts.get("NIM_MODEL_NAME") or model
    model_name = model_name.removeprefix("hf://")
    profile = _PROFILE.match(texts.get("NIM_MODEL_PROFILE", ""))
    profile_values = {"engine": "vllm", "tp": number, **(profile.groupdict() if profile else {})}
    server = option_aliases("server")[profile_values["engine"]].split()
    names = option_aliases(f"nim {profile_values['engine']}").values()
    option_names = {word.begins.partition("=")[0] for word in words[3:]}
    has_model = words[3:] and not words[3].begins.startswith("-")  # the model of an image of any
    yield from _computed_words([*server, *([] if has_model else [model_name])], words[0].line)
    values = (
        profile_values["tp"] or number,
        profile_values.get("pp"),
        texts.get("NIM_MAX_MODEL_LEN"),
    )
    for option, value in zip(names, values, strict=True):
        if value and option not in option_names:
            yield from _computed_words([option, value], words[0].line)
    if profile and profile["stored"] == "fp8" and profile_values["engine"] == "vllm":
        yield from _computed_words(["--quantization", "fp8"], words[0].line)
    elif profile and profile_values["engine"] == "tensorrt_llm":
        algorithm = {"fp8": "FP8", "nvfp4": "NVFP4"}.get(profile["stored"])
        yield from _computed_words(
            ["--quantization", algorithm] if algorithm else [], words[0].line
        )


def _of_xinference(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the vLLM or SGLang command of ``xinference launch``; other engines unchanged."""
    texts, aliases = [word.text or "" for word in words], option_aliases("xinference")
    options: dict[str, str] = {}
    rest: list[Word] = []
    index = 2
    while index < len(words):
        name, equals, value = texts[index].partition("=")
        name = aliases.get(name, name.replace("_", "-"))
        if name in (*aliases.values(), *_FRONTEND_OPTIONS):
            options[name] = value if equals else next(iter(texts[index + 1 : index + 2]), "")
            index += 1 if equals else 2
        else:
            rest.append(words[index])
            index += 1
    engine = options.get("--model-engine", "").lower()
    if engine not in ("vllm", "sglang"):
        return tuple(words)
    command = [
        *option_aliases("server")[engine].split(),
        options.get("--model-path") or _model_name(options),
    ]
    if options.get("--n-gpu", "auto").isdigit():
        command += ["--tensor-parallel-size", options["--n-gpu"]]
    return (*_computed_words(command, words[0].line), *rest)


def _model_name(options: dict[str, str]) -> str:
    """Return a model name from Xinference's options: name, size, kind of training, format.

    >>> _model_name({"--model-name": "qwen2.5-instruct", "--size-in-billions": "0_5"})
    'qwen2.5-0.5b-instruct'
    """
    stem, _, kind = options.get("--model-name", "").rpartition("-")
    if kind not in _KINDS:
        stem, kind = options.get("--model-name", ""), ""
    size = options.get("--size-in-billions", "").replace("_", ".")
    form = options.get("--model-format", "")
    bits = [options.get("--quantization", "Int4")] if form == "gptq" else []
    forms = [form, *bits] if form in ("gptq", "awq", "fp8") else []
    return "-".join(part for part in (stem, f"{size}b" if size else "", kind, *forms) if part)


def served_by_properties(text: str) -> str:
    """Return the server command that ``serving.properties`` starts, line by line; "" if none.

    >>> served_by_properties("option.model_id=a/b\\noption.tensor_parallel_degree=4").split()
    ['vllm', 'serve', 'a/b', '\\\\', '--tensor-parallel-size', '4', '\\\\']
    """
    option_lines = (
        line.strip() if line.strip().startswith("option.") else "" for line in text.split("\n")
    )
    rows = [line.removeprefix("option.").partition("=") for line in option_lines]
    properties = {key.strip(): value.strip() for key, equals, value in rows if equals}
    program = option_aliases("djl server").get(properties.get("rolling_batch", ""))
    if program is None or "model_id" not in properties:
        return ""
    names = option_aliases(f"djl {program.split()[0]}")
    lines: list[str] = []
    for key, equals, value in ((key.strip(), equals, value.strip()) for key, equals, value in rows):
        is_engine_option = equals and program != "trtllm-serve"
        option = names.get(key, f"--{key.replace('_', '-')}" if is_engine_option else "")
        if not option or value == "false" or value == "max" or "." in option:
            lines.append("\\")
        else:
            lines.append(f"{option} {'' if value == 'true' else shlex.quote(value)} \\")
    start = f"{program} {shlex.quote(properties['model_id'])}"
    return "\n".join((f"{start} {lines[0]}", *lines[1:]))


def started_by_unit(text: str) -> str:
    """Return a systemd unit as a script: its variables and commands, line by line.

    >>> started_by_unit("[Service]\\nEnvironment=A=1\\nExecStart=-/bin/vllm serve a/b")
    '\\nexport A=1\\n/bin/vllm serve a/b'
    """
    lines: list[str] = []
    continues = False
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if continues:
            lines.append(line)
        elif key.strip() == "Environment":
            lines.append(f"export {value}")
        else:
            lines.append(value.lstrip("-@:+!|") if key.strip() == "ExecStart" else "")
        continues = bool(lines[-1]) and line.endswith("\\")
    return "\n".join(lines)


def unsupported_server(programs: Sequence[str], text: str) -> str:
    """Return the message for a server without predictions; "" for any other.

    The server is recognized by its program, or by the keys of its document.

    >>> unsupported_server(["/usr/bin/koboldcpp"], "")[:40]
    'starts KoboldCpp: planner has no profile'
    """
    names = {*programs, *(program.rpartition("/")[2] for program in programs)}
    for row in shipped_rows("wrappers/launchers/refused.csv"):
        keys = row["keys"].split()
        is_document = all(re.search(rf"^[ \t-]*{key}[ \t]*:", text, re.MULTILINE) for key in keys)
        if names & {*row["programs"].split()} or (keys and not programs and is_document):
            return (
                f"starts {row['name']}: planner has no profile and no published runs of it. "
                "The nearest prediction is the same model with the same lengths in another "
                f"server. Give the command, {row['instead']}."
            )
    return ""


def served_by_triton(text: str) -> str:
    """Return the TensorRT-LLM command for a Triton model's ``config.pbtxt``; "" for other backends.

    Its folder is that of an engine; only the engine's config specifies how it is split.

    >>> served_by_triton('backend: "tensorrtllm"\\nmax_batch_size: 64\\nparameters: {\\n'
    ...     '  key: "gpt_model_path"\\n  value: { string_value: "/m/llama-3-8b" }\\n}')
    'trtllm-serve /m/llama-3-8b --tp_size $TP --max_batch_size 64'
    """
    fields = {match["name"]: match["value"] for match in _FIELD.finditer(text)}
    parameters = {match["name"]: match["value"] for match in _PARAMETER.finditer(text)}
    if fields.get("backend") != "tensorrtllm" or "gpt_model_path" not in parameters:
        return ""
    words = ["trtllm-serve", parameters["gpt_model_path"], "--tp_size", "$TP"]
    if fields.get("max_batch_size", "0") != "0":
        words += ["--max_batch_size", fields["max_batch_size"]]
    for name, option in option_aliases("triton").items():
        value = parameters.get(name, "").lower()
        if value not in ("", "false") and "$" not in value:
            words += [option] if value == "true" else [option, value]
    return " ".join(word if word.startswith("$") else shlex.quote(word) for word in words)
