"""The input of a command: a question, the folder of its uploaded files, and its request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from planner.base.read_files import read_json, restrict_to_folders
from planner.base.records import record
from planner.decide.sizing.autoscaling import Startup, read_startup
from planner.errors import SpecError
from planner.launch.read.launch_file import LaunchFile, LaunchQuestion
from planner.question.names import STARTUP_TIME
from planner.question.request import Request
from planner.specs.spec_paths import data_folders
from planner.ui.question import (
    FILE,
    PRICES,
    PRICES_FILE,
    SETTINGS,
    WORKLOAD,
    Question,
    option_of,
    prices_csv,
)
from planner.ui.request_limits import Limits
from planner.workloads.build_request import make_request, search_request
from planner.workloads.saved_plan import SavedPlan

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
            raise SpecError(f"The file of {option_of(name)} has expired: upload it again.")
        return self.folder / first

    @property
    def startup(self) -> Startup:
        """Start-up time of the GPUs."""
        return read_startup(self.question.fields.get(STARTUP_TIME) or 0, option_of(STARTUP_TIME))

    def request_arguments(self) -> dict[str, object]:
        """Return arguments for `make_request`; also writes the file of the user's prices."""
        arguments = self.question.request_arguments(self.specs)
        if text := self.question.fields.get(PRICES):
            path = self.folder.with_name(self.folder.name + "-own") / PRICES_FILE
            path.parent.mkdir(exist_ok=True)
            path.write_text(prices_csv(text), encoding="utf-8")
            arguments[PRICES] = str(path)
        return arguments

    def read_request(self, *, is_search: bool = False) -> tuple[Request, LaunchQuestion | None]:
        """Return the request of the question, and the uploaded launch file; None without one."""
        arguments, file = self.request_arguments(), self.file
        if file is None:
            return make_request(arguments, option_name=option_of), None
        if _is_model_config(file):
            return make_request({"model": str(file), **arguments}, option_name=option_of), None
        workload = arguments.pop(WORKLOAD)
        if file.suffix == ".toml" and file.is_file():
            base: Request = SavedPlan.read(file).request()
            launch_question = None
        else:
            answers = {n: v for n, v in arguments.items() if n not in ("constraints", "specs")}
            answers.pop(SETTINGS, None)
            answers |= self.question.settings
            launch = LaunchFile(
                path=file,
                answers=answers,
                specs=self.specs,
                option_name=option_of,
                workload=workload,
            )
            launch_question = launch.question()
            base = launch_question.request
        if is_search:
            return make_request(
                arguments, base=search_request(base), option_name=option_of
            ), launch_question
        arguments.pop("constraints")
        return make_request(arguments, base=base, option_name=option_of), launch_question


@contextmanager
def prepare_input(
    question: Question, specs: Path | None, limits: Limits, report_progress: ProgressCallback
) -> Iterator[CommandInput]:
    """Yield the input of a command, with uploaded files written to a temporary folder.

    Within the context only this folder and spec folders can be read.
    """
    with TemporaryDirectory(prefix="planner-") as root:
        folder = Path(root, UPLOADED)
        folder.mkdir()
        for name, text in question.files:
            (folder / Path(name).name).write_text(text, encoding="utf-8")
        with restrict_to_folders((Path(root), _PACKAGE_FOLDER, *data_folders(specs))):
            yield CommandInput(
                question=question,
                folder=folder,
                specs=specs,
                limits=limits,
                report_progress=report_progress,
            )


def _is_model_config(path: Path) -> bool:
    """Whether a file is a model's ``config.json`` on Hugging Face."""
    if path.suffix != ".json":
        return False
    try:
        table = read_json(path)
    except SpecError:
        return False
    return isinstance(table, dict) and any(name in table for name in _MODEL_KEYS)
