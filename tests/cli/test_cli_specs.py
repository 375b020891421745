from __future__ import annotations

import re

import pytest

KINDS = ("gpus", "clusters", "models", "spaces", "frameworks", "engines")

FAULTY = """name = "x"
description = "two faults"
framework = "megatron-lm"
color = 1
[parameters]
tensor_parallel = { powers_of_two_up_to = -1 }
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_plain_and_fit(planner, kind):
    ran = planner("specs", "list", kind)
    assert ran.exit_code == 0
    assert "\x1b" not in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    assert "faulty" not in ran.out


def test_without_a_kind_the_kinds_are_listed(planner):
    out = planner("specs", "list").out
    assert all(kind in out for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("gpus", "h100", ["3350 GB/s", "[memory]", "CLASS DEFAULT", "Sources", "per GPU-hour"]),
        ("clusters", "dgx-a100", ["300 GB/s", "ASSUMED"]),
        ("models", "llama-65b", ["65,285,660,672", "2302.13971", "1.4 trillion"]),
        ("spaces", "small", ["powers of two up to 16"]),
        (
            "frameworks",
            "megatron-lm",
            ["layer_launch_time", "Sources", "Meanings", "time to launch"],
        ),
        ("engines", "vllm", ["step_overhead", "Sources"]),
        ("models", "gpt-oss-20b", ["mxfp4"]),
    ],
)
def test_show_gives_numbers_units_and_sources(planner, kind, name, words):
    ran = planner("specs", "show", kind, name)
    assert ran.exit_code == 0
    assert all(word in ran.out for word in words)


def test_everything_shipped_is_valid(planner):
    ran = planner("specs", "validate")
    assert ran.exit_code == 0
    assert "no errors" in ran.out


def test_every_fault_of_every_file_is_printed(planner, tmp_path):
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(FAULTY)
    ran = planner("specs", "validate", "spaces", tmp_path / "a.toml", tmp_path / "b.toml")
    assert ran.exit_code == 2
    for name in ("a.toml", "b.toml"):
        assert f"{tmp_path / name}: color is not a known key" in ran.err
        assert f"{tmp_path / name}: parameters.tensor_parallel" in ran.err


def test_a_space_with_an_unknown_parameter_is_faulty(planner, tmp_path):
    path = tmp_path / "x.toml"
    lines = ['name = "x"', 'description = "d"', 'framework = "megatron-lm"', "[parameters]"]
    path.write_text("\n".join([*lines, "tensor_paralel = [1]"]))
    ran = planner("specs", "validate", "spaces", path)
    assert ran.exit_code == 2
    assert "tensor_parallel" in ran.err


def test_the_kind_of_a_file_must_be_known(planner, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("")
    ran = planner("specs", "validate", path)
    assert ran.exit_code == 2
    assert "planner specs validate KIND" in ran.err


def test_own_specs_are_looked_in_first(planner, tmp_path):
    (tmp_path / "spaces").mkdir()
    space = 'name = "mine"\ndescription = "d"\nframework = "megatron-lm"\n[parameters]\n'
    (tmp_path / "spaces" / "mine.toml").write_text(space)
    assert "mine" in planner("specs", "list", "spaces", "--specs", tmp_path).out
    assert "mine" not in planner("specs", "list", "spaces").out


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [200, 120, 80, 60, 40])
@pytest.mark.parametrize(
    "kind", ["gpus", "clusters", pytest.param("models", marks=pytest.mark.slow)]
)
def test_no_digit_is_cropped(planner, kind, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    printed = planner("specs", "list", kind).out.splitlines()
    rule = next(at for at, line in enumerate(printed) if set(line) == {"-"})
    whole = printed[rule + 1 :]
    wide = {line.split()[0]: line.split() for line in whole}
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = planner("specs", "list", kind).out.splitlines()
    assert max(map(len, lines)) <= columns
    rows = [line.split() for line in lines if line.split()[:1] and line.split()[0] in wide]
    assert [row[0] for row in rows] == [*wide]
    for row in rows:
        assert set(row) <= set(wide[row[0]])
    assert "Columns not shown: " in " ".join(lines) or all(row == wide[row[0]] for row in rows)


def test_a_narrow_list_keeps_the_price(planner, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert re.search(
        r"^h100-sxm-80gb .* 3\.85$", planner("specs", "list", "gpus").out, re.MULTILINE
    )


def test_a_gpu_shows_its_prices_offers_and_what_owning_it_takes(planner):
    out = planner("specs", "show", "gpus", "h100-sxm-80gb").out
    assert re.search(r"^on-demand +3\.85 +1\.99 +12\.29 +48 +2026-11-09$", out, re.MULTILINE)
    assert re.search(r"^owned +2\.22 +1\.50 +3\.64 ", out, re.MULTILINE)
    assert re.search(r"^on-demand +[\d.]+ +\S.* old: undated$", out, re.MULTILINE)
    assert re.search(r"^utilization +0\.85 +0\.7 to 1$", out, re.MULTILINE)
    assert "No rental offers are known." in planner("specs", "show", "gpus", "gaudi2").out


def test_tables_of_prices_are_checked(planner, tmp_path):
    (tmp_path / "prices.csv").write_text("gpu,price\nh10,1\nh100,2\n")
    (tmp_path / "currencies.csv").write_text("currency,usd,date,source\nEUR,0,2026,me\n")
    (tmp_path / "ownership.csv").write_text("quantity,value,unit,source\nlifetime,0,years,me\n")
    (tmp_path / "power.toml").write_text("name = 1\n")
    head = "region,name,alias,quantity,value,unit,source,year"
    (tmp_path / "regions.csv").write_text(f"{head}\nSE,,,pue,0.5,1,me,2026\n")
    head = "provider,model,input_usd_per_mtok,output_usd_per_mtok"
    (tmp_path / "api_prices.csv").write_text(f"{head}\nme,llama-7b,x,1\n")
    ran = planner("specs", "validate", "--specs", str(tmp_path))
    assert ran.exit_code == 2
    for part in (
        "power.toml: ",
        "regions.csv:2: value 0.5 is below 1",
        "api_prices.csv:2: input_usd_per_mtok 'x'",
        "prices.csv: Unknown GPU 'h10'",
        "currencies.csv:2: ",
        "ownership.csv:2: life",
    ):
        assert part in ran.err
