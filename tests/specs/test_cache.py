"""Nothing is read twice, and everything again once a file or folder behind it changed."""

from __future__ import annotations

import os
import pickle
import runpy
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.question.request import Request
from planner.specs import file_cache, spec_files
from planner.specs.catalogue import find, load_gpu, load_model, names
from planner.specs.file_cache import (
    SNAPSHOT,
    cache_between_runs,
    cache_by_files,
    snapshot_files,
    stamp,
)
from planner.specs.hardware import load_gpu_with_provenance, read_gemm_table
from planner.specs.price import price_of
from planner.specs.software_profile import load_engine, load_framework
from planner.specs.spec_paths import extra_files
from planner.workloads.make_plan import make_plan

GPU = "h100-sxm-80gb"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Files that a test has just written count as settled.
    monkeypatch.setattr(file_cache, "_SETTLED_AFTER_NS", -(10**9))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    found: list[str] = []
    read = spec_files.read_bytes

    def noted(path: Path, limit: int = spec_files.SMALL) -> bytes:
        found.append(path.name)
        return read(path, limit)

    monkeypatch.setattr(spec_files, "read_bytes", noted)
    return found


def written(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def own(kind: str, name: str, old: str = "", new: str = "") -> Path:
    """A copy of a shipped file in the working directory, changed."""
    text = find(kind, name).read_text(encoding="utf-8")
    assert old in text
    return written(f"hardware_specs/{kind}/{name}.toml", text.replace(old, new))


def test_a_second_plan_reads_no_file(reads: list[str]) -> None:
    request = Request(model="llama-65b", num_gpus=8, gpu=GPU)
    first = make_plan(request)
    reads.clear()
    second = make_plan(request)
    assert reads == []
    assert second.digests == first.digests
    assert second.problem.inputs.model is first.problem.inputs.model


def test_an_edited_file_is_read_again() -> None:
    own("gpus", GPU)
    before = load_gpu(GPU).memory_capacity
    own("gpus", GPU, "value = 80, ", "value = 40, ")
    assert load_gpu(GPU).memory_capacity == before / 2


def test_an_edited_default_changes_the_gpus_that_use_it() -> None:
    own("efficiency", "hopper")
    before = load_gpu(GPU).efficiency
    text = Path("hardware_specs/efficiency/hopper.toml").read_text(encoding="utf-8")
    changed = text.replace("[efficiency.memory_bound]", "[efficiency.other]\n[efficiency.memory]")
    written("hardware_specs/efficiency/hopper.toml", changed)
    with pytest.raises(SpecError):
        load_gpu(GPU)
    own_text = text.replace("# ", "# #", 1)
    written("hardware_specs/efficiency/hopper.toml", own_text)
    assert load_gpu(GPU).efficiency == before


def test_a_new_file_hides_the_shipped_one_and_a_deleted_one_does_not() -> None:
    shipped = load_gpu(GPU).memory_capacity
    path = own("gpus", GPU, "value = 80, ", "value = 40, ")
    assert load_gpu(GPU).memory_capacity == shipped / 2
    path.unlink()
    assert load_gpu(GPU).memory_capacity == shipped


def test_a_new_alias_is_found() -> None:
    path = own("gpus", GPU, 'name = "', 'aliases = ["mine"]\nname = "')
    text = path.read_text(encoding="utf-8")
    assert find("gpus", "mine") == path
    path.write_text(text.replace('"mine"', '"yours"'), encoding="utf-8")
    assert find("gpus", "yours") == path
    with pytest.raises(SpecError, match="Unknown GPU"):
        find("gpus", "mine")


def test_a_listing_sees_new_and_deleted_files() -> None:
    shipped = names("gpus")
    path = own("gpus", GPU).rename("hardware_specs/gpus/another.toml")
    assert set(names("gpus")) - set(shipped) == {"another"}
    path.unlink()
    assert names("gpus") == shipped


def test_models_profiles_prices_and_kernels_are_read_again() -> None:
    model = written("m.toml", find("models", "llama-7b").read_text(encoding="utf-8"))
    assert load_model("./m.toml").name == "LLaMA 7B"
    written("m.toml", model.read_text().replace('name = "LLaMA 7B"', 'name = "other"'))
    assert load_model("./m.toml").name == "other"
    profile = written("p.toml", 'extends = "megatron-lm"\nname = "one"\n')
    assert load_framework("./p.toml").spec.name == "one"
    profile.write_text('extends = "megatron-lm"\nname = "two"\n', encoding="utf-8")
    assert load_framework("./p.toml").spec.name == "two"
    for price in (1, 2):
        written("hardware_specs/prices.csv", f"gpu,price\n{GPU},{price}\n")
        found = price_of(GPU)
        assert found is not None
        assert found.value * 3600 == pytest.approx(price)
    rows = [f"{m},{n},{k},1.0" for m in (1, 2) for n in (1, 2) for k in (1, 2)]
    table = written("k.csv", "\n".join(["rows,columns,depth,share", *rows]))
    first = read_gemm_table(table)
    assert read_gemm_table(table) is first
    table.write_text(table.read_text() + "\n", encoding="utf-8")
    assert read_gemm_table(table) is not first


def test_names_belong_to_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    own("gpus", GPU, "value = 80, ", "value = 40, ")
    here = load_gpu(GPU).memory_capacity
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert load_gpu(GPU).memory_capacity == 2 * here


def test_same_size_and_time_but_another_file(tmp_path: Path) -> None:
    path = written("a", "one")
    old = path.stat()
    before = stamp(path)
    written("b", "two").replace(path)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert stamp(path) != before


def test_what_changed_just_now_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_cache, "_SETTLED_AFTER_NS", 50_000_000)
    path = written("a", "one")
    now, calls = max(path.stat().st_mtime_ns, path.stat().st_ctime_ns), []
    monkeypatch.setattr(file_cache.time, "time_ns", lambda: now)

    @cache_by_files
    def content(file: Path) -> str:
        stamp(file)
        calls.append(file)
        return file.read_text(encoding="utf-8")

    content(path), content(path)
    assert len(calls) == 2
    now += 50_000_001
    content(path), content(path)
    assert len(calls) == 3


