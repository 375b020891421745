"""Programs that start a known server under words of their own: Xinference."""

from __future__ import annotations

from collections.abc import Sequence

from planner.documents.shell import Word
from planner.documents.shell.values import computed

_PROGRAM = ("xinference", "launch")
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


def fronted(words: Sequence[Word]) -> tuple[Word, ...]:
    """The command of the server that a front starts; other words as they are."""
    texts = [word.text or "" for word in words]
    if (texts[0].rpartition("/")[2], *texts[1:2]) != _PROGRAM:
        return tuple(words)
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
    return (*(Word.of(computed(text), words[0].line, text) for text in told), *rest)


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
