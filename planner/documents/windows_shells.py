"""Scripts of PowerShell and of Windows' command prompt, rewritten as shell scripts line by line."""

from __future__ import annotations

import re

_COMMENT_BLOCK = re.compile(r"<#.*?#>", re.DOTALL)
_CONTINUED = re.compile(r"`[ \t]*\r?\n")
_HERE_STRING = re.compile(r"@(?P<quote>[\"'])\r?\n(?P<body>.*?)\r?\n(?P=quote)@", re.DOTALL)
_ENVIRONMENT = re.compile(r"\$(?:env:(\w+)|\{env:(\w+)\})", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"^(?P<indent>\s*)(?:\[[\w.\[\]]+\]\s*)?\$(?P<scope>env:)?(?P<name>\w+)\s*(?P<adds>\+?)=\s*",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"\$(?P<name>\w+)\s*=\s*(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,)]+)")
_PARAMETERS = re.compile(r"^\s*param\s*\(", re.IGNORECASE | re.MULTILINE)
_SUBEXPRESSION = re.compile(r"\$\(\s*\$(\w+)\s*\)")
_SPLAT = re.compile(r"(?<![\w$\"'])@(?P<name>[A-Za-z_]\w*)(?=\s|$)")
_START = re.compile(
    r"^(?P<indent>\s*)(?:\$\w+\s*=\s*)?Start-Process\s+(?:-FilePath\s+)?(?P<program>\"[^\"]+\"|\S+)"
    r"(?:.*?\s-ArgumentList\s+(?P<arguments>.*?))?(?:\s+-(?:NoNewWindow|Wait|PassThru|WindowStyle"
    r"|WorkingDirectory|RedirectStandard\w+)\b.*)?$",
    re.IGNORECASE,
)
_OPENS = re.compile(r"^\s*(?:\}\s*)?(?P<word>if|elseif|else|for|foreach|while|function|try|catch"
                    r"|finally|switch|do)\b.*\{\s*$", re.IGNORECASE)  # fmt: skip
_ARRAY = re.compile(r"@\(")


def powershell_as_shell(text: str) -> str:
    r"""Return a PowerShell script as a shell script with the same lines.

    Variables, arrays and their splatting, parameters with defaults, continued lines,
    ``Start-Process`` and branches are rewritten. A branch's condition stays unknown. Syntax after
    learn.microsoft.com, about_Parsing, about_Splatting, about_Parameters.

    >>> powershell_as_shell("$m = 'a/b'\n& vllm serve $m `\n  --port 80")
    "m='a/b'\nvllm serve $m \\\n  --port 80"
    """
    text = _COMMENT_BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text.replace("\r\n", "\n"))
    text = _HERE_STRING.sub(lambda match: _quoted(match["body"]), text)
    text = text.replace("\\", "/")
    text = _CONTINUED.sub("\\\\\n", text).replace('`"', '\\"').replace("`", "")
    text = _default_parameters(text)
    text = _flat_arrays(text)
    opened: list[str] = []
    return "\n".join([_shell_line(line, opened) for line in text.split("\n")])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


def _default_parameters(text: str) -> str:
    """Replace ``param(...)`` by assignments of its defaults, on its lines."""
    match = _PARAMETERS.search(text)
    if match is None:
        return text
    end = _closing(text, match.end())
    body = text[match.end() : end]
    rows = []
    for line in body.split("\n"):
        default = _PARAMETER.search(line)
        rows.append(f"{default['name']}={default['value']}" if default else "")
    return text[: match.start()] + "\n".join(rows) + text[end + 1 :]