def test_errors_are_not_kept_but_what_they_depend_on_is() -> None:
    @cache_by_files
    def inner(file: Path) -> str:
        if not stamp(file):
            raise SpecError("none")
        return "some"

    @cache_by_files
    def outer(file: Path) -> str:
        try:
            return inner(file)
        except SpecError:
            return "caught"

    path = Path("later")
    assert [outer(path), outer(path)] == ["caught", "caught"]
    path.touch()
    assert outer(path) == "some"


def test_a_kept_part_still_decides_over_what_is_made_of_it() -> None:
    path = written("part", "one")

    @cache_by_files
    def part(file: Path) -> str:
        stamp(file)
        return file.read_text(encoding="utf-8")

    @cache_by_files
    def whole(file: Path) -> str:
        return part(file) * 2

    part(path)
    assert whole(path) == "oneone"
    path.write_text("2", encoding="utf-8")
    assert whole(path) == "22"


def test_threads_read_the_same(tmp_path: Path) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(load_gpu(GPU))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(gpu == found[0] for gpu in found)
    assert len(found) == 4


@pytest.fixture
def next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """What ends a run and starts another one with the same folder of caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(file_cache, "_STARTED", 2 * time.time_ns())

    def end() -> None:
        file_cache._save()
        file_cache._snapshot.cache_clear()

    file_cache._snapshot.cache_clear()
    yield end
    file_cache._snapshot.cache_clear()


def read_text(file: Path) -> dict[str, Any]:
    stamp(file)
    return {"text": file.read_text(), "number": 0.1}


def in_new_run(make: Callable[[Path], Any], file: Path) -> Any:
    """The answer of a process that has cached nothing itself."""
    return cache_between_runs(make)(file)


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text("a")
    return path


def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reading fail: what is still answered comes from the cache."""
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("read again"))


def test_a_file_is_not_read_again_by_the_next_run(
    tmp_path: Path, next_run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path)
    expected = {"text": "a", "number": 0.1}
    assert in_new_run(read_text, path) == expected
    next_run()
    _unread(monkeypatch)
    assert in_new_run(read_text, path) == expected


