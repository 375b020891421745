"""The help: grouped, of one workload, readable in every width; hints for wrong words."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from rows import each

from planner.cli.app import COMMANDS, WIDEST, command_line
from planner.cli.help import examples
from planner.errors import OTHER_WORDS
from planner.question.terms import glossary, terms_of

GROUPS = {"specs": ("list", "show", "validate"), "sweep": ("show",)}
LINES = [
    (),
    *((name,) for name in COMMANDS),
    *((name, member) for name, members in GROUPS.items() for member in members),
]
WORKLOADS = ("train", "inference", "serve")
TITLE = re.compile(r"^(\S[^:]*):$", re.MULTILINE)


def options_by_section(text: str) -> dict[str, list[str]]:
    """The options that each section of a help explains."""
    parts = TITLE.split(text)
    return {
        title: re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", rows, flags=re.MULTILINE)
        for title, rows in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.few(30)
@pytest.mark.parametrize("command", LINES, ids=" ".join)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_line_fits(planner, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    ran = planner(*command, "-h")
    assert ran.exit_code == 0
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= min(width, WIDEST)
    assert ran.out == planner(*command, "--help").out


@pytest.mark.parametrize("command", ["search", "estimate"])
def test_every_option_stands_in_one_section(planner, command):
    sections = options_by_section(planner(command, "-h", "all").out)
    shown = [option for options in sections.values() for option in options]
    assert len(shown) == len(set(shown))
    kinds = {"question", "limit"} if command == "search" else {"question"}
    asked = {term.option_name for term in glossary().values() if kinds & {*term.kind}}
    assert asked - {"--space"} <= {*shown}
    titles = ["Question", "Question, training", "GPUs and software", "Search", "Output"]
    assert [title for title in sections if title in titles] == titles
    assert "--step-time" not in sections["Question"]


@each("command", ["search", "estimate", "size", "compare", "explain", "launch", "max-batch"])
def test_a_help_says_first_what_nine_of_ten_questions_need(planner, command):
    brief, whole = (planner(command, "-h", *words).out for words in ((), ("all",)))
    shown = [option for found in options_by_section(brief).values() for option in found]
    assert {"--model", "--workload", "--gpu", "--gpus", "--set"} <= {*shown}
    assert len(shown) <= 23
    assert len(brief.splitlines()) < len(whole.splitlines()) / 3
    examples_of = brief.partition("\nExamples:\n")[2].partition("\n\n")[0]
    assert 1 <= examples_of.count(f"planner {command} ") <= 2
    assert f"planner {command} -h KIND: " in brief


@each(
    ("topic", "titles"),
    [
        ("money", {"Money, failures, energy", "Money, failures, energy, training"}),
        ("gpus", {"GPUs and software", "GPUs and software, training"}),
        ("output", {"Output"}),
    ],
)
def test_a_group_of_options_is_shown_on_request(planner, topic, titles):
    found = {*options_by_section(planner("search", "-h", topic).out)}
    assert titles <= found
    assert "Search" not in found


def test_an_unknown_topic_names_those_there_are(planner):
    ran = planner("search", "-h", "mony")
    assert ran.exit_code == 2
    assert "Did you mean money?" in " ".join(ran.err.split())
    assert (
        planner("search", "-h", "serving").out == planner("search", "--workload", "serve", "-h").out
    )


@each(
    ("command", "words"),
    [
        (("report",), "no help on 'money' alone; this is all of planner report."),
        (("ui",), "no help on 'money' alone; this is all of planner ui."),
        (("validate",), "no help on 'money' alone; this is all of planner validate."),
        (("specs",), "no help on 'money' alone; this is all of planner specs."),
        (("specs", "list"), "no help on 'money' alone; this is all of planner specs list."),
        (("sweep", "show"), "no help on 'money' alone; this is all of planner sweep show."),
    ],
)
def test_where_no_topics_are_a_word_gets_all_of_the_help(planner, command, words):
    out, whole = (planner(*command, "-h", *word).out for word in (("money",), ()))
    assert out.startswith(whole.rstrip())
    assert words in " ".join(out[len(whole.rstrip()) :].split())
    assert planner("specs", "-h", "list").out.rstrip().endswith("Of list: planner specs list -h")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_help_of_a_workload_has_its_own_words_alone(planner, workload):
    for words in (("--workload", workload), (f"--workload={workload}",)):
        ran = planner("search", *words, "--help")
        shown = {option for found in options_by_section(ran.out).values() for option in found}
        for name, term in glossary().items():
            if {"question", "limit"} & {*term.kind}:
                assert (term.option_name in shown) == (workload in term.of), name
        for name in [*terms_of(workload, "parameter"), *terms_of(workload, "objective")]:
            assert re.search(rf"^  {name}\b|--{name.replace('_', '-')}", ran.out, re.MULTILINE)
        assert ("--burst" in planner("estimate", *words, "-h").out) == (workload == "serve")


@each("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_help_says(name):
    command = command_line().commands[name]
    assert command.built.help.split("\n\n")[0].replace("\n", " ") == command.help
    assert command.built.name in (name, "")


def test_a_summary_fits_a_line(planner):
    printed = planner("-h").out.splitlines()
    for name, summary in COMMANDS.items():
        assert len(summary) <= 60
        assert f"  {name.ljust(max(map(len, COMMANDS)))}  {summary}" in printed


def test_commands_are_made_once():
    assert command_line() is command_line()
    built = command_line().commands["search"].built
    assert built is command_line().commands["search"].built


def test_short_names_are_shown(planner):
    out = planner("search", "--workload", "serve", "-h").out
    assert re.search(r"^  tensor_parallel, tp +GPUs", out, re.MULTILINE)
    assert "w16a16, w8a8" in out


@pytest.mark.few(1)
@pytest.mark.parametrize("line", [*examples("search"), *examples("estimate")])
def test_the_examples_run(planner, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    assert planner(*shlex.split(line)).exit_code == 0
    out = " ".join(planner(line.split()[0], "-h", "all").out.replace("\\\n", " ").split())
    assert f"planner {line}" in out


@each(
    ("arguments", "words"),
    [
        (("serch",), "Did you mean"),
        (("specs", "lst"), "Did you mean"),
        (("search", "--modle", "x"), "Did you mean --mode or --model"),
        (("search", "--tensor-parallel"), "a parameter: --set tensor_parallel=VALUE."),
        (("search", "--tp", "8"), "a parameter: --set tensor_parallel=VALUE."),
        (("search", "--days", "30"), "Did you mean --calendar-time?"),
        (("size", "--max-new-tokens", "8"), "Did you mean --output-tokens?"),
        (("search", "--workload", "trian"), "Did you mean train"),
        (("search", "--workload", "sft"), "train (pre-training and fine-tuning)"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--driver", "optna"), "mean optuna?"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--gpu", "h10"), "Did you mean"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--gpu", "h100-smx"), "h100-sxm-80gb"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--set", "zer=1"), "Did you mean zero"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--objective", "cst"), "mean cost?"),
        (("search", "--model", "llama-7b", "--gpus", "8", "--set", "recompute=ful"), "mean full"),
        (("specs", "list", "gpuz"), "gpus"),
    ],
)
def test_wrong_words_get_a_hint(planner, arguments, words):
    ran = planner(*arguments)
    assert ran.exit_code in (2, 3)
    assert words in ran.err


def test_other_words_mean_options_that_are_there(planner):
    sections = options_by_section(planner("search", "-h", "all").out)
    options = {option for shown in sections.values() for option in shown}
    assert {f"--{name.replace('_', '-')}" for name in OTHER_WORDS} <= options


def test_short_names_and_numbers_with_letters(planner, tmp_path):
    words = ("estimate", "--model", "llama-7b", "--set", "mbs=1")
    plain, short = (tmp_path / name for name in ("plain.json", "short.json"))
    ran = planner(*words, "--gpus", "2k", "--set", "tp=8", "--global-batch-size", "1k",
                  "--sequence-length", "2k", "--json", short)  # fmt: skip
    assert ran.exit_code == 0
    assert ran.err == "--sequence-length 2k: 2,000 tokens; 2Ki would be 2,048.\n"
    ran = planner(*words, "--gpus", "2000", "--set", "tensor_parallel=8", "--global-batch-size",
                  "1000", "--sequence-length", "2000", "--json", plain)  # fmt: skip
    assert ran.err == ""
    rows = [json.loads(path.read_text())["rows"] for path in (plain, short)]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_shares_in_percent(planner):
    words = ("estimate", "--workload", "serve", "--model", "llama-7b", "--gpus", "1", "--gpu",
             "h100", "--prefix-cache-hit-rate")  # fmt: skip
    assert planner(*words, "40%").out == planner(*words, "0.4").out
    assert planner(*words, "40").exit_code == 2
