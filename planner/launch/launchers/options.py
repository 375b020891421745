"""Where the options of a wrapper end and the command behind them begins."""

from __future__ import annotations

from collections.abc import Sequence

from planner.launch.launchers.programs import Program
from planner.shell import Word

Options = list[tuple[str, Word | None]]


def consumed(program: Program, words: Sequence[Word]) -> tuple[Options, Sequence[Word]]:
    """The options of a wrapper with their values, and the words behind them.

    The first word is the wrapper's own. Of a container its image is the first of the rest.
    """
    options: Options = []
    index, plain, module = 1, program.plain, None
    while index < len(words):
        word = words[index]
        begins = word.text if word.text is not None else word.begins
        if word.text is None and not begins.startswith("-"):
            if plain == 0 and _is_program(program, words, index):
                break
            plain, index = max(plain - 1, 0), index + 1
            if program.plain and plain == 0:
                index -= program.does == "container"
                break
        elif begins == "--":
            index += 1
            break
        elif begins.startswith("-") and len(begins) > 1:
            taken = _option(program, words, index, options)
            if begins in ("-m", "--module") and options[-1][1] is None:
                module = index
            index += taken
        elif plain:
            plain, index = plain - 1, index + 1
            if plain == 0:
                index -= program.does == "container"
                break
        else:
            break
    rest = words[index:]
    return options, (words[module], *rest) if module is not None else rest


def _is_program(program: Program, words: Sequence[Word], index: int) -> bool:
    """Whether a word that is not known is a program: options of it follow, or nothing.

    Those of the wrapper itself may follow a variable that holds more of them.
    """
    word = words[index]
    if word.pieces and not word.pieces[-1].unknown and "/" in word.pieces[-1].text:
        return True
    following = words[index + 1] if index + 1 < len(words) else None
    if following is not None and {following.text} & (program.flags | program.valued):
        return False
    return following is None or (following.begins or "").startswith("-")


def _option(program: Program, words: Sequence[Word], index: int, options: Options) -> int:
    """Reads an option; how many words it takes."""
    word = words[index]
    text = word.text if word.text is not None else word.begins
    name, equals, _ = text.partition("=")
    if equals and text.startswith("--"):
        options.append((name, word.after(len(name) + 1)))
        return 1
    usual = f"--{text[2:].replace('-', '_')}" if text.startswith("--") else text
    if text in program.two:
        return 3
    if not text.startswith("--") and len(text) > 2 and text[:2] in _attached(program):
        options.append((text[:2], word.after(3 if equals and text[2] == "=" else 2)))
        return 1
    is_flag = bool({text, usual} & program.flags)
    is_valued = bool({text, usual} & program.valued) or (program.takes and not is_flag)
    value = words[index + 1] if index + 1 < len(words) else None
    if word.text is None or not is_valued or value is None:
        options.append((name, None))
        return 1
    if program.takes and (value.begins or "").startswith("-"):
        options.append((name, None))
        return 1
    options.append((name, value))
    return 2


def _attached(program: Program) -> tuple[str, ...]:
    """Short options whose value follows without a blank: ``-N4``."""
    if program.does == "slurm":
        return tuple(f"-{letter}" for letter in "NnpJowGtcACDdiewxLMqSTWmrBb")
    return ("-e",) if program.does == "container" else ()