def test_cached_specs_equal_those_that_are_read() -> None:
    table = next(extra_files("kernels")[0].glob("*.csv"))
    specs: list[object] = [load_gpu_with_provenance(GPU), load_model("deepseek-v3")]
    specs += [load_framework("nemo"), load_engine("vllm"), price_of(GPU), read_gemm_table(table)]
    for spec in specs:
        again = file_cache._Unpickler(BytesIO(pickle.dumps(spec))).load()
        assert type(again) is type(spec)
        assert repr(again) == repr(spec)


def test_an_edit_that_keeps_size_and_time_is_seen(
    tmp_path: Path, next_run: Callable[[], None]
) -> None:
    path = _file(tmp_path)
    in_new_run(read_text, path)
    next_run()
    times = path.stat()
    path.write_text("b")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert in_new_run(read_text, path)["text"] == "b"


def test_another_version_of_the_code_reads_again(
    tmp_path: Path, next_run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path)
    in_new_run(read_text, path)
    next_run()
    monkeypatch.setattr(file_cache, "_code_stamps", lambda: {"planner/specs/gpu.py": (1,)})
    _unread(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="read again"):
        in_new_run(read_text, path)


def test_code_that_was_edited_during_the_run_keeps_nothing(
    tmp_path: Path, next_run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "_STARTED", 0)
    in_new_run(read_text, _file(tmp_path))
    next_run()
    assert not (tmp_path / "caches/planner" / SNAPSHOT).exists()


def test_one_edited_file_of_the_code_is_enough(
    tmp_path: Path, next_run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = {"old.py": (1, 1, 9, 9, 9), "edited.py": (3 * time.time_ns(), 1, 9, 9, 9)}
    monkeypatch.setattr(file_cache, "_code_stamps", lambda: stamps)
    in_new_run(read_text, _file(tmp_path))
    next_run()
    assert not (tmp_path / "caches/planner" / SNAPSHOT).exists()


def test_installations_side_by_side_keep_their_own_results(tmp_path: Path) -> None:
    copy = tmp_path / "planner/specs/file_cache.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(Path(str(file_cache.__file__)).read_bytes())
    other = runpy.run_path(str(copy))
    assert other["SNAPSHOT"] != SNAPSHOT


def test_the_code_that_reads_specs_is_watched() -> None:
    watched = {Path(path) for path in file_cache._code_stamps()}
    modules = ("specs.gpu", "specs.validated", "base.units", "question.terms", "errors")
    assert {Path(str(import_module(f"planner.{name}").__file__)) for name in modules} <= watched


@pytest.mark.parametrize("content", [b"", b"\n", b"\0\n\0", pickle.dumps(7), pickle.dumps(({}, 7))])
def test_what_something_else_wrote_is_read_again(
    content: bytes, tmp_path: Path, next_run: Callable[[], None]
) -> None:
    path = _file(tmp_path)
    in_new_run(read_text, path)
    next_run()
    (tmp_path / "caches/planner" / SNAPSHOT).write_bytes(content)
    assert in_new_run(read_text, path)["text"] == "a"


@pytest.mark.parametrize("harm", [os.system, Path.unlink, subprocess.Popen])
def test_the_cache_calls_no_functions(harm: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(pickle.UnpicklingError, match="not allowed"):
        file_cache._Unpickler(BytesIO(pickle.dumps(harm))).load()


def test_a_folder_that_cannot_be_written_is_no_fault(
    tmp_path: Path, next_run: Callable[[], None]
) -> None:
    (tmp_path / "caches").write_text("a file")
    path = _file(tmp_path)
    in_new_run(read_text, path)
    next_run()
    assert in_new_run(read_text, path)["text"] == "a"


def test_the_cache_belongs_to_the_working_directory(
    tmp_path: Path, next_run: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.toml").write_text(name)
    for name in ("here", "there", "here"):
        monkeypatch.chdir(tmp_path / name)
        assert in_new_run(read_text, Path("a.toml"))["text"] == name
        next_run()


def test_many_answers_of_the_same_specs_look_at_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    look = file_cache._looked
    monkeypatch.setattr(file_cache, "_looked", lambda place: (looked.append(place), look(place))[1])
    path = tmp_path / "one"
    path.write_text("a")
    text = cache_by_files(lambda: (stamp(path), path.read_text())[1])
    with snapshot_files():
        assert [text(), text(), text()] == ["a", "a", "a"]
        path.write_text("bb")
        assert text() == "a"
    assert len(looked) == 1
    assert text() == "bb"
