"""Programs and images that start a known server under words of their own.

Xinference, DJL Serving, Triton, Aphrodite, NIM, the worker of RunPod.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from planner.documents.shell.values import Word, computed
from planner.launch.option_table import shipped_rows

_SERVERS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path"),
}
# xorbitsai/inference, xinference/deploy/cmdline.py (1.5): options of `launch`; further ones are
# those of the engine, with its names.
_SHORT = {"-n": "--model-name", "-en": "--model-engine", "-s": "--size-in-billions",
          "-f": "--model-format", "-q": "--quantization", "-t": "--model-type",
          "-r": "--replica", "-u": "--model-uid", "-e": "--endpoint"}  # fmt: skip
_OWN = {*_SHORT.values(), "--n-gpu", "--gpu-idx", "--worker-ip", "--model-path", "--n-worker"}
_KINDS = ("instruct", "chat", "it")
# deepjavalibrary/djl-serving, serving/docs/lmi/user_guides/vllm_user_guide.md and
# trt_llm_user_guide.md (0.32): keys of serving.properties; further ones are vLLM's own.
_ROLLING = {
    "": ("vllm", "serve"),
    "auto": ("vllm", "serve"),
    "disable": ("vllm", "serve"),  # its server takes requests as they come
    "vllm": ("vllm", "serve"),
    "lmi-dist": ("vllm", "serve"),
    "trtllm": ("trtllm-serve",),
}
_OF_VLLM = {
    "tensor_parallel_degree": "--tensor-parallel-size",
    "pipeline_parallel_degree": "--pipeline-parallel-size",
    "max_rolling_batch_size": "--max-num-seqs",
    "max_rolling_batch_prefill_tokens": "--max-num-batched-tokens",
    "quantize": "--quantization",
}
_OF_TRTLLM = {
    "tensor_parallel_degree": "--tp_size",
    "pipeline_parallel_degree": "--pp_size",
    "max_rolling_batch_size": "--max_batch_size",
    "max_num_tokens": "--max_num_tokens",
}
# triton-inference-server/tensorrtllm_backend, docs/model_config.md: parameters of a model.
_OF_TRITON = {
    "max_beam_width": "--max_beam_width",
    "kv_cache_free_gpu_mem_fraction": "--kv_cache_free_gpu_memory_fraction",
    "enable_chunked_context": "--enable_chunked_prefill",
}
_FIELD = re.compile(r"^\s*(?P<name>backend|max_batch_size)\s*:\s*\"?(?P<value>\w+)", re.MULTILINE)
_PARAMETER = re.compile(
    r"key\s*:\s*\"(?P<name>\w+)\"\s*,?\s*value\s*:?\s*\{\s*string_value\s*:\s*\"(?P<value>[^\"]*)\""
)
# docs.nvidia.com, NIM for LLMs, profiles of models: tensorrt_llm-h100-fp8-tp4-pp1-throughput,
# vllm-bf16-tp2-pp1; docs of 2.0 say that without one the best for the GPUs of the machine is taken.
_PROFILE = re.compile(
    r"(?P<engine>tensorrt_llm|vllm|sglang)-(?:[\w-]+-)?(?P<stored>fp8|nvfp4|mxfp4|bf16|fp16)"
    r"(?:-tp(?P<tp>\d+))?(?:-pp(?P<pp>\d+))?"
)
_OF_PROFILE = {
    "tensorrt_llm": ("--tp_size", "--pp_size", "--max_seq_len"),
    "vllm": ("--tensor-parallel-size", "--pipeline-parallel-size", "--max-model-len"),
    "sglang": ("--tp-size", "--pp-size", "--context-length"),
}
_ENGINES = {**_SERVERS, "tensorrt_llm": ("trtllm-serve",)}
# runpod-workers/worker-vllm, docs/configuration.md: variables that are vLLM's options in capitals.
_OF_WORKER = {
    "TENSOR_PARALLEL_SIZE": "--tensor-parallel-size",
    "PIPELINE_PARALLEL_SIZE": "--pipeline-parallel-size",
    "DATA_PARALLEL_SIZE": "--data-parallel-size",
    "MAX_MODEL_LEN": "--max-model-len",
    "MAX_NUM_SEQS": "--max-num-seqs",
    "MAX_NUM_BATCHED_TOKENS": "--max-num-batched-tokens",
    "GPU_MEMORY_UTILIZATION": "--gpu-memory-utilization",
    "QUANTIZATION": "--quantization",
    "KV_CACHE_DTYPE": "--kv-cache-dtype",
    "DTYPE": "--dtype",
}
NAMES = {
    "xinference": "Xinference",
    "aphrodite": "Aphrodite",
    "nim": "NIM (16 bits on the GPUs that it is given, where no profile is named)",
    "runpod-worker-vllm": "the worker of RunPod",
    "djl-serving": "DJL Serving",
}
"""The fronts by the words that images and commands start them with."""
_NO_OPTIONS = (
    "model_id",
    "rolling_batch",
    "entryPoint",
    "mpi_mode",
    "output_formatter",
    "async_mode",
)


def fronted(words: Sequence[Word], environment: Mapping[str, Word]) -> tuple[Word, ...]:
    """The command of the server that a front starts; other words as they are."""
    texts = [word.text or "" for word in words]
    name = texts[0].rpartition("/")[2]
    if name == "aphrodite" and texts[1:2] == ["run"]:
        has_model = any(text.partition("=")[0] == "--model" for text in texts)
        server = _OPENAI if has_model else _SERVERS["vllm"]
        return (*_plain(server, words[0].line), *words[2:])
    if texts[:2] == ["-m", "aphrodite.endpoints.openai.api_server"]:
        return (*_plain(_OPENAI, words[0].line), *words[2:])
    if name == "nim":
        return (*_of_nim(words, environment), *words[3:])
    if name == "runpod-worker-vllm" and "MODEL_NAME" in environment:
        model = (*_plain(_SERVERS["vllm"], words[0].line), environment["MODEL_NAME"])
        return (*model, *_of_variables(environment, _OF_WORKER))
    if name == "djl-serving":
        told = {key: word.text or "" for key, word in environment.items()}
        rows = {f"option.{key[7:].lower()}": told[key] for key in told if key.startswith("OPTION_")}
        rows = {"option.model_id": told.get("HF_MODEL_ID", ""), **rows}
        rows.setdefault("option.tensor_parallel_degree", told.get("TENSOR_PARALLEL_DEGREE", "max"))
        command = served_by_properties("\n".join(f"{key}={rows[key]}" for key in rows))
        if not command:
            return (*words,)
        return (*_plain(shlex.split(command.replace("\\\n", " ").rstrip("\\")), words[0].line),)
    return _of_xinference(words) if (name, *texts[1:2]) == ("xinference", "launch") else (*words,)


_OPENAI = ("-m", "vllm.entrypoints.openai.api_server")


def _plain(texts: Sequence[str], line: int) -> Iterator[Word]:
    return (Word.of(computed(text), line, text) for text in texts)


def _of_variables(environment: Mapping[str, Word], options: Mapping[str, str]) -> Iterator[Word]:
    for name, option in options.items():
        if (value := environment.get(name)) is not None and value.text != "":
            yield from _plain([option], value.line)
            yield value


def _of_nim(words: Sequence[Word], environment: Mapping[str, Word]) -> Iterator[Word]:
    """The engine of a NIM's profile; that of none is vLLM, on all GPUs that are told.

    Behind the program stand the model of the image and that number.
    """
    _, model, number = (word.text or "" for word in words[:3])
    texts = {name: word.text or "" for name, word in environment.items()}
    named = texts.get("NIM_MODEL_PATH") or texts.get("NIM_MODEL_NAME") or model
    named = named.removeprefix("hf://")
    profile = _PROFILE.match(texts.get("NIM_MODEL_PROFILE", ""))
    told = {"engine": "vllm", "tp": number, **(profile.groupdict() if profile else {})}
    server, names = _ENGINES[told["engine"]], _OF_PROFILE[told["engine"]]
    given = {word.begins.partition("=")[0] for word in words[3:]}
    is_given = words[3:] and not words[3].begins.startswith("-")  # the model of an image of any
    yield from _plain([*server, *([] if is_given else [named])], words[0].line)
    values = (told["tp"] or number, told.get("pp"), texts.get("NIM_MAX_MODEL_LEN"))
    for option, value in zip(names, values, strict=True):
        if value and option not in given:
            yield from _plain([option, value], words[0].line)
    if profile and profile["stored"] == "fp8" and told["engine"] == "vllm":
        yield from _plain(["--quantization", "fp8"], words[0].line)
    elif profile and told["engine"] == "tensorrt_llm":
        algorithm = {"fp8": "FP8", "nvfp4": "NVFP4"}.get(profile["stored"])
        yield from _plain(["--quantization", algorithm] if algorithm else [], words[0].line)


def _of_xinference(words: Sequence[Word]) -> tuple[Word, ...]:
    texts = [word.text or "" for word in words]
    own: dict[str, str] = {}
    rest: list[Word] = []
    place = 2
    while place < len(words):
        name, equals, value = texts[place].partition("=")
        name = _SHORT.get(name, name.replace("_", "-"))
        if name in _OWN:
            own[name] = value if equals else next(iter(texts[place + 1 : place + 2]), "")
            place += 1 if equals else 2
        else:
            rest.append(words[place])
            place += 1
    server = _SERVERS.get(own.get("--model-engine", "").lower())
    if server is None:
        return tuple(words)
    told = [*server, own.get("--model-path") or _model(own)]
    if own.get("--n-gpu", "auto").isdigit():
        told += ["--tensor-parallel-size", own["--n-gpu"]]
    return (*_plain(told, words[0].line), *rest)


def _model(own: dict[str, str]) -> str:
    """A name with its size before the kind of its training, and its format behind.

    >>> _model({"--model-name": "qwen2.5-instruct", "--size-in-billions": "0_5"})
    'qwen2.5-0.5b-instruct'
    """
    stem, _, kind = own.get("--model-name", "").rpartition("-")
    if kind not in _KINDS:
        stem, kind = own.get("--model-name", ""), ""
    size = own.get("--size-in-billions", "").replace("_", ".")
    form = own.get("--model-format", "")
    bits = [own.get("--quantization", "Int4")] if form == "gptq" else []
    forms = [form, *bits] if form in ("gptq", "awq", "fp8") else []
    return "-".join(part for part in (stem, f"{size}b" if size else "", kind, *forms) if part)


def served_by_properties(text: str) -> str:
    """The command, line by line, of the server that ``serving.properties`` starts; empty if none.

    >>> served_by_properties("option.model_id=a/b\\noption.tensor_parallel_degree=4").split()
    ['vllm', 'serve', 'a/b', '\\\\', '--tensor-parallel-size', '4', '\\\\']
    """
    own = (line.strip() if line.strip().startswith("option.") else "" for line in text.split("\n"))
    rows = [line.removeprefix("option.").partition("=") for line in own]
    known = {key.strip(): value.strip() for key, equals, value in rows if equals}
    program = _ROLLING.get(known.get("rolling_batch", ""))
    if program is None or "model_id" not in known:
        return ""
    names = _OF_TRTLLM if program[0] == "trtllm-serve" else _OF_VLLM
    lines: list[str] = []
    for key, equals, value in ((key.strip(), equals, value.strip()) for key, equals, value in rows):
        is_own = names is _OF_VLLM and key not in _NO_OPTIONS
        option = names.get(key, f"--{key.replace('_', '-')}" if equals and is_own else "")
        if not option or value == "false" or value == "max" or "." in option:
            lines.append("\\")
        else:
            lines.append(f"{option} {'' if value == 'true' else shlex.quote(value)} \\")
    start = " ".join((*program, shlex.quote(known["model_id"])))
    return "\n".join((f"{start} {lines[0]}", *lines[1:]))


def started_by_unit(text: str) -> str:
    """The commands of a unit of systemd with their variables, line by line.

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


