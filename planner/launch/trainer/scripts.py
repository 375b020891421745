"""Programs on the Trainer whose options and defaults a table says, in the words of the Trainer.

Sources: artidoro/qlora at 7f4e95a, ``qlora.py``; tloen/alpaca-lora at 8bb8579, ``finetune.py``;
huggingface/autotrain-advanced at b5c98fb, ``trainers/clm/params.py``, ``utils.py``,
``parser.py`` and ``commands.py``;
deepspeedai/DeepSpeedExamples at 45b4b71, ``applications/DeepSpeed-Chat``, of which
``dschat/utils/ds_utils.py`` and ``training/*/main.py``, and ``training/DeepSpeed-SuperOffload``;
aws-samples/awsome-distributed-training at 7217859, ``pytorch/FSDP/src/model_utils/arguments.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from planner.base.records import record
from planner.documents.shell.text import Changes, stated
from planner.errors import LaunchError
from planner.launch.option_table import Dialect
from planner.launch.trainer.said import Sources, in_words_of, whole, with_defaults
from planner.launch.understood import gpus_of


@record(kw_only=True)
class Script:
    """A program by the options that tell it, all of them, and its file where one is given.

    ``length`` is its word for the longest sequence, ``kinds`` how the text of the option ``kind``
    begins where it trains what is predicted, ``extends`` whether it takes the Trainer's own
    options, too, ``framework`` what it is built on where that is not the Trainer.
    """

    dialect: str
    keys: frozenset[str]
    length: str
    file: str = ""
    kind: str = ""
    kinds: tuple[str, ...] = ("",)
    extends: bool = False
    framework: str = ""

    def is_of(self, words: Sequence[str], values: Mapping[str, object]) -> bool:
        """Whether a command, or a document, which has no words, is its own."""
        named = not self.file or any(word.rpartition("/")[2] == self.file for word in words[:3])
        kind = str(values.get(self.kind) or "")
        return named and self.keys <= set(values) and (not kind or kind.startswith(self.kinds))


_CHAT = "deepspeed-chat"
SCRIPTS = (
    Script(
        dialect=_CHAT,
        keys=frozenset({"data_split", "max_seq_len"}),
        length="max_seq_len",
        extends=True,
    ),
    Script(
        dialect=_CHAT,
        keys=frozenset({"actor_zero_stage", "max_answer_seq_len"}),
        length="max_answer_seq_len",
    ),
    Script(
        dialect="qlora",
        keys=frozenset({"source_max_len", "target_max_len"}),
        length="target_max_len",
        extends=True,
    ),
    Script(
        dialect="alpaca-lora",
        keys=frozenset({"base_model"}),
        file="finetune.py",
        length="cutoff_len",
    ),
    Script(
        dialect="autotrain",
        keys=frozenset({"task", "base_model"}),
        kind="task",
        kinds=("llm",),
        length="params.block_size",
    ),
    Script(
        dialect="deepspeed-examples",
        keys=frozenset({"deepspeed_config", "model_name", "batch_size"}),
        length="",
        extends=True,
    ),
    Script(
        dialect="aws-fsdp",
        keys=frozenset({"max_context_width", "hidden_width"}),
        kind="model_type",
        kinds=("llama", "mistral", "mixtral"),
        length="",
        framework="FSDP",
    ),
)
_LLAMA = {"tie_word_embeddings": False, "position_embedding": "rotary", "gated": True}


def script_of(words: Sequence[str], values: Mapping[str, object]) -> Script | None:
    """The program whose own a command or a document is, by its options and their texts.

    >>> script_of(["finetune.py"], {"base_model": "llama-7b"}).dialect
    'alpaca-lora'
    >>> script_of([], {"task": "image-classification", "base_model": "vit"})
    """
    return next((each for each in SCRIPTS if each.is_of(words, values)), None)


def script_of_sources(sources: Sources) -> Script | None:
    """The same of what was gathered."""
    values = {name.removeprefix("--"): sources.text(name) for name in sources.script}
    return script_of(sources.words, values)


def in_trainer_words(sources: Sources, dialect: Dialect) -> dict[str, str]:
    """Put a program's options as the Trainer's into the script's; what is its default, by term."""
    script = sources.script
    in_words_of(sources, dialect)
    told = with_defaults(sources, dialect)
    for row in dialect.rows:
        numbers = [whole(sources.text(f"--{option}")) for option in row.option.split()]
        if row.role == "sum":
            script[row.into] = stated(row.into, str(sum(number or 0 for number in numbers)))
        elif row.role == "batch" and row.into not in script and (samples := numbers[0]):
            micro = whole(sources.text("--per_device_train_batch_size")) or 1
            ranks = gpus_of(sources.worlds[0]) or 1
            script[row.into] = stated(row.into, str(math.ceil(samples / (micro * ranks))))
    return told


def shape_of(sources: Sources, dialect: Dialect) -> dict[str, object] | None:
    """The sizes of a model like Llama that a program is told in place of a name; None of others."""
    rows = [row for row in dialect.rows if row.role == "shape"]
    sizes = {row.into: whole(sources.text(f"--{row.option}")) for row in rows}
    return {**_LLAMA, **{name: size for name, size in sizes.items() if size}} if rows else None


def in_words_of_script(script: Script, changes: Changes) -> Changes:
    """A change in the Trainer's words in those of a program.

    Raises
    ------
    LaunchError
        It has no word for one of them.
    """
    own: dict[str, tuple[str, ...] | None] = {}
    rows = Dialect.load(script.dialect).rows
    for name, texts in changes.items():
        of_it = [row for row in rows if row.into == f"--{name}"]
        if any(row.role == "batch" for row in of_it):
            continue  # the program works it out of all samples of a step
        row = next(
            (each for each in of_it if each.role == "is" or (texts and each.word == texts[0])), None
        )
        if row is not None and row.option:
            own[row.option] = texts if row.role == "is" else (row.text,)
        elif script.extends:
            own[name] = texts
        else:
            raise LaunchError(f"{script.dialect} has no word for {name}.")
    return own
