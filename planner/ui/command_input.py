"""The input of a command: a question, the folder of its uploaded files, and its request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.base.read_files import read_json, restrict_to_folders
from planner.base.records import record
from planner.commands.command import Call
from planner.commands.options import FILE, option_name
from planner.errors import PlannerError, SpecError
from planner.question.names import LOAD, SERVICES
from planner.specs.spec_paths import data_folders
from planner.ui.question import (
    AGAINST,
    PRICES,
    PRICES_FILE,
    THINGS,
    WORKLOAD,
    Question,
    parse_things,
    prices_csv,
)
from planner.ui.request_limits import Limits, RequestRefused

ProgressCallback = Callable[[int, int], None]
"""Gets the steps done and their total; raises `StopSearch` when the time is over."""

_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
_MODEL_KEYS = ("architectures", "model_type")
UPLOADED = "uploaded"
"""The folder of uploaded files; a model of a config.json gets its name."""


@record(kw_only=True)
class CommandInput:
    """A question with a separate folder for its uploaded files."""

    question: Question
    folder: Path
    specs: Path | None
    limits: Limits
    report_progress: ProgressCallback

    @property
    def file(self) -> Path | None:
        """Return the path of the uploaded file, or the folder of several; None without upload."""
        if FILE not in self.question.fields:
            return None
        files = self.question.files
        if not files:
            raise SpecError("The uploaded file has expired: upload it again.")
        return self.folder / files[0][0] if len(files) == 1 else self.folder

    def uploaded_file(self, name: str) -> Path:
        """Return the path of the uploaded file of a field, the first one of several."""
        token, _, first = self.question.fields[name].rpartition(":")
        if not token:
            return Path(first)  # an example of the package
        if first not in (file for file, _ in self.question.files):
            raise SpecError(f"The file of {option_name(name)} has expired: upload it again.")
        return self.folder / first

    def request_arguments(self) -> dict[str, object]:
        """Return arguments for `make_request`; also writes the file of the user's prices."""
        arguments = self.question.request_arguments(self.specs)
        if text := self.question.fields.get(PRICES):
            path = self.folder.with_name(self.folder.name + "-own") / PRICES_FILE
            path.parent.mkdir(exist_ok=True)
            path.write_text(prices_csv(text), encoding="utf-8")
            arguments[PRICES] = str(path)
        return arguments

    def call(self) -> Call:
        """Return the call of the command: the fields of the question, and its uploaded files.

        The file of the plan may be of another workload than the form.
        """
        question, file = self.question, self.file
        request = self.request_arguments()
        extra: dict[str, object] = {**question.extra, "is_translated": True, "uses_cores": False}
        extra |= {name: self.uploaded_file(name) for name in (LOAD, SERVICES) if name in extra}
        extra |= {"is_layout": bool(question.settings), "takes_part": True}
        extra["output"] = self.folder.with_name("sweep")
        if THINGS in extra:
            extra[THINGS] = parse_things(str(extra[THINGS]), self.specs)
        if AGAINST in extra:
            extra[AGAINST] = str(extra[AGAINST]).split()
        if file is not None and _is_model_config(file):
            request = {"model": str(file), **request}
        elif file is not None:
            extra["from_file"] = file
            request.pop(WORKLOAD, None)
        return Call(
            request=request,
            extra=extra,
            option_name=option_name,
            setting_name=option_name,
            bar=self.bar,
            has_files=False,
            workload=question.workload,
        )

    @contextmanager
    def bar(self, total: int, unit: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that reports the steps done.

        Raises RequestRefused if there are more configurations or scenarios than the limit.
        """
        limits = self.limits
        if unit == "scenarios" and total > limits.scenarios:
            raise RequestRefused(
                f"That is {total:,} scenarios; here a sweep has at most {limits.scenarios:,}. "
                "List fewer values, or use the command line.",
                413,
            )
        if unit in ("configurations", "trials") and total > limits.rows:
            raise RequestRefused(
                f"That is {total:,} {unit}; here a search has at most {limits.rows:,}. "
                "Narrow it with settings, or use the command line.",
                413,
            )
        self.report_progress(0, total)
        yield lambda done: self.report_progress(done, total)


@contextmanager
def prepare_input(
    question: Question, specs: Path | None, limits: Limits, report_progress: ProgressCallback
) -> Iterator[CommandInput]:
    """Yield the input of a command, with uploaded files written to a temporary folder.

    Within the context only this folder and spec folders can be read. A PlannerError that is raised
    there names uploaded files without the folder.
    """
    with TemporaryDirectory(prefix="planner-") as root:
        folder = Path(root, UPLOADED)
        folder.mkdir()
        for name, text in question.files:
            (folder / Path(name).name).write_text(text, encoding="utf-8")
        try:
            with restrict_to_folders((Path(root), _PACKAGE_FOLDER, *data_folders(specs))):
                yield CommandInput(
                    question=question,
                    folder=folder,
                    specs=specs,
                    limits=limits,
                    report_progress=report_progress,
                )
        except PlannerError as error:
            # Messages name uploaded files as the user does.
            if (prefix := f"{folder}{os.sep}") in str(error):
                error.args = (str(error).replace(prefix, ""), *error.args[1:])
            raise


def _is_model_config(path: Path) -> bool:
    """Whether a file is a model's ``config.json`` on Hugging Face."""
    if path.suffix != ".json":
        return False
    try:
        table = read_json(path)
    except SpecError:
        return False
    return isinstance(table, dict) and any(name in table for name in _MODEL_KEYS)
