"""What a training by ``mlx_lm.lora`` on Apple silicon says, in the words of the Trainer.

Source: ml-explore/mlx-lm at 0304b28, ``mlx_lm/lora.py`` (``CONFIG_DEFAULTS``: 4 sequences of 2,048
tokens, 1,000 steps, the last 16 layers, rank 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.documents.shell.text import stated
from planner.errors import SpecError
from planner.launch.option_table import Dialect
from planner.launch.trainer.said import Sources, in_words_of, whole, with_defaults
from planner.launch.understood import Answers, World

MLX = Dialect.load("mlx-lm")
"""Its words for the Trainer's."""
_GPU = "apple-m2ultra-76c-192gb"
_LAYERS = 16


def starts_mlx(words: Sequence[str]) -> bool:
    """Whether a command trains by it.

    >>> starts_mlx(["mlx_lm.lora", "--train"]), starts_mlx(["-m", "mlx_lm", "lora"])
    (True, True)
    """
    own = [word.rpartition("/")[2] for word in words if not word.startswith("-")]
    return own[:1] == ["mlx_lm.lora"] or own[:2] == ["mlx_lm", "lora"]


def is_mlx_document(values: Mapping[str, object]) -> bool:
    """Whether a document has its options.

    >>> is_mlx_document({"model": "m", "iters": 100, "lora_parameters.rank": 8})
    True
    """
    own = {name.partition(".")[0] for name in values}
    return "model" in own and "iters" in own and bool(own & {"lora_parameters", "num_layers"})


def is_mlx(sources: Sources) -> bool:
    """Whether what was gathered is its own."""
    names = {name.removeprefix("--"): "" for name in sources.script}
    return starts_mlx(sources.words) or is_mlx_document(names)


def mlx_in_trainer_words(sources: Sources, name: str) -> dict[str, str]:
    """Put its options as the Trainer's into the script's; what is its default, by term, with why.

    Raises
    ------
    SpecError
        It trains something that is not predicted.
    """
    script, kind = sources.script, sources.text("--fine_tune_type") or "lora"
    if kind not in ("lora", "full"):
        raise SpecError(
            f"{name}: mlx_lm's fine_tune_type {kind} is not predicted: lora and full are."
        )
    in_words_of(sources, MLX)
    told = with_defaults(sources, MLX)
    if kind == "lora":
        script["--use_lora"] = stated("--use_lora", "true")
        keys = sources.text("--lora_parameters.keys")
        told |= {} if keys else {"lora_targets": "no keys: mlx_lm adapts every matrix of a layer"}
        modules = " ".join(key.rpartition(".")[2] for key in (keys or "all-linear").split())
        script["--lora_target_modules"] = stated("--lora_target_modules", modules)
        if "4bit" in (sources.text("--model") or "").lower():
            script["--load_in_4bit"] = stated("--load_in_4bit", "true")
    else:
        script.pop("--lora_r", None)
    script["--bf16"] = stated("--bf16", "true")
    sources.worlds[0] = World(num_gpus=stated("mlx_lm", "1"), gpu=sources.worlds[0].gpu)
    return told


def on_apple(answers: Answers, sources: Sources) -> Answers:
    """The answers as they are of one chip of Apple, the largest where none is named."""
    values = {**answers.values, "framework": "MLX"}
    defaults = dict(answers.defaults)
    if sources.worlds[0].gpu is None:
        values["gpu"] = _GPU
        defaults["gpu"] = "mlx_lm runs on Apple silicon, and no chip is named"
    layers = sources.text("--num_layers")
    notes = answers.notes
    if layers is None or whole(layers):
        notes = (
            *notes,
            f"mlx_lm trains the last {whole(layers) or _LAYERS} layers: time and memory are "
            "predicted of all (num_layers: -1), which take more.",
        )
    return replace(answers, values=values, defaults=defaults, notes=notes)
