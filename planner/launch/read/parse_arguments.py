"""Options and their values: from words of a command, or keys of YAML, JSON and TOML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from planner.base import read_files
from planner.documents.shell import HereDocument, Script, Word
from planner.documents.shell.edits import ParsedOption, Span, implied_option
from planner.documents.yaml_tree import Tree, flattened, plain_text, read_trees
from planner.errors import LaunchError
from planner.launch.option_table import ParserOption, ParserOptions, option_aliases
from planner.launch.read.parsed_launch import ParsedCommand, suffix_of
from planner.launch.read.references import resolve_references
from planner.launch.read.removed import name_removed_program
from planner.launch.targets import readers
from planner.specs.quantization import checkpoint_of

_NUMBER = re.compile(r"-\.?\d")
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./-]*)=")
_MANY = ("*", "+")
_SINGLE = ("", "1")
_SCRIPT = ".py"
# Words in a row are separated by blanks, a continued line and its indent at most.
_MAX_GAP = 400


@dataclass(kw_only=True)
class Arguments:
    """Options by name, options that the parser does not know, and positional words.

    ``repeated`` are options replaced by a later one of the same name; ``unknown_values`` are words
    with variables that the text does not define.
    """

    options: dict[str, ParsedOption] = field(default_factory=dict)
    unknown: list[ParsedOption] = field(default_factory=list)
    positional: list[ParsedOption] = field(default_factory=list)
    repeated: list[ParsedOption] = field(default_factory=list)
    unknown_values: list[ParsedOption] = field(default_factory=list)

    def add(self, option: ParsedOption) -> None:
        """Add an option; the last one of a name counts."""
        if option.option in self.options:
            self.repeated.append(self.options[option.option])
        self.options[option.option] = option


def read_arguments(words: Sequence[Word], accepted: ParserOptions) -> Arguments:
    """Parse the words after a program into options; ``key=value`` words are options, too."""
    arguments, index = Arguments(), 0
    while index < len(words):
        word = words[index]
        index += 1
        name, equals, _ = word.begins.partition("=")
        if _is_option(word):
            option = accepted.find(name)
            values = [word.after(len(name) + 1)] if equals else []
            if not equals:
                values = _option_words(words, index, option, accepted)
                index += len(values)
            parsed = _parsed_option(option.name if option else name, word, values)
            if option is None:
                arguments.unknown.append(parsed)
            else:
                arguments.add(parsed)
        elif key := _OVERRIDE.match(word.begins):
            option = accepted.find(key[1])
            parsed = _parsed_option(
                option.name if option else key[1], word, [word.after(key.end())]
            )
            (arguments.add if option else arguments.unknown.append)(parsed)
        elif word.text is None and not word.begins and _readable_end(word) is None:
            arguments.unknown_values.append(_parsed_option(word.raw, word, [word]))
        else:
            arguments.positional.append(_parsed_option("", word, [word]))
    return arguments


def _is_option(word: Word) -> bool:
    return word.begins.startswith("-") and len(word.begins) > 1 and not _NUMBER.match(word.begins)


def _option_words(
    words: Sequence[Word], start: int, option: ParserOption | None, accepted: ParserOptions
) -> list[Word]:
    """Return the words from index ``start`` that are values of an option, by the parser's rules."""
    following = list(
        takewhile(lambda word: not _is_option(word) and word.begins != "--", words[start:])
    )
    is_list = "modules" in words[start - 1].begins  # of any program: matrices by name
    nargs = option.nargs if option is not None else "*" if is_list else "?"
    if nargs in _MANY:
        return following
    if nargs in _SINGLE:
        if not following and any(accepted.find(word.begins) for word in words[start : start + 1]):
            return []
        return list(words[start : start + 1])
    if nargs == "?" and following and following[0].begins.endswith(_SCRIPT):
        return []
    if nargs == "?":
        return following[:1]
    return following[: int(nargs)] if nargs.isdigit() else following[:1]


