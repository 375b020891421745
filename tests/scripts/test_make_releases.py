"""The page of releases is made from the files that each leaves behind."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import make_releases
import pytest
from make_releases import comparison, read_predictions

from planner.base.version import __version__
from planner.errors import SpecError

ROOT = Path(__file__).parents[2]


def test_the_page_is_made_by_its_script() -> None:
    text = make_releases.PAGE.read_text(encoding="utf-8")
    assert make_releases.page() == text, "run scripts/make_releases.py"


def test_this_version_has_a_date_a_record_and_predictions() -> None:
    date = make_releases.released()[__version__]
    with make_releases.RECORD.open(newline="", encoding="utf-8") as file:
        mine = [row for row in csv.DictReader(file) if row["release"] == __version__]
    assert {row["date"] for row in mine} == {date}
    assert {row["group"] for row in mine} == {"all", "evidence", "publisher"}
    assert len(read_predictions(make_releases.PREDICTIONS / f"{__version__}.csv.gz")) > 10_000
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation
    assert f"\ndate-released: {date}\n" in citation


def written(path: Path, rows: dict[str, float]) -> Path:
    lines = ["id,quantity,software,predicted,measured"]
    lines += [f"{name},step_time_s,x,{value},10" for name, value in rows.items()]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_what_changed_by_how_much_is_told(tmp_path: Path) -> None:
    old = written(tmp_path / "old", {"same": 10.0, "a": 20.0, "b": 8.0, "gone": 1.0})
    new = written(tmp_path / "new", {"same": 10.05, "a": 11.0, "b": 6.0, "new": 1.0})
    *_, row = comparison(read_predictions(old), read_predictions(new)).splitlines()
    cells = [cell.strip() for cell in row[1:-1].split("|")]
    # Of a and b, by 45 % and 25 %, one is nearer to 10.
    assert cells[:3] == ["step time s", "3", "2"]
    assert cells[3:] == ["35.0 %", "-45 %", "50 %", "20.0 %", "10.0 %", "1", "1"]


def test_a_version_without_a_date_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("## Unreleased\n\n## 0.1.0 (2026-01-01)\n", encoding="utf-8")
    monkeypatch.setattr(make_releases, "CHANGELOG", changelog)
    with pytest.raises(SpecError, match=f"no heading '## {__version__}"):
        make_releases.record_release()
