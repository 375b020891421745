"""How a value is written so that a shell, YAML and JSON read it back as it is."""

from __future__ import annotations

import json
import re

from planner.errors import LaunchError

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_PLAIN_SCALAR = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*")
# Read as something else than text by YAML 1.1 or 1.2.
_NOT_TEXT = re.compile(r"(?i)~|null|none|true|false|yes|no|on|off|y|n|nan|inf")

Scalar = str | int | float | bool | None


def shell_word(text: str) -> str:
    """``text`` as one argument of a command of a POSIX shell, whatever it holds.

    Raises LaunchError for a NUL character, which no argument of a command can hold.

    >>> print(shell_word("bf16"), shell_word("a b"), shell_word("it's $(rm -rf ~)"))
    bf16 'a b' 'it'"'"'s $(rm -rf ~)'
    """
    if "\0" in text:
        raise LaunchError(f"{text!r} holds a NUL character, which no argument of a command can.")
    if _PLAIN_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def yaml_scalar(value: Scalar) -> str:
    """A value on one line of YAML 1.1 or 1.2, block or flow, that reads back as it is.

    >>> print(*map(yaml_scalar, (8, True, None, 1e-5, "bf16", "no", "1e5", "a: b #c")))
    8 true null 1.0e-05 bf16 "no" "1e5" "a: b #c"
    """
    if not isinstance(value, str):
        return _number(value)
    if _PLAIN_SCALAR.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def json_scalar(value: Scalar) -> str:
    """A value of JSON.

    Raises LaunchError for infinity and not-a-number, which JSON does not have.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise LaunchError(f"JSON has no number {value}.") from None


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = repr(float(value))
    if text in ("inf", "-inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    # YAML 1.1 reads an exponent without a point as text.
    return text if "." in text or "e" not in text else text.replace("e", ".0e")
