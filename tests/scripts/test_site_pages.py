"""What the site is made of: every page in its navigation, every number with its source."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
import site_pages
import spec_pages

from planner.specs.catalogue import Catalogue
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind

ROOT = Path(__file__).parents[2]
FORMULAS = sorted(path.stem for path in ROOT.glob("planner/formulas/[a-z]*.py"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages that the site makes, by file."""
    return dict(site_pages.pages())


def test_the_navigation_has_four_parts() -> None:
    assert [*site_pages.NAVIGATION] == ["Start", "How-to", "Background", "Reference"]


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    groups = (listed for _, listed in site_pages.GROUPS.values())
    listed = " ".join([*site_pages.NAVIGATION.values(), *groups]).split()
    docs = ROOT / "docs"
    pages_of = (path.relative_to(docs).with_suffix("") for path in docs.glob("**/*.md"))
    written = {str(path) for path in pages_of if path.parts[0] not in ("index", "generated")}
    made = {f"generated/{name.rpartition('.')[0]}" for name in pages}
    assert sorted(listed) == sorted(written | made)


@pytest.mark.parametrize("kind", ["gpus", "clusters", "models", "frameworks", "engines"])
def test_every_spec_is_on_a_page(pages: dict[str, str], kind: str) -> None:
    for name in Catalogue(None).names(SpecKind(kind)):
        assert f"\n## {name}\n" in pages[f"{kind}.md"] or f"\n| {name} |" in pages[f"{kind}.md"]


def test_a_number_has_its_unit_and_its_source(pages: dict[str, str]) -> None:
    _, _, section = pages["gpus.md"].partition("\n## h100-sxm-80gb\n")
    section = section.partition("\n## ")[0]
    given = read_toml(Catalogue(None).find(SpecKind.GPUS, "h100-sxm-80gb"))
    assert "| `memory_bandwidth` | 3,350 GB/s | memory |" in section
    assert f"\n- memory: {spec_pages.plain(given['sources']['memory'])}\n" in section
    assert "| `host.memory_per_gpu` | 256 GiB | host\\_memory |" in section


def test_what_nobody_measured_is_marked(pages: dict[str, str]) -> None:
    _, _, section = pages["gpus.md"].partition("\n## mi300x-192gb\n")
    section = section.partition("\n## ")[0]
    assert "| `scale_out_bandwidth` | 400 Gbit/s | **assumed** |" in section
    defaults = re.search(r"the defaults of (.*)\.\n", section)
    assert defaults is not None
    assert "[amd](#defaults-of-amd)" in defaults[1]
    _, _, section = pages["gpus.md"].partition("\n## Defaults of amd\n")
    assert re.search(r"\| `efficiency\.\S+` \| \S+ \| amd\.\S+ \(\*\*default\*\*\) \|", section)


@pytest.mark.parametrize("kind", ["gpus", "frameworks", "engines"])
def test_a_number_stands_once_and_its_place_is_linked(pages: dict[str, str], kind: str) -> None:
    page = pages[f"{kind}.md"]
    headings = re.findall("^## (.+)$", page, re.MULTILINE)
    inherited = re.findall(r"^What is not here: .+", page, re.MULTILINE)
    linked = set(re.findall(r"\(#([^)]+)\)", " ".join(inherited)))
    assert linked
    anchors = {re.sub(r"[^\w -]", "", name).lower().replace(" ", "-") for name in headings}
    assert linked <= anchors
    if kind == "gpus":
        rows = page.partition("## Defaults of")[2].splitlines()
        defaults = [row for row in rows if "(**default**)" in row]
        assert len(defaults) == len(set(defaults)) == page.count("(**default**)")


def test_a_profile_says_what_it_builds_on(pages: dict[str, str]) -> None:
    _, _, section = pages["engines.md"].partition("\n## vllm-v0-paged\n")
    section = section.partition("\n## ")[0]
    assert "as [vllm-v0](#vllm-v0)" in section
    assert "`execution.step_overhead`" not in section


def test_texts_show_as_they_are() -> None:
    shown = spec_pages.plain("a_b | <c> *d*, see https://e.f/g_h.")
    assert shown == r"a\_b \| \<c\> \*d\*, see <https://e.f/g_h>."


def test_links_to_the_top_folder_lead_to_pages_of_the_site() -> None:
    source = ["[how](../../CONTRIBUTING.md) and [more](training.md#a-search)"]
    site_pages.prepare("how-to/specs", source)
    assert source == ["[how](../generated/contributing.md) and [more](training.md#a-search)"]


def test_every_formula_is_on_the_page(pages: dict[str, str]) -> None:
    named = re.findall(r"automodule:: planner\.formulas\.(\w+)", pages["formulas.rst"])
    assert sorted(named) == FORMULAS


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_shown_as_one(name: str) -> None:
    module = import_module(f"planner.formulas.{name}")
    shown = {
        function: ".. math::" in (inspect.getdoc(found) or "")
        for function, found in vars(module).items()
        if inspect.isfunction(found) and found.__module__ == module.__name__
    }
    without = {function for function, has in shown.items() if not has and function[0] != "_"}
    assert without <= {
        *(
            "trilinear",
            "solve_rate",
            "disaggregated_closed_loop_rate",
            "earlier_uses",
            "stack_distances",
        ),
        "weighted_quantile",
    }  # procedures


def test_references_of_two_docstrings_do_not_meet() -> None:
    line = "By Little's law [1]_, for x[1] and [2]."
    assert site_pages.with_own_references("a.b", [line, ".. [1] J. Little"]) == [
        "By Little's law [#a-b-1]_, for x[1] and [2].",
        ".. [#a-b-1] J. Little",
    ]


def test_parameters_are_said_what_they_mean() -> None:
    lines = ["Parameters", "----------", "a, b : what : is", "    more", "", "Raises", "------"]
    assert site_pages.with_parameters(lines) == [
        ".. rubric:: Parameters",
        "",
        "``a``, ``b``",
        "    what : is",
        "    more",
        "",
        "Raises",
        "------",
    ]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("planner.api", marks=pytest.mark.slow),
        pytest.param("planner.api_files", marks=pytest.mark.slow),
        "planner.errors",
        "planner.base.units",
    ],
)
def test_examples_of_the_interface_run(name: str) -> None:
    ran = doctest.testmod(import_module(name))
    assert ran.attempted
    assert not ran.failed


def test_the_gate_builds_the_site_with_warnings_as_errors() -> None:
    gate = ROOT.joinpath(".ci", "run").read_text(encoding="utf-8")
    (build,) = (line for line in gate.splitlines() if "-m sphinx" in line)
    assert " -W " in build
    assert "[test,docs]" in gate