def _closing(text: str, position: int) -> int:
    """Return the position of the bracket that closes one opened just before ``position``."""
    depth, quote = 1, ""
    for index in range(position, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return index
    return len(text) - 1


def _flat_arrays(text: str) -> str:
    """Replace ``@("a", "b")`` by ``("a"  "b")`` of the shell."""
    done: list[str] = []
    position = 0
    while (match := _ARRAY.search(text, position)) is not None:
        end = _closing(text, match.end())
        done += [text[position : match.start()], "(", _without_commas(text[match.end() : end]), ")"]
        position = end + 1
    return "".join((*done, text[position:]))


def _without_commas(body: str) -> str:
    quote, rest = "", []
    for char in body:
        quote = ("" if char == quote else quote) if quote else (char if char in "\"'" else "")
        rest.append(" " if char == "," and not quote else char)
    return "".join(rest)


def _shell_line(line: str, opened: list[str]) -> str:
    """Return a line as the shell has it; ``opened`` are the blocks around it."""
    stripped = line.strip()
    if match := _OPENS.match(line):
        word = match["word"].lower()
        if word in ("elseif", "else", "catch", "finally") and opened:
            before = opened[-1]
            if before == "if":
                return "else" if word == "else" else "elif unknown-condition; then"
            opened[-1] = "{"
            return "}; {"
        opened.append("if" if word == "if" else "{")
        return "if unknown-condition; then" if word == "if" else "{"
    if stripped in ("}", "};") and opened:
        return "fi" if opened.pop() == "if" else "}"
    if match := _START.match(line):
        arguments = _without_commas(match["arguments"] or "").strip()
        if re.fullmatch(r"\$\w+", arguments):
            arguments = f'"${{{arguments[1:]}[@]}}"'
        elif arguments[:1] == arguments[-1:] in ('"', "'") and arguments.count(arguments[0]) == 2:
            arguments = arguments[1:-1]
        elif arguments.startswith("("):
            arguments = arguments.strip("()")
        line = f"{match['indent']}{match['program']} {arguments}"
    if match := _ASSIGNMENT.match(line):
        value = line[match.end() :]
        if re.match(r"[&\w-]+\s|\[|if\b|\$\w+\.", value) and not re.match(r"[\d.]+\s*$", value):
            return f"{match['indent']}{match['name']}=$(unknown)"
        export = "export " if match["scope"] else ""
        value = _ENVIRONMENT.sub(r"${\1\2:-}", value.strip())
        return f"{match['indent']}{export}{match['name']}{match['adds']}={value}"
    line = re.sub(r"^(\s*)&\s*", r"\1", line)
    line = _SPLAT.sub(r'"${\g<name>[@]}"', line)
    line = _SUBEXPRESSION.sub(r"${\1}", line)
    return _ENVIRONMENT.sub(r"${\1\2}", line)


_CMD_CONTINUED = re.compile(r"\^[ \t]*\n")
_CMD_VARIABLE = re.compile(r"%(\w+)%|!(\w+)!")
_CMD_SET = re.compile(
    r"^\s*@?set\s+(?:/a\s+)?\"?(?P<name>\w+)=(?P<value>[^\"\n]*)\"?\s*$", re.IGNORECASE
)
_CMD_SKIPPED = re.compile(
    r"^\s*@?(?:rem\b|::|echo\b|if\b|for\b|goto\b|:\w|\)|setlocal|pause)", re.IGNORECASE
)
_CMD_START = re.compile(
    r"^(\s*)(?:@|call\s+|start\s+(?:\"[^\"]*\"\s+)?(?:/\w+\s+)*)+", re.IGNORECASE
)


def batch_as_shell(text: str) -> str:
    r"""Return a script of Windows' command prompt as a shell script with the same lines.

    Lines that branch or print are left out, so that a command inside a bracket is read as it is.

    >>> batch_as_shell("set M=a/b\nllama-server -m %M% ^\n  -c 4096")
    "M='a/b'\nllama-server -m ${M} \\\n  -c 4096"
    """
    text = _CMD_CONTINUED.sub("\\\\\n", text.replace("\r\n", "\n").replace("\\", "/"))
    return "\n".join(map(_line_of_batch, text.split("\n")))


def _line_of_batch(line: str) -> str:
    if match := _CMD_SET.match(line):
        value = _CMD_VARIABLE.sub(r"${\1\2}", match["value"].strip())
        quote = '"' if "$" in value else "'"
        return f"{match['name']}={quote}{value}{quote}"
    if _CMD_SKIPPED.match(line):
        return ""
    return _CMD_VARIABLE.sub(r"${\1\2}", _CMD_START.sub(r"\1", line, count=1))
