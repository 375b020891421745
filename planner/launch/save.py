"""Launch files on the disk: whole or not at all, and no work of the user's lost."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from planner.base.files import written_whole
from planner.base.reading import read_bytes
from planner.errors import OutputError, SpecError
from planner.launch.own import MANIFEST, written_files
from planner.launch.target import File
from planner.launch.write import Launch
from planner.version import __version__


def save_launch(folder: Path, launch: Launch) -> tuple[Path, ...]:
    """Write the files of a launch into a directory, which is made if needed.

    A file that is there is replaced only if it is as planner wrote it.

    Raises
    ------
    OutputError
        A file of the user's stands in the way, or the directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = _digests(folder)
        _refuse_others(folder, launch.files, known)
        for file in launch.files:
            _write(folder / file.name, file)
        manifest = {
            "version": __version__,
            "target": launch.target.name,
            "target_version": launch.target.version,
            "wrapper": launch.wrapper,
            "files": {file.name: _digest(file.text) for file in launch.files},
        }
        _write(folder / MANIFEST, File(name=MANIFEST, text=json.dumps(manifest, indent=1) + "\n"))
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    for name in set(known) - {file.name for file in launch.files}:
        _remove_if_ours(folder / name, known[name])
    return tuple(folder / file.name for file in launch.files)


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as stream:
        stream.write(file.text)
    if file.is_executable:
        path.chmod(path.stat().st_mode | 0o111)


def _refuse_others(folder: Path, files: Sequence[File], known: dict[str, str]) -> None:
    """Refuse to replace what the user wrote or changed."""
    for file in files:
        path = folder / file.name
        if not os.path.exists(path):
            continue
        text = _text(path)
        if text != file.text and known.get(file.name) != _digest(text):
            raise OutputError(
                f"{path}: is not as planner wrote it: nothing was written. Move it away, or give "
                "another --output."
            )


def _remove_if_ours(path: Path, digest: str) -> None:
    """Take away what an earlier launch wrote and this one does not have."""
    if os.path.isfile(path) and _digest(_text(path)) == digest:
        path.unlink()


def _text(path: Path) -> str:
    """What a file says, as far as one of a launch can; nothing of what is no such file."""
    try:
        return read_bytes(path).decode(errors="replace")
    except SpecError:
        return ""


def _digests(folder: Path) -> dict[str, str]:
    """Of the files that planner wrote here before, by name."""
    return {
        name: digest
        for name, digest in written_files(folder).items()
        if not Path(name).is_absolute() and ".." not in Path(name).parts
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()
