"""Tables to fill in: every column explained, read back without complaint, an example that runs."""

import csv

import pytest

from planner.__main__ import run
from planner.base.enums import (
    TemplateKind,
)
from planner.validation.run_tables import INFERENCE, RL, TRAINING, ColumnType, read_runs, template

SCHEMAS = {TemplateKind.TRAINING: TRAINING, TemplateKind.RL: RL}


@pytest.mark.parametrize("kind", TemplateKind)
def test_a_template_is_read_back_without_complaint(tmp_path, capsys, kind):
    path = tmp_path / "runs.csv"
    assert run(["validate", "--template", kind, "--output", str(path)]) == 0
    runs = read_runs(path)
    assert runs.not_understood == ()
    assert [one.text("id") for one in runs.rows] == ["example"]
    assert (runs.kind == "training") == (kind == "training")
    capsys.readouterr()
    assert run(["validate", str(path), "--quiet"]) == 0  # the example is predicted and compared
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kind", TemplateKind)
def test_every_column_is_explained_below_its_name(kind):
    names, words, cells, example = template(kind)
    assert len(names) == len(words) == len(cells) == len(example) == len(set(names))
    assert words[0].startswith("# ")
    assert cells[0].startswith("# ")
    assert all(len(text.split()) >= 2 for text in words)
    schema = SCHEMAS.get(kind, INFERENCE)
    told = dict(zip(names, cells, strict=True))
    assert set(schema.needed) <= set(names)
    for name in schema.needed:
        assert told[name].startswith("needed")
    measured = [name for name in names if schema.columns[name].type is ColumnType.MEASURED]
    assert measured
    assert all("optional: number [" in told[name] for name in measured)


def test_without_a_file_it_is_printed(capsys):
    assert run(["validate", "--template", "serving"]) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert "request_rate" in rows[0]
    assert "decode_tensor_parallel" in rows[0]


def test_no_runs_are_read_beside_it(capsys, tmp_path):
    assert run(["validate", str(tmp_path / "runs.csv"), "--template", "static"]) == 2
    assert "use --output" in capsys.readouterr().err
