"""Hostile names, cells, uploads and links: nothing of them becomes markup, a formula or a path.

Host names and requests of other sites are in ``test_guard.py``, pages of files in
``tests/pages``; all have the mark ``security``.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import tarfile
import zipfile
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from rows import each

from planner.base import read_files
from planner.base.read_files import read_text, restrict_to_folders
from planner.commands.options import form_fields
from planner.errors import LaunchError, PlannerError, SearchSpaceError, SpecError
from planner.ui.question import COMMANDS, Question
from planner.ui.request_limits import Limits
from planner.ui.worker_pool import Uploads, answer, make_file

pytestmark = pytest.mark.security

EVIL = "<img src=x onerror=alert(1)>\"'"
FORMULAS = ("=HYPERLINK(1)", "@SUM(A1)", "+1+cmd", "-1+cmd", "\t=1", "\r=1")


def is_text(page: str) -> bool:
    """Whether the hostile name is only text in a page."""
    return "<img src=x" not in page and f'="{EVIL[:12]}' not in page


@pytest.mark.parametrize("command", COMMANDS)
def test_fields_of_a_form_are_text_on_its_page(command, client):
    fields = dict.fromkeys(form_fields(command, "train"), EVIL)
    page = client.get(f"/{command}", params=fields)
    assert page.status_code < 500
    assert "&lt;img src=x" in page.text
    assert is_text(page.text)


@each("name", ["model", "gpu", "num_gpus", "settings", "space", "total_tokens", "precision"])
def test_a_message_is_text_on_its_page(name, client):
    link = {"model": "llama-7b", "num_gpus": "8", name: EVIL}
    reply = client.get("/answers/search", params=link).json()
    if reply["job"]:
        assert "event: end" in client.get(f"/jobs/{reply['job']}/events").text
        reply = client.get("/answers/search", params=link).json()
    texts = [str(value) for value in reply.values() if isinstance(value, str)]
    assert any("&lt;img" in text for text in texts), reply
    assert all(is_text(text) for text in texts)


@each("path", ["/api/v1/estimate", "/files/estimate/table.csv"])
def test_a_message_is_no_page(path, client):
    reply = client.get(path, params={"model": EVIL, "num_gpus": "8"})
    assert reply.status_code == 400
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not reply.headers["content-type"].startswith("text/html")


@each("path", ["/<img src=x>", "/jobs/<img src=x>/events", "/search?<img src=x>=1"])
def test_a_path_that_is_none_is_no_page(path, client):
    assert "<img src=x" not in client.get(path).text


def evil_files():
    """Uploads whose names and texts are hostile."""
    script = f"vllm serve Qwen/Qwen3-8B --served-model-name '{EVIL}' --odd '{EVIL}' # {EVIL}\n"
    yield "estimate", "serve", "run<img src=x>.sh", script
    yield "estimate", "serve", "run.sh", f"vllm serve '{EVIL}/{EVIL}'\n"
    plan = f'workload = "train"\nmodel = "{EVIL[:-2]}"\nnum_gpus = 8\n'
    yield "estimate", "train", "plan.toml", plan
    yield "explain", "serve", "serve.sh", script


@each(("command", "workload", "name", "text"), [*evil_files()])
def test_an_upload_is_text_on_its_page(command, workload, name, text):
    query = f"workload={workload}&file=x:{name}&gpu=h100"
    question = Question.of(command, parse_qsl(query, keep_blank_values=True))
    question = replace(question, files=((name, text),))
    try:
        page = answer(question, None, Limits(), lambda *_: None).content
    except PlannerError:
        return  # messages are escaped by the page: see above
    assert is_text(page)


def test_a_table_of_the_server_has_no_formula():
    """The name of a spec may be any; a spreadsheet opens what the server gives."""
    question = Question.of("search", parse_qsl("model=llama-7b&num_gpus=8&space=small"))
    table = make_file(question, "table.csv", None, Limits(), lambda *_: None).content
    for row in csv.reader(io.StringIO(table.decode())):
        for cell in row:
            assert not cell.startswith(("=", "@", "\t", "\r")), cell
            if cell.startswith(("+", "-")):
                float(cell)


@each("formula", FORMULAS)
def test_a_name_of_a_sweep_is_no_formula(formula):
    """Own specs have any name, and scenarios tell it."""
    from planner.show.presenters.row_tables import csv_cell, plain_cell
    from planner.sweeps.run_sweep import _cells

    cells = [csv_cell(formula), plain_cell(formula), *_cells([formula], "text")]
    for cell in cells:
        ((text,),) = csv.reader([cell])
        assert text.startswith("'")


@each(
    "name",
    [
        "../../evil.sh", "/etc/evil.sh", "..\\..\\evil.sh", "C:\\evil.sh", "a/../../evil.sh",
        "\\\\host\\share\\evil.sh",
    ],
)  # fmt: skip
def test_an_upload_stays_in_its_folder(name):
    token = Uploads(Limits()).keep({"files": [{"name": name, "text": "x"}]})
    assert token.endswith(":evil.sh")


@each("name", ["", ".", "..", "a/..", "/", "a\n.sh", "a\x1b.sh", "\0", "x" * 300])
def test_an_upload_has_a_name_of_a_file(name):
    with pytest.raises(SearchSpaceError):
        Uploads(Limits()).keep({"files": [{"name": name, "text": "x"}]})


def archives():
    """Archives with a link that leads out, and a file that would land outside."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        link = tarfile.TarInfo("run.sh")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        outside = tarfile.TarInfo("../outside.sh")
        outside.size = 1
        archive.addfile(outside, io.BytesIO(b"x"))
    yield "links.tar.gz", made.getvalue()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("../outside.sh", "x")
        link = zipfile.ZipInfo("run.sh")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    yield "links.zip", made.getvalue()
    yield "bomb.gz", gzip.compress(b"\0" * 2**22)