def refused(programs: Sequence[str], text: str) -> str:
    """What is said of a server that is not predicted, by what it is started with or by the keys
    of its document; empty of any other.

    >>> refused(["/usr/bin/koboldcpp"], "")[:39]
    'starts KoboldCpp, of which planner has '
    """
    names = {*programs, *(one.rpartition("/")[2] for one in programs)}
    for row in shipped_rows("launchers/refused.csv"):
        keys = row["keys"].split()
        is_document = all(re.search(rf"^[\s-]*{key}\s*:", text, re.MULTILINE) for key in keys)
        if names & {*row["programs"].split()} or (keys and not programs and is_document):
            return (
                f"starts {row['name']}, of which planner has no profile and no published runs. "
                f"The nearest that it predicts is the same model with the same lengths in another "
                f"server: give the command, {row['instead']}."
            )
    return ""


def served_by_triton(text: str) -> str:
    """The command of the engine that a model's ``config.pbtxt`` starts; empty of other backends.

    Its folder is that of an engine, whose own config alone tells how it is split.

    >>> served_by_triton('backend: "tensorrtllm"\\nmax_batch_size: 64\\nparameters: {\\n'
    ...     '  key: "gpt_model_path"\\n  value: { string_value: "/m/llama-3-8b" }\\n}')
    'trtllm-serve /m/llama-3-8b --tp_size $TP --max_batch_size 64'
    """
    fields = {one["name"]: one["value"] for one in _FIELD.finditer(text)}
    known = {one["name"]: one["value"] for one in _PARAMETER.finditer(text)}
    if fields.get("backend") != "tensorrtllm" or "gpt_model_path" not in known:
        return ""
    words = ["trtllm-serve", known["gpt_model_path"], "--tp_size", "$TP"]
    if fields.get("max_batch_size", "0") != "0":
        words += ["--max_batch_size", fields["max_batch_size"]]
    for name, option in _OF_TRITON.items():
        value = known.get(name, "").lower()
        if value not in ("", "false") and "$" not in value:
            words += [option] if value == "true" else [option, value]
    return " ".join(word if word.startswith("$") else shlex.quote(word) for word in words)
