"""The commands of README and docs run, and print what is shown; links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rows import each

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
# By their path in docs; the README by its name.
PAGES = {
    str(path.relative_to(ROOT if path == README else DOCS)): path.read_text(encoding="utf-8")
    for path in [README, *DOCS.glob("*.md"), *DOCS.glob("[!g]*/*.md")]
}
# Times differ from run to run.
TIMED = re.compile(r"evaluated in .* per second")
ELIDED = "..."
# Standing for what a user has.
OF_THE_USER = ("path/to/config.json",)
# What says that the last command of a block below it ends otherwise than with 0.
EXIT_CODE = re.compile(r"exit code (?:is )?(\d)")
# Commands of sh blocks that are not run, by what they name, and why.
NOT_RUN = {
    "planner ui": "serves until it is ended: tests/ui asks it",
    "--dask": "asks a cluster: tests/sweeps/test_dask.py does",
    "ours-2026": "a folder of a user",
    "AzureLLM": "a public trace that does not ship",
    "steps.csv": "made from logs of a user",
    "my_verl.toml": "fitted to logs of a user",
    "path/to/config.json": "a file of a user",
    "buy.json --price-change": "on a result of an earlier block",
    "--services FILE": "a file of a user",
    "report fleet.json": "on a result of a file of a user",
    "bash train.sh": "a script of a user",
    "procurement": "takes minutes: the console blocks of its page show it",
}
# What begins with a table that commands of console blocks above made: tests/launch do the same.
ON_ROWS_OF_THE_PAGE = "planner calibrate runs.csv --output my_profile.toml"
LONG = ("planner size", "planner validate", "--gpu all")
LONGEST = "--load"  # searches every hour of a day
QUICK = ("estimate", "specs", "validate")


@dataclass(frozen=True)
class Session:
    """A command of a console block, those before it there, the lines shown, how it ends."""

    page: str
    commands: tuple[str, ...]
    shown: tuple[str, ...]
    exit_code: int

    def __str__(self) -> str:
        return f"{self.page}: {self.commands[-1][:60]}"

    @property
    def is_first(self) -> bool:
        """Whether a stranger reads it first."""
        return self.page == README.name

    @property
    def is_long(self) -> bool:
        """Whether its last command takes seconds."""
        return any(name in self.commands[-1] for name in LONG)

    @property
    def chunks(self) -> list[list[str]]:
        """Lines that follow each other, without blank ones."""
        found: list[list[str]] = [[]]
        for line in map(str.rstrip, self.shown):
            if line == ELIDED:
                found.append([])
            elif line:
                found[-1].append(line)
        return [chunk for chunk in found if chunk]


def sessions() -> list[Session]:
    """Every command of a console block."""
    found = []
    for page, text in PAGES.items():
        for block in re.finditer(r"```console\n(.*?)```", text, flags=re.DOTALL):
            commands: tuple[str, ...] = ()
            parts = re.split(r"^\$ ", block[1], flags=re.MULTILINE)[1:]
            told = exit_code_told(text[: block.start()])
            for number, part in enumerate(parts, start=1):
                command, _, output = part.partition("\n")
                commands = (*commands, command)
                ends = told if number == len(parts) else 0
                found.append(Session(page, commands, tuple(output.splitlines()), ends))
    return found


def exit_code_told(text: str) -> int:
    """What the paragraph at the end of a text says that the block below it ends with."""
    told = EXIT_CODE.findall(text.rstrip().rpartition("\n\n")[2].replace("\n", " "))
    return int(told[-1]) if told else 0


def blocks(language: str) -> list[tuple[str, str]]:
    """Page and text of every block of a language."""
    return [
        (page, block)
        for page, text in PAGES.items()
        for block in re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    ]


class Runs:
    """Runs each command once, in the folder of the commands before it in its block."""

    def __init__(self, planner: Any, folders: Any, monkeypatch: Any) -> None:
        self.planner, self.folders, self.monkeypatch = planner, folders, monkeypatch

    known: dict[tuple[str, ...], tuple[Path, list[str], int]] = {}  # noqa: RUF012

    def __call__(self, commands: tuple[str, ...]) -> tuple[Path, list[str], int]:
        if commands not in self.known:
            *before, command = commands
            folder = self(tuple(before))[0] if before else self.new_folder()
            self.known[commands] = (folder, *self.ran(command, folder))
        return self.known[commands]

    def new_folder(self) -> Path:
        """A folder of its own that has the samples of the documentation."""
        folder: Path = self.folders.mktemp("session")
        (folder / "docs").symlink_to(ROOT / "docs")
        return folder

    def ran(self, command: str, folder: Path) -> tuple[list[str], int]:
        program, *arguments = shlex.split(command)
        if program == "cat":
            return folder.joinpath(*arguments).read_text(encoding="utf-8").splitlines(), 0
        assert program == "planner"
        with self.monkeypatch.context() as patch:
            patch.chdir(folder)
            done = self.planner(*arguments)
        return [line.rstrip() for line in (done.out + done.err).splitlines()], done.exit_code


@pytest.fixture
def runs(
    planner: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Runs:
    return Runs(planner, tmp_path_factory, monkeypatch)


def place_of(chunk: Sequence[str], printed: Sequence[str], start: int) -> int | None:
    """Where lines stand one after the other, the first place from ``start`` on."""
    for place in range(start, len(printed) - len(chunk) + 1):
        pairs = zip(chunk, printed[place:], strict=False)
        if all(one == other or (TIMED.search(one) and TIMED.search(other)) for one, other in pairs):
            return place
    return None


def test_the_readme_shows_runs() -> None:
    assert sum(session.page == README.name for session in sessions()) >= 3


QUICK_SESSIONS = [one for one in sessions() if not one.is_long]


@pytest.mark.parametrize("session", [one for one in QUICK_SESSIONS if one.is_first], ids=str)
def test_command_of_the_readme_prints_what_is_shown(session: Session, runs: Runs) -> None:
    prints_what_is_shown(session, runs)


@pytest.mark.few(3)
@pytest.mark.parametrize("session", [one for one in QUICK_SESSIONS if not one.is_first], ids=str)
def test_command_prints_what_is_shown(session: Session, runs: Runs) -> None:
    prints_what_is_shown(session, runs)


LONG_SESSIONS = [
    pytest.param(one, marks=[pytest.mark.drawn] if LONGEST in one.commands[-1] else [])
    for one in sessions()
    if one.is_long
]


@pytest.mark.slow
@pytest.mark.parametrize("session", LONG_SESSIONS, ids=str)
def test_long_command_prints_what_is_shown(session: Session, runs: Runs) -> None:
    prints_what_is_shown(session, runs)


def prints_what_is_shown(session: Session, runs: Runs) -> None:
    _, lines, exit_code = runs(session.commands)
    printed = [line for line in lines if line]
    at = 0
    for chunk in session.chunks:
        place = place_of(chunk, printed, at)
        assert place is not None, [line for line in chunk if line not in printed] or chunk
        at = place + len(chunk)
    assert exit_code == session.exit_code, lines[-3:]


def test_set_up_commands_are_those_of_the_gate() -> None:
    commands = [block for page, block in blocks("sh") if page == README.name]
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert any("planner search --model llama-65b --gpus 2048" in text for text in commands)
    for needed in ("pip install -e '.[test]'", "python -m pytest"):
        assert any(needed in text for text in commands)
    assert "-e '.[test," in gate
    assert "python -m pytest" in gate


@each("page", PAGES)
def test_commands_that_are_named_can_be_given(page: str) -> None:
    """All options of the commands of sh blocks are parsed, and their specs looked up."""
    from planner.cli.app import command_line

    for line in (
        line for name, block in blocks("sh") if name == page for line in block.split("\n")
    ):
        for words in (shlex.split(part, comments=True) for part in line.split("&&")):
            if words[:1] != ["planner"]:
                continue
            command: Any = command_line()
            names = [word for word in words[1:3] if re.fullmatch(r"[a-z][a-z-]*", word)]
            for name in names:
                command = getattr(command, "commands", {}).get(name, command)
                command = getattr(command, "built", command)
            is_of_group = names[0] == "specs" or names[:2] == ["sweep", "show"]
            rest = words[1 + (2 if is_of_group else 1) :]
            settings = command_line().context_settings
            given = command.make_context(names[0], rest, **settings).params
            look_up(given)


def shell_lines() -> list[Any]:
    """Page and planner commands of every sh block; those that search take the mark ``drawn``."""
    found = []
    for page, block in blocks("sh"):
        parts = (part.partition(" #")[0].strip() for part in re.split(r"\n|&&", block))
        lines = [part for part in parts if part.startswith("planner ") and not why_not(part)]
        if not lines or lines[0] == ON_ROWS_OF_THE_PAGE:
            continue
        is_quick = all(line.split()[1] in QUICK and "--plot" not in line for line in lines)
        marks = () if is_quick else pytest.mark.drawn
        found.append(pytest.param(page, lines, marks=marks, id=f"{page}: {lines[0][:60]}"))
    return found


def why_not(line: str) -> str:
    """Why a command of an sh block is not run, nothing if it is."""
    return next((reason for name, reason in NOT_RUN.items() if name in line), "")


@pytest.mark.few(2)
@pytest.mark.parametrize(("page", "lines"), shell_lines())
def test_commands_of_sh_blocks_end_well(
    page: str,
    lines: Sequence[str],
    planner: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "docs" / "static" / "pictures").mkdir(parents=True)
    (tmp_path / "docs" / "samples").symlink_to(ROOT / "docs" / "samples")
    monkeypatch.chdir(tmp_path)
    if page == "how-to/pictures.md" and "sweep show" in lines[0]:
        planner("sweep", "llama-65b", "--output", "llama-65b", "--quiet")
    for line in lines:
        # Trials are fewer: how a command ends does not hang on their number.
        words = shlex.split(re.sub(r"--trials \d+", "--trials 20", line))
        done = planner(*words[1:])
        assert done.exit_code == 0, f"{line}\n{done.err}"


def test_commands_that_are_not_run_are_there() -> None:
    text = "\n".join(block for _, block in blocks("sh"))
    assert all(name in text for name in NOT_RUN)
    assert f"```sh\n{ON_ROWS_OF_THE_PAGE}" in PAGES["how-to/measure.md"]


def look_up(given: dict[str, Any]) -> None:
    """The model and the space of a command are known."""
    from planner.specs.catalogue import Catalogue

    catalogue = Catalogue(None)
    for model in (given.get("model") or "").split(","):
        assert model in ("", *OF_THE_USER) or catalogue.load_model(model)
    if given.get("space") is not None:
        assert catalogue.load_space(given["space"])


@pytest.mark.few(2)
@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value[:20])
def test_examples_in_python_run(
    page: str,
    code: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "example"})
    assert capsys.readouterr().out


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@each("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = ROOT if page == README.name else (DOCS / page).parent
    for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (folder / path).resolve() if path else folder / Path(page).name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_the_four_doors_lead_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#:]+\.md)", PAGES["index.md"]))
    assert linked >= set(PAGES) - {README.name, "index.md"}
    start = {f"docs/{page}" for page in PAGES if page.startswith(("start/", "index"))}
    assert start <= set(re.findall(r"\]\(([^)#]+\.md)", PAGES[README.name]))


# Words of a page without its blocks and tables that scripts make.
MOST_WORDS = {"start": 400, "how-to": 950, "background": 1500}
MADE = re.compile(r"^```.*?^```|^<!-- made by .*?^<!-- end -->", re.DOTALL | re.MULTILINE)


@each("page", [page for page in PAGES if page.partition("/")[0] in MOST_WORDS])
def test_a_page_is_short(page: str) -> None:
    part = page.partition("/")[0]
    assert len(MADE.sub("", PAGES[page]).split()) <= MOST_WORDS[part]
    if part == "start":
        assert len(PAGES[page].partition("```console")[0].split()) <= 80


def test_the_readme_is_short() -> None:
    assert len(PAGES[README.name].splitlines()) <= 150


def rows_of(text: str, after: str) -> dict[str, list[str]]:
    """The cells of the rows of the tables under a heading, by the first of them."""
    _, _, section = text.partition(f"{after}\n")
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {row[0]: row[1:] for row in rows if not row[1].startswith("-")}


def test_the_errors_of_the_readme_are_those_of_the_tables() -> None:
    """A row names a section and a row of it; it has runs, mean, median, and share within."""
    shown = rows_of(PAGES[README.name], "## Accuracy")
    assert shown.pop("errors of") == ["runs", "mean", "median", "within"]
    assert len(shown) == 5
    for name, cells in shown.items():
        section, _, group = name.rpartition(", ")
        runs, _, mean, median, _, within, _ = rows_of(
            PAGES["reference/accuracy_tables.md"], section
        )[group]
        assert cells == [runs, mean, median, within], name


def test_the_readme_shows_the_runs_that_no_fit_saw_first() -> None:
    """A row has a set and a figure of the targets, without the runs that were fitted, and with."""
    text = PAGES[README.name]
    heading = "| published runs | figure | not fitted | all |"
    assert text.index(heading) < text.index("| errors of |")
    lines = text.partition(f"{heading}\n")[2].partition("\n\n")[0].splitlines()[1:]
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    _, _, targets = PAGES["reference/accuracy_tables.md"].partition("## Targets\n")
    known = {}
    for line in targets.partition("\n## ")[0].splitlines():
        if line.startswith("| "):
            name, figure, _, reached, unfitted, *_ = (one.strip() for one in line[1:].split("|"))
            known[name, figure] = [unfitted, reached]
    assert len(shown) >= 6
    for name, figure, *cells in shown:
        assert cells == known[name, figure], name


@pytest.mark.slow
def test_the_known_runs_of_the_readme_are_predicted_so() -> None:
    import make_accuracy

    text = PAGES[README.name]
    rows = rows_of(text, "## How good it is")
    assert len(rows.pop("run")) == 5
    assert sum(row[-1].startswith("`") for row in rows.values()) >= 8
    assert make_accuracy.with_known_runs(text) == text