def test_archives_are_refused_and_not_unpacked(planner, tmp_path, client):
    for name, content in archives():
        path = tmp_path / "files" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        for words in (("estimate", "--from", path), ("check", "--", "bash", path)):
            done = planner(*words, "--gpu", "h100") if words[0] == "estimate" else planner(*words)
            assert done.exit_code == LaunchError.exit_code, (name, done)
            assert "root:" not in done.out + done.err
        text = content.decode("latin-1")
        reply = client.post("/uploads", json={"files": [{"name": name, "text": text}]})
        assert reply.status_code == 400
    assert [path.name for path in tmp_path.iterdir()] == ["files"]
    assert {path.suffix for path in (tmp_path / "files").iterdir()} == {".gz", ".zip"}


def test_the_archives_of_the_server_have_plain_files_only():
    query = "model=llama-7b&num_gpus=8&space=small&target=megatron-lm&wrapper=slurm"
    question = Question.of("launch", parse_qsl(query))
    content = make_file(question, "launch.zip", None, Limits(), lambda *_: None).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            assert member.filename == os.path.basename(member.filename)
            assert member.filename not in ("", ".", "..")
            assert (member.external_attr >> 16) & 0o170000 in (0, 0o100000), "no link"


def test_links_lead_nowhere_outside_what_was_given(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (inside / "file").write_text("given")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside, target_is_directory=True)
    (inside / "own").symlink_to(inside / "file")
    (tmp_path / "inside2").mkdir()
    (tmp_path / "inside2" / "secret").write_text("secret")
    with restrict_to_folders([inside]):
        assert read_text(inside / "own") == "given"
        for path in ("link", "folder/secret", "../outside/secret", "../inside2/secret", "none"):
            with pytest.raises(SpecError) as error:
                read_text(inside / path)
            if path != "none":
                assert "outside the given files" in str(error.value)
        with pytest.raises(SpecError) as missing:
            read_text(outside / "none")
        assert "outside the given files" in str(missing.value), "whether there is one is not told"


def test_paths_on_another_drive_are_outside(monkeypatch, tmp_path):
    """As `os.path.commonpath` of Windows has it of two drives."""

    def of_two_drives(_: object) -> str:
        raise ValueError("Paths don't have the same drive")

    monkeypatch.setattr(read_files.os.path, "commonpath", of_two_drives)
    with (
        restrict_to_folders([tmp_path]),
        pytest.raises(SpecError, match="outside the given files"),
    ):
        read_text(tmp_path / "file")


def test_what_others_left_is_not_followed(tmp_path):
    """A link called as an unfinished file of planner is removed or left, never its target."""
    from planner.base.atomic_write import remove_unfinished

    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / ".planner-0123456789ab.tmp").symlink_to(target)
    remove_unfinished(tmp_path)
    assert target.read_text() == "kept"
