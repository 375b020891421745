"""Programs that no target knows by name, told by the options that they take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from planner.documents.shell import Word
from planner.documents.shell.syntax import computed_text
from planner.launch.read.parse_arguments import command_texts, readable_part
from planner.launch.targets import readers
from planner.launch.wrappers.read_containers import program_of_options
from planner.launch.wrappers.read_programs import StartedProgram

# Options that no other trainer has: OpenRLHF/OpenRLHF 021d1b0, openrlhf/cli/train_sft.py.
_OPENRLHF_OPTIONS = {"--pretrain", "--micro_train_batch_size", "--zero_stage", "--max_epochs"}
_OPENRLHF_PROGRAM = re.compile(
    r"(?:.*[./])?(?P<name>train_(?:sft|dpo|rm|kto|ppo_ray|kd|prm))(?:\.py)?"
)
_MIN_OPENRLHF_OPTIONS = 3
# Options that only programs with Megatron's parser take: NVIDIA/Megatron-LM, training/arguments.py.
_MEGATRON_OPTIONS = {
    *("--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings"),
    *("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--micro-batch-size"),
}
_MIN_MEGATRON_OPTIONS = 5


_GENERATES = re.compile(
    r"max_new_tokens|temperature|top_[pk]|num_beams|do_sample|prompts?(_file)?|tasks|benchmarks?"
)
_TRAINS = re.compile(
    r".*(train(?!ed)|learning_rate|epoch|max_steps|accumulation|optim|warmup|lora_r|weight_decay"
    r"|save_steps).*|lr"
)
_CONFIGURES = re.compile(r".*(config|zero_stage).*|c|deepspeed")
_USES_MODEL = re.compile(
    r"(?:^|[_\W])(?:infer(?:ence)?|eval(?:uate|uation)?|generat\w+|chat(?:bot)?|demo|app|serve|server"
    r"|predict|benchmark|eval_harness|embed\w*|text_generation)(?:[_\W]\w*)*\.py$"
)


def only_generates(texts: Sequence[str]) -> bool:
    """Whether a launched program answers or evaluates, and has no option of training.

    >>> only_generates(["accelerate", "launch", "app.py", "--max_new_tokens", "200"])
    True
    >>> only_generates(["accelerate", "launch", "grpo.py", "--temperature=1", "--num_epochs=3"])
    False
    """
    words = [*texts]
    if words[:2] == ["accelerate", "launch"]:
        start = next((n for n, word in enumerate(words) if word.endswith(".py")), len(words))
        words = words[start:]
    names = {
        word.partition("=")[0].lstrip("-").replace("-", "_") for word in words if word[:1] == "-"
    }
    if any(map(_TRAINS.fullmatch, names)):
        return False
    if words and _USES_MODEL.search(words[0].lower()):
        return True
    is_configured = any(map(_CONFIGURES.fullmatch, names))
    return any(map(_GENERATES.fullmatch, names)) and not is_configured


def guess_program(inner: StartedProgram) -> StartedProgram | None:
    """Return an unknown program, or arguments alone, with a tool's options as its command."""
    names = {word.begins.partition("=")[0] for word in inner.words}
    index = int(bool(inner.words) and inner.words[0].text == "-m")
    started = inner.words[index].text if inner.words[index:] else None
    if (match := _OPENRLHF_PROGRAM.fullmatch(started or "")) and (
        len(names & _OPENRLHF_OPTIONS) >= _MIN_OPENRLHF_OPTIONS
    ):
        return _as_program(inner, index, f"openrlhf.cli.{match['name']}", "OpenRLHF")
    is_megatron = len(names & _MEGATRON_OPTIONS) >= _MIN_MEGATRON_OPTIONS and readable_part(
        inner.words[index]
    ).endswith(".py")
    if is_megatron and not only_generates(command_texts(inner.words[index:])):
        return _as_program(inner, index, "pretrain_gpt.py", "Megatron-LM")
    if (start := _engine_start(inner.words)) > 0:
        return replace(inner, words=inner.words[start:], front=inner.words[0].text or "A function")
    program = program_of_options(inner.words)
    first = next((i for i, word in enumerate(inner.words) if word.begins.startswith("--")), None)
    if not program or first is None:
        return None
    line, started = inner.words[0].line, " ".join(word.text or "" for word in inner.words[:first])
    words = [Word.of(computed_text(text), line, text) for text in program.split()]
    for word in inner.words[first:]:
        name, equals, _ = word.begins.partition("=")
        if name == "--model-path" and "--model" not in names and program == "vllm serve":
            words.append(Word.of(computed_text("--model"), word.line, name))
            words += [word.after(len(name) + 1)] if equals else []
        else:
            words.append(word)
    return replace(inner, words=tuple(words), front=started or "A container's list of arguments")


def _engine_start(words: Sequence[Word]) -> int:
    """Return the index of a program of an engine, which a function in front of it runs; else 0."""
    texts = command_texts(words)
    if not texts or texts[0] in _NOT_STARTING:
        return 0
    engines = [target for target in readers().values() if not {"train", "rl"} & {*target.workloads}]
    later = range(1, min(len(texts), _MOST_WORDS_BEFORE + 1))
    return next((i for i in later if any(engine.starts(texts[i:]) for engine in engines)), 0)


_MOST_WORDS_BEFORE = 3
# Programs whose arguments may name an engine that they do not start.
_NOT_STARTING = {
    *("echo", "printf", "which", "type", "pip", "pip3", "uv", "conda", "apt", "apt-get", "git"),
    *("grep", "pgrep", "pkill", "killall", "cat"),
}


def _as_program(inner: StartedProgram, index: int, program: str, tool: str) -> StartedProgram:
    """Return a command with a tool's options as a command of the tool's own program."""
    started = readable_part(inner.words[index]).rpartition("/")[2]
    word = Word.of(computed_text(program), inner.words[index].line, program)
    words = (word, *inner.words[index + 1 :])
    return replace(inner, words=words, front=f"{started}, which has the options of {tool},")
