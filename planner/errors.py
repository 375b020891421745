"""Errors that a user can cause, with their exit codes."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_SUGGESTIONS = 3
# A shorter part is in many words by chance.
_SHORTEST_PART = 4

OTHER_WORDS = {
    "global_batch_size": ("batch_size", "batch", "gbs"),
    "sequence_length": ("seq_len", "seqlen", "context_length", "max_length", "max_seq_length"),
    "gpus": ("nodes", "num_gpus", "gpu_count", "world_size"),
    "gpu": ("gpu_type", "gpu_name", "hardware", "device", "accelerator"),
    "tokens": ("dataset_tokens", "train_tokens", "training_tokens"),
    "calendar_time": ("days", "hours", "within"),
    "input_tokens": ("prompt_tokens", "prompt_length", "input_length", "isl"),
    "output_tokens": ("max_tokens", "max_new_tokens", "output_length", "osl"),
    "request_rate": ("qps", "rps", "rate", "requests_per_second"),
    "precision": ("dtype", "quant", "quantization"),
    "gpus_per_node": ("num_gpus_per_node", "gpus_per_host"),
}
"""What people write, by the option that means it."""
_OPTION_OF_WORD = {word: option for option, words in OTHER_WORDS.items() for word in words}

REMOVED_OPTIONS = {
    "search storage": (
        "planner 0.1.0 was the last version with it. Leave it out: a search with the same seed "
        "and more trials repeats the first trials and continues."
    ),
    "show specs": (
        "planner 0.1.0 was the last version with it. Leave it out: --where compares the names "
        "that the sweep has."
    ),
}
"""By command and option: the last version that had it, and what to do now."""


class PlannerError(Exception):
    """Base of all errors that are the input's fault; the message is shown as it is."""

    exit_code = 1


class SpecError(PlannerError):
    """A GPU, cluster, model, framework or workload is unknown or described wrongly."""

    exit_code = 2


class SearchSpaceError(PlannerError):
    """A search space, parameter, value, objective or constraint is unknown or impossible."""

    exit_code = 3


class InfeasibleError(PlannerError):
    """No configuration satisfies the rules, the memory and the constraints."""

    exit_code = 4


class CalibrationError(PlannerError):
    """The measurements cannot determine the requested parameters."""

    exit_code = 5


class LaunchError(PlannerError):
    """A plan cannot be expressed in the files of the chosen framework."""

    exit_code = 6


class MissingDependencyError(PlannerError):
    """An optional dependency is needed and not installed."""

    exit_code = 7


class OutputError(PlannerError):
    """A result could not be written."""

    exit_code = 8


class WorkersLost(PlannerError):
    """Workers ended repeatedly: out of memory, killed, or out of reach."""

    exit_code = 9


class InstallError(PlannerError):
    """Another distribution's package ``planner`` is installed over this one, or before it."""

    exit_code = 10


def require_installed(needs: str, extra: str, *modules: str) -> None:
    """Check that modules are installed; ``needs`` begins the message.

    Raises MissingDependencyError with the missing modules and the extra that installs them.
    """
    from importlib.util import find_spec

    if missing := [name for name in modules if find_spec(name) is None]:
        raise MissingDependencyError(
            f"{needs} {', '.join(missing)}: pip install 'llm-gpu-planner[{extra}]'."
        )


def close_choices(word: str, choices: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return the choices that begin with a word, else have it, else are similar; at most three.

    ``cutoff`` is the least similarity, from 0 to 1.

    >>> close_choices("qwen3.8", ["qwen3.8-8b", "qwen3.8-70b", "qwen3-8b"])
    ['qwen3.8-70b', 'qwen3.8-8b']
    """
    from difflib import get_close_matches

    candidates, text = sorted(choices), word.lower()
    part = text.lstrip("-")
    starts = [choice for choice in candidates if choice.lower().startswith(text)]
    contain = [choice for choice in candidates if part in choice.lower()]
    is_long = len(text) >= _SHORTEST_PART
    for close in (starts, contain) if is_long else ():
        if 0 < len(close) <= _MAX_SUGGESTIONS:
            return close
    if is_long and starts and text not in starts:
        return get_close_matches(text, starts, n=_MAX_SUGGESTIONS, cutoff=0)
    close = get_close_matches(text, candidates, n=_MAX_SUGGESTIONS, cutoff=cutoff)
    return close or (contain[:_MAX_SUGGESTIONS] if is_long else [])


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint such as ``Did you mean llama-65b?``, or an empty string.

    >>> did_you_mean("lama-65b", ["llama-65b", "gpt-3"])
    ' Did you mean llama-65b?'
    >>> did_you_mean("batch", ["tensor_parallel", "micro_batch_size"])
    ' Did you mean micro_batch_size?'
    >>> did_you_mean("--seq", ["--seed", "--sequence-length"])
    ' Did you mean --sequence-length?'
    >>> did_you_mean("--qps", ["--gpus", "--request-rate"])
    ' Did you mean --request-rate?'
    """
    option = _OPTION_OF_WORD.get(word.lower().lstrip("-").replace("-", "_"))
    named = [choice for choice in choices if choice.lstrip("-").replace("-", "_") == option]
    close = named or close_choices(word, choices)
    return f" Did you mean {' or '.join(close)}?" if close else ""