def _parsed_option(name: str, word: Word, values: Sequence[Word]) -> ParsedOption:
    """Return the option ``name`` with the texts and positions of its value words."""
    unread = (v.unknown for v in values if v.unknown and _readable_end(v) is None)
    unknown = "; ".join(dict.fromkeys(unread))
    return ParsedOption(
        option=name,
        texts=tuple(
            _readable_end(value) or value.text or _model_of_path(name, value) for value in values
        ),
        line=word.line,
        spans=tuple(value.span for value in values),
        full_span=_contiguous_span([word, *values]),
        unknown=unknown,
    )


def readable_part(word: Word) -> str:
    """A word's text, or its readable end if it begins with an unknown variable."""
    if word.text is not None:
        return word.text
    return next((piece.text for piece in reversed(word.pieces) if piece.text), "")


def command_texts(words: Sequence[Word]) -> list[str]:
    """The text of each word; for an option, its name if the value is not readable."""
    options = (word.begins if word.begins.startswith("--") else "" for word in words)
    return [option or readable_part(word) for option, word in zip(options, words, strict=True)]


def _model_of_path(option: str, word: Word) -> str | None:
    """Return the known model at the end of an unknown path (``$HOME/llama-7b``), else the text."""
    _, slash, name = readable_part(word).rpartition("/")
    is_readable = bool(slash and word.pieces and not word.pieces[-1].unknown)
    is_named = any(word in option.lower() for word in ("model", "checkpoint"))
    is_model = is_readable and is_named and checkpoint_of(name).model is not None
    return name if is_model else word.text


_DOCUMENT = re.compile(r"/[\w./-]*\w\.(?:ya?ml|json|toml)")


def _readable_end(word: Word) -> str | None:
    """Return the end of a document's path whose folder is unknown (``$HERE/zero3.json``)."""
    end = readable_part(word) if word.text is None and word.pieces else ""
    is_end = bool(word.pieces) and word.pieces[-1].text == end and not word.begins
    return end.lstrip("/") if is_end and _DOCUMENT.fullmatch(end) else None


def _contiguous_span(words: Sequence[Word]) -> Span | None:
    """Return the span of words in a row in the file; None if other text is between the words."""
    if len(words) > 1 and words[1].raw == words[0].raw and words[1].regions == words[0].regions:
        # --option=value is one word.
        words = words[:1]
    best: tuple[int, Span] | None = None
    for start_region in words[0].regions:
        gaps, end = 0, start_region.end
        for word in words[1:]:
            following = [region for region in word.regions if region.start >= end]
            if not following:
                break
            region = min(following)
            gaps, end = gaps + region.start - end, region.end
        else:
            if gaps <= _MAX_GAP and (best is None or gaps < best[0]):
                best = gaps, Span(start_region.start, end)
    return best[1] if best else None


_OPTION_DOCUMENTS = ("vllm", "sglang")


