"""What makes a text hard to read: long sentences, several colons, constructions of speech."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

MAX_WORDS = 28
"""Words of a sentence; a span of code and a link count as one."""
BANNED = {
    r"\b(?:is|are|was|were|be) (?:told|said|asked)\b": "the file sets, planner assumes, requested",
    r"\b(?:tells?|told|said|says) (?:of|which|what|that|how)\b": "shows, means, specifies",
    r"\bbeside\b": "with, in addition to, next to",
    r"\b(?:that|those) of (?:which|whom|that|those|the (?:ones?|others?))\b": "name the thing",
    r"\bof which\b": "a new sentence",
    r"\bnobody\b": "not specified, unknown",
    r"\bas good as\b": "equal to, nearly",
    r"\bwho (?:asks|wants|needs)\b": "users",
}
"""Constructions, and what to write instead."""
_ANY = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.IGNORECASE)
_FENCE, _ITEM = re.compile(r"^(```|:::|~~~)"), re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_PARENTHESIS = re.compile(r" ?\([^()]*\)")
_SENTENCE = re.compile(r"(?<=[.!?])\**\s+(?=[A-Z0-9`*\[\"]|planner |--)")
_ATOM = re.compile(r"`[^`]*`|\[([^\]]*)\]\([^)]*\)")
_SKIPPED = ("|", "#", "<", "!", ">", "(")


def sentences(page: str) -> Iterator[tuple[int, str]]:
    """Line and text of each sentence of a page, without code, tables, pictures and headings."""
    is_code, start, lines = False, 0, [""]
    for number, line in enumerate([*page.splitlines(), ""], 1):
        if _FENCE.match(line.strip()):
            is_code = not is_code
            line = ""
        is_skipped = is_code or not line.strip() or line.lstrip().startswith(_SKIPPED)
        if is_skipped or _ITEM.match(line):
            for sentence in filter(None, _SENTENCE.split(" ".join(lines).strip())):
                yield start, sentence
            lines = []
        if not is_skipped:
            start = start if lines else number
            lines.append(_ITEM.sub("", line).strip())


def problem(sentence: str) -> str:
    """Why a sentence is hard to read; empty if it is plain."""
    text = _ATOM.sub(r"x\1", sentence)
    if len(text.split()) > MAX_WORDS:
        return f"{len(text.split())} words"
    if len(re.findall(r":(?=\s)", text)) > 1:
        return "two colons"
    return construction(text)


def help_problem(text: str) -> str:
    """Why a text of the help is hard to read; lists of values in parentheses do not count."""
    for sentence in re.split(r"(?<=[.!?;])\s+", _PARENTHESIS.sub("", text)):
        words = re.sub(r"(?<=:)[^:]*,[^:]*", " values", sentence).split()
        if len(words) > MAX_WORDS:
            return f"{len(words)} words: {sentence}"
    return construction(text)


def construction(text: str) -> str:
    """The banned construction of a text, and what to write instead; empty if it has none."""
    match = _ANY.search(text)
    if match is None:
        return ""
    instead = next(BANNED[pattern] for pattern in BANNED if re.search(pattern, text, re.IGNORECASE))
    return f"{match[0]!r}: {instead}"


def source_texts(source: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of each string with a space, docstring and comment of a module."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    for number, line in enumerate(source.splitlines(), 1):
        if (comment := line.find("#")) >= 0:
            yield number, line[comment:]
