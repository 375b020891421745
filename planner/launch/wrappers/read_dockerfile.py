"""Dockerfiles: the command that an image starts, with the variables that it sets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from planner.base.read_files import parse_json, read_text
from planner.documents.shell.edits import LARGEST
from planner.documents.yaml_positions import documents
from planner.errors import LaunchError
from planner.launch.wrappers.read_containers import Container, compose_service

_INSTRUCTION = re.compile(r"^\s*(?P<name>[A-Za-z]+)\s+(?P<rest>.*)$", re.DOTALL)
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*")
_PAIR = re.compile(r"(?P<name>\w+)=(?P<value>\"(?:\\.|[^\"])*\"|'[^']*'|\S*)")
_STAGE = re.compile(r"(?:--\S+\s+)*(?P<image>\S+)(?:\s+as\s+(?P<stage>\S+))?", re.IGNORECASE)
_FILE_NAME = re.compile(r"(?i)(?:docker|container)file(?:[.\-_].*)?|.*\.(?:docker|container)file")


def is_dockerfile(name: str) -> bool:
    """Whether a file of this name describes an image.

    >>> [is_dockerfile(name) for name in ("Dockerfile", "Dockerfile.vllm", "docker-compose.yml")]
    [True, True, False]
    """
    return _FILE_NAME.fullmatch(name) is not None


def started_by_image(text: str) -> str:
    r"""Return the command of a Dockerfile's last stage as a script; "" if it starts nothing.

    ``ENV`` and ``ARG`` with a value become variables. Without an entry point of its own the image
    starts what the image below does: the command is a ``docker run`` of that image. After
    docs.docker.com, Dockerfile reference, of 1.20.

    >>> started_by_image('FROM a\nENV M=x/y\nENTRYPOINT ["vllm", "serve"]\nCMD ["x/y"]')
    'export M=x/y\nvllm serve x/y'
    >>> started_by_image('FROM vllm/vllm-openai:v0.9.0\nCMD ["--model", "a/b"]')
    'docker run vllm/vllm-openai:v0.9.0 --model a/b'
    """
    stages: dict[str, str] = {}
    variables: list[str] = []
    image, entry, command = "", "", ""
    for instruction in _instructions(text):
        name, rest = instruction
        if name == "FROM" and (stage := _STAGE.match(rest)):
            image = stages.get(stage["image"].lower(), stage["image"])
            if stage["image"].lower() not in stages:
                entry, command, variables = "", "", [*variables]
            stages[(stage["stage"] or "").lower()] = image
        elif name in ("ENV", "ARG"):
            variables += _assignments(name, rest)
        elif name == "ENTRYPOINT":
            entry, command = _words(rest), ""
        elif name == "CMD":
            command = _words(rest)
    if not (entry or command):
        return ""
    words = f"{entry} {command}".strip()
    program = command.split()[0].strip("'") if command else "-"
    if not entry and (program.startswith("-") or "/" in program):
        passed = "".join(f"-e {variable.removeprefix('export ')} " for variable in variables)
        return f"docker run {passed}{image} {words}"
    return "\n".join((*variables, words))


def built_images(path: Path, text: str) -> Iterator[tuple[Path, str, Container]]:
    """Yield the Dockerfile of each service of a Compose file that is built and has no command.

    With it come the script that it starts, with the variables of the service, and the service.
    """
    services = [
        section
        for document in documents(text, path.name)
        for section in dict(document.get("services").items()).values()
        if section.get("build").node is not None and section.get("command").node is None
    ]
    for section in services:
        build, container = section.get("build"), compose_service(section, path.name)
        folder = path.parent / (build.text or build.get("context").text or "")
        file = folder / (build.get("dockerfile").text or "Dockerfile")
        if not file.is_file():
            continue
        *variables, command = started_by_image(read_text(file, LARGEST, LaunchError)).split("\n")
        variables += [  # those of the service count
            f"export {name}={shlex.quote(word.text)}"
            for name, word in container.environment.items()
            if word.text is not None
        ]
        yield file, "\n".join((*variables, command)), container


def _instructions(text: str) -> list[tuple[str, str]]:
    """Return name and rest of each instruction, continued lines joined."""
    joined = _CONTINUED.sub(" ", text.replace("\r\n", "\n"))
    lines = (line for line in joined.split("\n") if not line.lstrip().startswith("#"))
    matches = filter(None, map(_INSTRUCTION.match, lines))
    return [(match["name"].upper(), match["rest"].strip()) for match in matches]


def _assignments(name: str, rest: str) -> list[str]:
    pairs = [*_PAIR.finditer(rest)]
    if pairs and rest.startswith(pairs[0][0]):
        return [f"export {pair['name']}={pair['value']}" for pair in pairs]
    key, _, value = rest.partition(" ")  # the older form: ENV NAME value
    return [f"export {key}={shlex.quote(value.strip())}"] if name == "ENV" and value else []


def _words(rest: str) -> str:
    """Return the command of an instruction in either of its forms."""
    if rest.startswith("["):
        try:
            words = parse_json(rest, "Dockerfile", LaunchError)
        except LaunchError:
            return rest
        if isinstance(words, list):
            return shlex.join(str(word) for word in words if str(word).strip())
    return rest
