"""Parts of a user's training program that no option has: loaded models, adapters, lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python_calls import Call, Value

_WITHOUT_TOKENS = (
    *("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
    *("ForMultipleChoice", "ForMaskedLM"),
)
"""Ends of Transformers' classes of models whose head does not predict the next token."""
_PAIRS = ("rm", "reward")


def is_model_load(call: Call) -> bool:
    """Return whether a call loads a model of Transformers from a checkpoint."""
    return call.ends("from_pretrained") and ("For" in call.name or "AutoModel" in call.name)


def has_other_head(call: Call) -> bool:
    """Return whether a model that a call loads predicts something else than the next token."""
    return call.name.split(".")[-2].endswith(_WITHOUT_TOKENS)


def unread_parts(
    calls: Sequence[Call], loads: Sequence[Call], objective: str, *, is_named: bool
) -> Iterator[tuple[str, int]]:
    """Yield name and line of what decides memory or time and is not in the program's text.

    Parameters
    ----------
    calls : calls of the program
    loads : those that load the trained model
    objective : training objective
    is_named : whether the trainer or another library loads the model by its name
    """
    adapters = [call for call in calls if call.ends("LoraConfig", "get_peft_model")]
    if not loads and not adapters and not is_named:
        yield "the loading of the model", 1
    for call in loads[:1]:
        if has_other_head(call) and objective not in _PAIRS:
            yield f"the head of {call.name.split('.')[-2]}", call.line
    for call in calls:
        if call.ends("PeftModel.from_pretrained") and call.keywords.get("is_trainable") is True:
            yield "the rank that is loaded", call.line
        if adapters and call.keywords.get("ref_model") is not None:  # else the base weights serve
            yield "ref_model, a second model", call.line


def tokenized_length(calls: Sequence[Call]) -> tuple[Value, int] | None:
    """Return the length to which a program cuts its texts, with its line; None if not unique.

    It is ``max_length`` of the calls of a tokenizer that truncate.
    """
    lengths = {
        call.keywords["max_length"]: call.line
        for call in calls
        if "tok" in call.name.rpartition(".")[2].lower()
        and isinstance(call.keywords.get("max_length"), int)
        and call.keywords.get("truncation") not in (None, False)
    }
    return next(iter(lengths.items())) if len(lengths) == 1 else None


_GROUP = ("num_generations", "gradient_accumulation_steps", "per_device_train_batch_size")


def complete_group(arguments: Call) -> Mapping[str, Value]:
    """Raise a batch that is no whole group of answers to one group, as Unsloth's GRPO does.

    Source: unslothai/unsloth, ``unsloth/models/rl_replacements.py``.
    """
    keywords = arguments.keywords
    group, accumulation, batch = (keywords.get(name, 1) for name in _GROUP)
    if not (isinstance(group, int) and isinstance(accumulation, int) and isinstance(batch, int)):
        return keywords
    return {**keywords, _GROUP[2]: group} if accumulation * batch % group else keywords
