"""Front ends and service files that start a server with options of their own.

Xinference, DJL Serving, NIM; ``serving.properties``, ``config.pbtxt`` of Triton, units of systemd.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from planner.documents.shell.syntax import Word, computed_text
from planner.launch.option_table import option_aliases, shipped_rows

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
    """Return the server command that a front end (NIM, Xinference) starts; else ``words``."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "nim":
        return (*_of_nim(words, environment), *words[3:])
    if (name, *texts[1:2]) in (("swift", "deploy"), ("swift", "infer")):
        return _of_swift(words)
    if texts[:2] == ["-m", "trl.scripts.vllm_serve"]:
        return (words[0], *_computed_words(["vllm.entrypoints.openai.api_server"], words[1].line),
                *words[2:])  # fmt: skip
    if texts[:2] == ["-m", "llama_cpp.server"]:
        return _of_llama_cpp_python(words)
    return _of_xinference(words) if (name, *texts[1:2]) == ("xinference", "launch") else (*words,)


def _of_llama_cpp_python(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the ``llama-server`` command of llama-cpp-python's server, which has its defaults.

    Source: abetlen/llama-cpp-python 0.3, llama_cpp/server/settings.py: 2,048 tokens, no layer on
    the GPU, one request at once.
    """
    if not any(word.begins.startswith("--model") for word in words):
        return tuple(words)  # its document has the models
    aliases = option_aliases("llama-cpp-python")
    options: list[Word] = []
    for word in words[2:]:
        name, equals, _ = word.begins.partition("=")
        option = aliases.get(name)
        options += _computed_words([option or name], word.line) if name.startswith("--") else [word]
        options += [word.after(len(name) + 1)] if equals else []
    names = {word.begins for word in options}
    missing = {"--ctx-size": "2048", "--n-gpu-layers": "0", "--parallel": "1"}
    defaults = [
        w for option, text in missing.items() if option not in names for w in (option, text)
    ]
    line = words[0].line
    return (*_computed_words(["llama-server"], line), *options, *_computed_words(defaults, line))


_SWIFT_BACKENDS = ("vllm", "sglang", "lmdeploy")
"""Engines of ``swift deploy`` (modelscope/ms-swift 4, docs, Command-line parameters): their options
have the engine's name in front."""
_SWIFT_KEPT = ("--vllm_", "--sglang_", "--lmdeploy_", "--max_model_len", "--tensor_parallel_size")


def _of_swift(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the engine's command of ``swift deploy``; unchanged without an engine and a model."""
    values: dict[str, Word] = {}
    rest: list[Word] = []
    for index, word in enumerate(words[2:], start=2):
        name, equals, _ = word.begins.partition("=")
        value = word.after(len(name) + 1) if equals else (*words, None)[index + 1]
        if not name.startswith("--") or value is None:
            continue
        values[name] = value
        if name.startswith(_SWIFT_KEPT) and (value.text or "").lower() not in ("false", "none"):
            engine_option = re.sub(r"^--(?:vllm|sglang|lmdeploy)_", "--", name).replace("_", "-")
            rest += _computed_words([engine_option], word.line)
            rest += [value] if (value.text or "").lower() != "true" else []
    backend = getattr(values.get("--infer_backend"), "text", None)
    model = values.get("--model", values.get("--model_id_or_path"))
    if backend not in _SWIFT_BACKENDS or model is None:
        return (*words,)
    if backend == "lmdeploy":
        return (*_computed_words(["lmdeploy", "serve", "api_server"], words[0].line), model, *rest)
    server = option_aliases("server")[backend].split()
    return (*_computed_words(server, words[0].line), model, *rest)


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
    for row in shipped_rows("wrappers/refused.csv"):
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
