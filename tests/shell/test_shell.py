"""Shell scripts as text: places, what cannot be told, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each

from planner.documents.shell import Script, Word, expansion, read_shell
from planner.documents.shell.edits import Span, apply_edits
from planner.errors import LaunchError


def words(text: str, place: int = -1) -> tuple[Word, ...]:
    return read_shell(text).commands[place].words


def told(text: str, place: int = -1) -> list[str | None]:
    return [word.text for word in words(text, place)]


PLACES = {
    "run --tp 8": "8",
    "run --tp '8'": "8",
    'run --tp "8"': "8",
    "TP=8\nrun --tp $TP": "8",
    "TP=${1:-8}\nrun --tp $TP": "8",
    "TP=${TP:-${SIZE:-8}}\nrun --tp ${TP}": "8",
    ": ${TP:=8}\nrun --tp $TP": "8",
    "A=(--pp 2 --tp 8)\nrun ${A[@]}": "8",
    'A=(--pp 2)\nA+=(--tp 8)\nrun "${A[@]}"': "8",
    'A="--pp 2 --tp 8"\nrun $A': "8",
    'A="--pp 2"\nA+=" --tp 8"\nrun $A': "8",
    'TP=8\nA="--pp 2 --tp $TP"\nB="$A"\nrun $B': "8",
    "f() { run --tp $1; }\nf 8": "8",
    "set -- 8\nrun --tp $1": "8",
    "for x in 8; do run --tp $x; done": "8",
}


@each("text", PLACES)
def test_a_value_is_found_where_it_stands(text: str) -> None:
    word = words(text)[-1]
    assert word.text == PLACES[text]
    assert word.span is not None
    changed = apply_edits(text, {word.span: "16"})
    assert told(changed) == [*told(text)[:-1], "16"]


def test_a_value_of_several_parts_stands_nowhere() -> None:
    assert words("A=1\nrun $A$A")[1].span is None
    assert words("run $((2 * 4))")[1].span is None
    assert words("A=1\nrun --tp=${A}2")[1].span is None


def test_escaped_text_is_found_with_its_escapes() -> None:
    text = "run --name a\\ b"
    word = words(text)[-1]
    assert (word.text, word.span) == ("a b", Span(11, 15))


def test_the_rest_of_a_word_is_where_it_stands() -> None:
    text = "TP=8\nrun --tp=$TP"
    value = words(text)[1].after(len("--tp="))
    assert (value.text, value.span) == ("8", Span(3, 4))


UNKNOWN = {
    "run $X": "$X is set by nothing in this file",
    ". env.sh\nrun $X": "$X is set by nothing in this file (line 1 reads env.sh)",
    "run $(nproc --all)": "$(nproc --all) is known only when it runs",
    "run `nproc`": "`nproc` is known only when it runs",
    "run <(ls)": "<(ls) is known only when it runs",
    "run $(( X * 2 ))": "$X is set by nothing in this file",
    "run $1": "$1 is an argument that is not in this file",
    "run $@": "$@ are the arguments of the script",
    "run ${X:?give it}": "$X is required by line 1",
    "if a; then X=1; else X=2; fi\nrun $X": "$X is 1 or 2, assigned in several branches (line 1)",
    "X=1\nif a; then\nX=2; fi\nrun $X": "$X is 1 or 2, assigned in several branches (lines 1, 3)",
    "X=1\na && X=2\nrun $X": "$X is 1 or 2, assigned in several branches (lines 1, 2)",
    "X=1\nwhile a; do X=$((X + 1)); done\nrun $X": "assigned in several branches (lines 1, 2)",
    "case $Y in a) X=1;; *) X=2;; esac\nrun $X": "assigned in several branches",
    "for x in 1 2; do run $x; done": "$x is each of 1, 2 (line 1)",
    "A=(1)\nfor x in 1 2; do A+=(2); run ${A[@]}; done": "$A changes in the loop (line 2)",
    "read X\nrun $X": "$X is read when it runs (line 1)",
    "declare -A M=([a]=1)\nrun ${M[a]}": "$M is assigned by keys (line 1)",
    "A[1]=2\nrun $A": "$A is assigned an element at a time",
    "run ${x }": "$x is set by nothing in this file",
    "x=1\nrun ${x }": "${x } is not computed here",
    "n=1\nrun $((++n))": "changes a variable",
    "run {1..4}": "{1..4} is known only when it runs",
    "run <PATH TO vocab.json>": "<PATH TO vocab.json> is to be filled in",
}


@each("text", UNKNOWN)
def test_what_text_does_not_tell_has_its_reason(text: str) -> None:
    word = words(text)[1]
    assert word.text is None
    assert UNKNOWN[text] in word.unknown


def test_parentheses_are_computed_up_to_fifty_deep() -> None:
    deep, deeper = (f"run $(({'(' * depth}7{')' * depth}))" for depth in (50, 51))
    assert words(deep)[1].text == "7"
    assert "nested too deep" in words(deeper)[1].unknown


def test_the_known_beginning_of_a_word_is_told() -> None:
    word = words("run --nnodes=$SLURM_NNODES")[1]
    assert word.begins == "--nnodes="
    assert word.after(9).unknown == "$SLURM_NNODES is set by nothing in this file"


KNOWN = {
    "if a; then X=1; fi\nrun $X": "1",
    "X=1\nif a; then X=1; fi\nrun $X": "1",
    "X=1\nif a; then X=2; exit 1; fi\nrun $X": "1",
    "X=1\nwhile getopts x: o; do X=$OPTARG; done\nrun $X": "1",
    "X=1\nwhile [ $# -gt 0 ]; do X=$1; shift; done\nrun $X": "1",
    'X=1\nif [ "$1" != "" ]; then X=$1; fi\nrun $X': "1",
    "X=1\n(X=2)\nrun $X": "1",
    "X=1\nX=2 other\nrun $X": "1",
    "X=$Y\nrun ${X+--x}": None,
    "run ${X:+--x}1": "1",
    "X=a/b.c\nrun ${X##*/}": "b.c",
    "N=4 G=8\nrun $((N * G))": "32",
    "n=4\nrun $(expr 32 / $n / ${n})": "2",
    'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nrun "$D/a.yaml"': "./a.yaml",
    'run "$(dirname -- $0)/a.yaml"': "./a.yaml",
}


@each("text", KNOWN)
def test_what_text_tells(text: str) -> None:
    assert words(text)[1].text == KNOWN[text]


def test_values_of_the_user_come_first() -> None:
    script = read_shell("TP=${TP:-8}\nrun $TP $1 $#", {"TP": "2", "1": "x"})
    assert [word.text for word in script.commands[0].words] == ["run", "2", "x", "1"]


def test_commands_know_their_variables_and_lines() -> None:
    script = read_shell("export A=1 B=2\nC=3\n\nD=4 run x\nE=5\n")
    command = script.commands[0]
    assert {n: w.text for n, w in command.environment.items()} == {"A": "1", "B": "2", "D": "4"}
    assert command.line == 4
    assert script.text[command.span.start : command.span.end] == "D=4 run x"
    assert {n: w.text for n, w in script.variables.items()} == {
        "A": "1", "B": "2", "C": "3", "E": "5",
    }  # fmt: skip


def test_branches_that_are_not_taken_are_left_out() -> None:
    text = (
        "M=7b\nif [ $M = 7b ]; then run a; else run b; fi\ncase $M in 13b) run c;; 7*) run d;; esac"
    )
    assert [told(text, place) for place in (0, 1)] == [["run", "a"], ["run", "d"]]
    assert len(read_shell(text).commands) == 2


def test_redirections_and_comments_are_no_words() -> None:
    text = "run a >out 2>&1 <in # c\nrun b &> log &\nrun c | tee x"
    assert [told(text, place) for place in range(4)] == [
        ["run", "a"], ["run", "b"], ["run", "c"], ["tee", "x"],
    ]  # fmt: skip


def test_ends_of_lines_of_windows_are_ends_of_lines() -> None:
    text = (
        'TP=8\r\nARGS="--tp $TP\r\n  --pp 2\r\n"\r\nif true; then\r\n'
        "run \\\r\n  $ARGS # c\r\nfi\r\nL=(\r\n  a\r\n)\r\ncat <<E > f\r\nx\r\nE\r\n"
        "run ${L[@]}\r\n"
    )
    assert told(text, 1) == ["run", "--tp", "8", "--pp", "2"]
    assert told(text) == ["run", "a"]
    assert read_shell(text).files["f"].text == "x\r\n"


def test_here_documents_are_files() -> None:
    text = (
        'Z=3\ncat <<EOF > ds.json\n{"stage": $Z, "x": $X}\nEOF\n'
        "tee a.yaml <<'E'\na: $Z\nE\nsbatch <<-S\n\trun $Z\n\tS\n"
    )
    files = read_shell(text).files
    document = files["ds.json"]
    assert document.text == '{"stage": 3, "x": $X}\n'
    assert document.unknown == "$X is set by nothing in this file"
    assert document.place(Span(10, 11)) == Span(2, 3)
    start = document.text.index('"x"')
    place = document.place(Span(start, start + 3))
    assert place is not None
    assert text[place.start : place.end] == '"x"'
    assert files["a.yaml"].text == "a: $Z\n"
    assert not files["a.yaml"].expanded
    assert files["<<S (line 8)"].line == 9


def test_directives_are_told() -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=4 -N2 --exclusive\n#SBATCH --time 1:00:00 # -x long\n"
        '#SBATCH -J "a b"\n##SBATCH --nodes=9\n#PBS -l select=2\n#BSUB -nnodes 3\n'
    )
    found = [(one.kind, one.option, one.text, one.line) for one in read_shell(text).directives]
    assert found == [
        ("SBATCH", "--nodes", "4", 2),
        ("SBATCH", "-N", "2", 2),
        ("SBATCH", "--exclusive", "", 2),
        ("SBATCH", "--time", "1:00:00", 3),
        ("SBATCH", "-J", "a b", 4),
        ("PBS", "-l", "select=2", 6),
        ("BSUB", "-nnodes", "3", 7),
    ]
    for one in read_shell(text).directives:
        assert text[one.span.start : one.span.end] == one.text


def test_nothing_is_run(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    lines = [f"$(touch {target})", f"`touch {target}`", f"<(touch {target})", f"a | touch {target}"]
    text = "\n".join(
        [*lines, f"touch {target}", f"eval touch {target}", f"X=$(touch {target}) b",
         f"echo ${{X:-$(touch {target})}}", f"cat <<E > {target}\n$(touch {target})\nE",
         f"echo $((a[$(touch {target})]))", f"source {target}", f"exec 3> {target}"]
    )  # fmt: skip
    read_shell(text)
    assert not target.exists()


REFUSED = {
    "A=1\nB='x\n": r":2: the quote ' is never closed",
    'A=1\nB="x\n': r':2: the quote " is never closed',
    "A=1\n\necho `x\n": ":3: the quote ` is never closed",
    "echo $(x": r":1: \$\( is never closed",
    "echo ${x": r":1: \$\{ is never closed",
    "a\ncat <<EOF\nx\n": ":2: the here-document <<EOF never ends",
    "a\nif b; then\nc\n": ":2: if has no",
    "for x in a; do\nb\n": ":1: the loop has no done",
    "case x in\na) b\n": ":1: case has no esac",
    "A=(1\n2": r":1: the array A=\( is never closed",
    "(a": r":1: \( is never closed",
    "a\nfi\n": ":2: a command cannot begin with fi",
    "a\n;;\n": ":2: a command cannot begin with ;",
    "a\0b": ":1: there is a NUL",
    "a" * 4_194_305: "4,194,305 characters",
    "(" * 1000: "nested more than 50 deep",
    "if a; then " * 1000: "nested more than 50 deep",
    "echo " + "${A:-" * 1000: "nested more than 50 deep",
    'echo "' + '${A:-"' * 1000: "nested more than 50 deep",
    "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60: "expand to too much text",
    "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 40: "words: that is not read",
    "f() { f; f; }\nf\n": "words: that is not read",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: str(text)[:16].encode().hex())
def test_hostile_scripts_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MOST_WORDS", 5_000)
    monkeypatch.setattr(expansion, "LONGEST_WORD", 50_000)
    start = time.process_time()
    with pytest.raises(LaunchError, match=REFUSED[text]):
        read_shell(text, name="run.sh")
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "text",
    ["echo ${A:-x " * 40 + "}" * 40, "for i in a b; do " * 40 + "A=$A$A; " + "done; " * 40,
     "{" + "," * 100_000, "X=" + "a" * 50_000 + "\ncase $X in *a*a*a*b) a;; esac",
     "echo $((9 ** 9 ** 9 ** 9))", "A0=x\n" + "".join(f"A{i + 1}=$A{i}\n" for i in range(3000)),
     "echo " + "$((" * 40 + "1" + "))" * 40],
    ids=range(7),
)  # fmt: skip
def test_nothing_takes_long(text: str) -> None:
    start = time.process_time()
    read_shell(text)
    assert time.process_time() - start < 20


def read_or_refused(text: str) -> Script | str:
    try:
        return read_shell(text, name="run.sh")
    except LaunchError as error:
        return str(error)


FRAGMENTS = st.sampled_from(
    ["a", " ", "\n", "'", '"', "$", "{", "}", "(", ")", "$(", "${", "$((", "`", "\\", ";", "&", "|",
     "<", ">", "<<E", "E", "\nE\n", "if ", "then ", "fi\n", "for ", "in ", "do ", "done\n", "case ",
     "esac\n", "[[ ", " ]]", "X=", "X+=(", "$X", "${X:-", "#", "!", "[", "]", "*", "=", "\r\n", "é",
     "function f ", "f() ", "f", "while ", "1", "+", "#SBATCH -", "eval ", "local ", "export "]
)  # fmt: skip


@settings(max_examples=examples(1000, 40))
@given(st.lists(FRAGMENTS, max_size=30).map("".join))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    script = read_or_refused(text)
    if isinstance(script, str):
        assert script.startswith("run.sh:")
        return
    for command in script.commands:
        for word in command.words:
            assert (word.text is None) == bool(word.unknown)
            if word.span is not None and word.text and "\\" not in text and "$'" not in text:
                assert text[word.span.start : word.span.end] == word.text


def test_a_word_of_several_is_shown_as_it_stands_itself() -> None:
    found = words('A=(\n  --tp 8\n  "${FOLDER}"/base.yml\n)\nrun "${A[@]}" $ALONE')
    assert [word.raw for word in found] == ["run", "--tp", "8", '"${FOLDER}"/base.yml', "$ALONE"]
    assert found[3].line == 3


def test_words_that_read_is_given_are_dealt_to_its_names() -> None:
    script = read_shell(
        "CONFIGS=('2,1,True')\n"
        'for config in "${CONFIGS[@]}"; do\n'
        '  IFS="," read -r TP PP SP <<< "$config"\n'
        "  IFS=: read -ra PARTS <<< a:b:c\n"
        "  read -r ONE REST <<< 'x y z'\n"
        '  run $TP $PP $SP ${PARTS[1]} "$REST" $config2\n'
        "done\n",
        {},
        "r.sh",
    )

    words = script.commands[-1].words
    assert [word.text for word in words] == ["run", "2", "1", "True", "b", "y z", None]
