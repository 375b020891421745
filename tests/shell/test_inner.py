from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.documents.shell import Script, read_shell
from planner.documents.shell.edits import Span, apply_edits
from planner.documents.shell.nested_scripts import read_inner
from planner.documents.shell.syntax import TextPiece
from planner.errors import LaunchError


def _inside(text: str) -> Script:
    """The script in the last word of the last command."""
    command = read_shell(text).commands[-1]
    return read_inner(command.words[-1].pieces, command.environment, text)


def _words(script: Script) -> list[str | None]:
    return [word.text for word in script.commands[-1].words]


def test_words_stand_where_the_file_has_them() -> None:
    text = 'SIZE=4\nRUN="torchrun --nproc_per_node $SIZE"\nsrun bash -c "$RUN train.py --tp 2"\n'

    script = _inside(text)

    assert _words(script) == ["torchrun", "--nproc_per_node", "4", "train.py", "--tp", "2"]
    assert [text[w.span.start : w.span.end] for w in script.commands[0].words if w.span] == [
        word.text for word in script.commands[0].words
    ]
    size = script.commands[0].words[2].span
    assert size is not None
    assert apply_edits(text, {size: "8"}).startswith("SIZE=8\n")
    assert [word.line for word in script.commands[0].words] == [2, 2, 1, 3, 3, 3]


def test_what_is_not_known_stays_in_its_word() -> None:
    text = "srun bash -c \"python `pwd`/train.py --rank \\$RANK --addr '$HOST:1' --tp 2\"\n"

    *_, tp = _inside(text).commands[0].words
    python, train, _, rank, _, address, _, _ = _inside(text).commands[0].words

    assert python.text == "python"
    assert tp.text == "2"
    assert train.text is rank.text is address.text is None
    assert train.pieces[-1].text == "/train.py"
    assert train.raw == ".../train.py"
    assert "pwd" in train.unknown
    assert "$HOST" in address.unknown
    assert address.span is None


def test_exported_variables_are_known_in_single_quotes() -> None:
    text = (
        "export TP=2\n"
        'export CMD="train.py --tp $TP --host $(hostname)"\n'
        "bash -c 'torchrun $CMD'\n"
    )

    words = _inside(text).commands[0].words

    assert [word.text for word in words] == ["torchrun", "train.py", "--tp", "2", "--host", None]
    assert words[3].span is not None
    assert text[words[3].span.start : words[3].span.end] == "2"
    assert words[3].line == 1
    assert _inside(text).commands[0].environment["TP"].text == "2"


def test_a_here_document_is_a_script_with_directives() -> None:
    text = 'N=4\nsbatch <<EOF\n#SBATCH --nodes=$N\nsrun bash -c "run --on $N"\nEOF\n'
    (document,) = read_shell(text).files.values()

    script = read_inner(document.pieces, {}, text)
    (directive,) = script.directives
    inner = read_inner(script.commands[-1].words[-1].pieces, {}, text)

    assert (directive.option, directive.text, directive.line) == ("--nodes", "4", 3)
    assert _words(inner) == ["run", "--on", "4"]
    assert inner.commands[0].words[-1].line == 1


def test_files_that_an_inner_script_writes_are_kept() -> None:
    text = "bash -c 'cat > ds.json <<EOF\n{\"stage\": 3}\nEOF\nrun --deepspeed ds.json'\n"

    document = _inside(text).files["ds.json"]

    assert document.text == '{"stage": 3}\n'
    start = document.text.index("3")
    place = document.place(Span(start, start + 1))
    assert place is not None
    assert text[place.start : place.end] == "3"


@pytest.mark.parametrize("end", ["EOM", "'EOM'"])
def test_a_text_that_is_shown_by_cat_and_echoed_is_a_file(end: str) -> None:
    shown = "$N" if "'" in end else "4"
    text = f"N=4\nRUN=$(cat <<- {end}\n  it's --tp $N\n\tEOM\n)\n" + 'echo "$RUN" > run.sh\n'

    document = read_shell(text).files["run.sh"]

    assert document.text == f"  it's --tp {shown}\n"
    assert document.line == 3


def test_a_quote_that_is_never_closed_is_refused() -> None:
    with pytest.raises(LaunchError):
        read_inner((TextPiece("echo 'a"),), {}, "")


@given(st.lists(st.text("ab1-=$'\"\\ \n", max_size=8), max_size=5), st.booleans())
def test_spans_are_those_of_the_words(parts: list[str], has_unknown: bool) -> None:
    outer, pieces = "", list[TextPiece]()
    for part in parts:
        outer += "#"
        pieces.append(TextPiece(part, len(outer), len(outer) + len(part)))
        outer += part
        if has_unknown:
            pieces.append(TextPiece("", unknown="nobody knows"))
    try:
        script = read_inner(tuple(pieces), {}, outer)
    except LaunchError:
        return

    for command in script.commands:
        for word in command.words:
            assert (word.text is None) == bool(word.unknown)
            if word.span is not None and not set(word.raw) & {*"\\$'\""}:
                assert outer[word.span.start : word.span.end] == word.text