def parse_documents(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield each document of a file as a command; its target is "" if none reads the document."""
    if suffix_of(path) == ".toml":
        yield _parse_toml(path, text)
        return
    for tree in read_trees(text, path.name):
        line = min((leaf.line for leaf in tree.values.values()), default=1)
        target, options = _tree_target(tree), _leaves(tree)
        has_other_names = target == "transformers" and {*_OTHER_NAMES} & {*options}
        if (not target or has_other_names) and (nested := _nested_training(options)):
            target, options = "transformers", nested
        if target in _OPTION_DOCUMENTS:  # keys that mean options of the command get their names
            options = readers()[target].options.name_options(options)
        options = _resolve_here(target, options)
        yield ParsedCommand(target=target, name=path.name, text=text, line=line, options=options)


def _resolve_here(target: str, options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
    """Return the options of a document with its references, unless other files may have them."""
    is_later = target == "llm-foundry" or "defaults" in options
    return dict(options) if is_later else resolve_references(options)


_MODEL = "model_name_or_path"
_OTHER_NAMES = {"max_len": "max_length", "micro_train_batch_size": "per_device_train_batch_size"}
"""Keys of OpenRLHF, which documents of other programs have, too."""
_OF_ADAPTERS = ("r", "rank", "alpha", "dropout")
_OF_TRAINER = "per_device_train_batch_size"


def _nested_training(options: Mapping[str, ParsedOption]) -> dict[str, ParsedOption]:
    """Return the options of the Trainer in the sections of a document; empty without any."""
    flat: dict[str, ParsedOption] = {}
    names = {**option_aliases("trainer section"), **_OTHER_NAMES}
    for path, option in options.items():
        name = path.rpartition(".")[2]
        if name in _OF_ADAPTERS and "lora" not in path.lower():
            continue
        name, spans = names.get(name, name), (None,) * len(option.texts)
        option = replace(option, option=name, spans=spans, full_span=None)
        if flat.setdefault(name, option).texts != option.texts:
            reason = f"{name} has several values in sections of the file"
            flat[name] = replace(option, texts=(None,), spans=(None,), unknown=reason)
    if not {_OF_TRAINER, _MODEL} <= {*flat}:
        return {}
    if "lora_r" in flat:
        flat.setdefault("use_lora", implied_option("use_lora", "true", flat["lora_r"].line))
    if any(name.startswith("bnb_4bit") for name in flat):  # they mean nothing without it
        flat.setdefault("load_in_4bit", implied_option("load_in_4bit", "true"))
    return flat


def _leaves(tree: Tree) -> dict[str, ParsedOption]:
    """Return the values of a document as options, by dotted key; a list of scalars is one value."""
    return {
        name: _as_written_plainly(leaf.as_option)
        for name, leaf in tree.values.items()
        if name.rpartition(".")[0] not in tree.values
    }


_WHOLE_NUMBER = re.compile(r"(\d+)\.0+")
_TRUTH_VALUES = {"yes": "true", "on": "true", "no": "false", "off": "false"}  # of YAML 1.1
_WITH_WORDS = re.compile(r"(strategy|precision|_type|downcast_bf16)$")
"""Keys for which ``no`` is a word of its own."""


def _as_written_plainly(option: ParsedOption) -> ParsedOption:
    """Return an option with ``4.0`` as ``4`` and, without quotes, ``yes`` as ``true``."""
    texts = []
    for text, span in zip(option.texts, option.spans, strict=True):
        if text and (number := _WHOLE_NUMBER.fullmatch(text)):
            text = number[1]
        elif text in _TRUTH_VALUES and not _WITH_WORDS.search(option.option):
            is_plain = span is not None and span.end - span.start == len(text)
            text = _TRUTH_VALUES[text] if is_plain else text
        texts.append(text)
    return replace(option, texts=tuple(texts))


def _tree_target(tree: Tree) -> str:
    return _document_target({name: leaf.value for name, leaf in tree.values.items()})


def _document_target(values: Mapping[str, object]) -> str:
    if removed := name_removed_program(document=values):
        return removed
    return next((target.name for target in readers().values() if target.is_of(values)), "")


def _parse_toml(path: Path, text: str) -> ParsedCommand:
    """Return a TOML document as a command; its values have no positions for changes."""
    values = dict(flattened(read_files.parse_toml(text, str(path), LaunchError)))
    options = {
        name: ParsedOption(
            option=name,
            texts=tuple(map(plain_text, value if isinstance(value, list) else [value])),
            line=1,
            spans=(None,) * (len(value) if isinstance(value, list) else 1),
            full_span=None,
        )
        for name, value in values.items()
    }
    target = _document_target(values)
    return ParsedCommand(
        target=target, name=path.name, text=text, options=_resolve_here(target, options)
    )


def parse_here_document(
    path: Path, script: Script, document: HereDocument, name: str
) -> ParsedCommand:
    """Return a document that a script writes, with the positions of its values in the script."""
    position = f"{path.name}:{document.line}"
    try:
        trees = read_trees(document.text, position)
    except LaunchError:  # lines with unknown variables may not be YAML
        readable_text = re.sub(r"[^\n]*\$[^\n]*", lambda line: " " * len(line[0]), document.text)
        trees = read_trees(readable_text, position)
    options = {} if not trees else resolve_references(_leaves(trees[0]))
    shifted = {
        key: ParsedOption(
            option=option.option,
            texts=option.texts,
            line=option.line + document.line - 1,
            spans=tuple(None if span is None else document.place(span) for span in option.spans),
            full_span=None if option.full_span is None else document.place(option.full_span),
            unknown=option.unknown,
        )
        for key, option in options.items()
    }
    return ParsedCommand(
        target=_tree_target(trees[0]) if trees else "",
        name=path.name,
        text=script.text,
        line=document.line,
        options=shifted,
    )
