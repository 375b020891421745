"""Scripts of assignments and prints: what is read is what bash itself prints."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.documents.shell import Script, read_shell

BASH = shutil.which("bash") or ""
NAMES = ("A", "B", "C1", "_d")
PLAIN = st.text("ab1-=./:,é", min_size=1, max_size=5).filter(lambda text: text[0] not in "=")
SPACED = st.text("ab1 -=.;|#{}()<>&'", max_size=8)
IN_SINGLE = SPACED.map(lambda text: "'" + text.replace("'", "") + "'")
ESCAPED = st.sampled_from(["\\ ", "\\$", "\\'", '\\"', "\\\\", "\\a", "\\\n", "\\;"])
ANSI = st.sampled_from(["$'a\\tb'", "$'\\x41'", "$'\\u00e9'", "$'it\\'s'", "$'\\101'", "$'\\\\'"])
NAME = st.sampled_from(NAMES)
OPERATOR = st.sampled_from([":-", "-", ":+", "+"])


def _parameters(quoted: bool) -> st.SearchStrategy[str]:
    inner = PLAIN if quoted else st.one_of(PLAIN, IN_SINGLE)
    return st.one_of(
        NAME.map(lambda name: f"${{{name}}}"),
        st.tuples(NAME, OPERATOR, inner).map(lambda t: f"${{{t[0]}{t[1]}{t[2]}}}"),
        st.tuples(NAME, st.sampled_from(["%", "%%", "#", "##"]), st.sampled_from("ab1-")).map(
            lambda t: f"${{{t[0]}{t[1]}{t[2]}}}"
        ),
        st.tuples(NAME, st.sampled_from(["/", "//"]), st.sampled_from("ab1"), PLAIN).map(
            lambda t: f"${{{t[0]}{t[1]}{t[2]}/{t[3].replace('&', '')}}}"
        ),
        NAME.map(lambda name: f"${{#{name}}}"),
        NAME.map(lambda name: f"${{{name}^^}}"),
        st.tuples(NAME, st.integers(0, 3), st.integers(0, 3)).map(
            lambda t: f"${{{t[0]}:{t[1]}:{t[2]}}}"
        ),
    )


IN_DOUBLE = st.lists(
    st.one_of(
        st.text("ab1 -=.;|#{}()<>&'\n", min_size=1, max_size=6),
        _parameters(True),
        st.sampled_from(['\\"', "\\$", "\\\\", "\\a", "\\\n", "\\`"]),
    ),
    max_size=4,
).map(lambda parts: '"' + "".join(parts) + '"')
VALUE = st.lists(
    st.one_of(PLAIN, IN_SINGLE, IN_DOUBLE, ESCAPED, ANSI, _parameters(False)), max_size=3
).map("".join)
WORD = VALUE.filter(lambda word: word != "" and not word.startswith("#"))
ARRAY = st.lists(
    st.one_of(WORD, st.sampled_from(['"${L[@]}"', "${L[@]}", '"${L[*]}"'])), max_size=4
).map(lambda words: "(" + " \n ".join(words) + ")")
LINES = st.one_of(
    st.tuples(NAME, st.sampled_from(["=", "+="]), VALUE).map("".join),
    st.tuples(st.just("L"), st.sampled_from(["=", "+="]), ARRAY).map("".join),
    st.tuples(st.just("export "), NAME, st.just("="), VALUE).map("".join),
    st.lists(
        st.one_of(
            WORD,
            st.sampled_from(['"${L[@]}"', "${L[@]}", "${L[0]}", "${#L[@]}", '"x${L[@]}y"', "$L"]),
        ),
        max_size=4,
    ).map(lambda words: "printf '<%s>\\0' " + " ".join(words)),
)
SCRIPTS = st.lists(LINES, max_size=8).map(
    lambda lines: "\n".join([*(f"{name}=" for name in NAMES), "L=()", *lines, ""])
)


def printed(script: Script) -> str:
    """What the prints of a script would print."""
    texts = []
    for command in script.commands:
        words = [word.text for word in command.words]
        assert None not in words, command
        if words[0] == "printf":
            texts += [f"<{word}>\0" for word in words[2:]] or ["<>\0"]
    return "".join(texts)


def bash(text: str) -> str:
    """What bash prints, without expanding names of files."""
    done = subprocess.run(
        [BASH, "--norc", "-f"], input=text.encode(), capture_output=True, check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/nowhere"},
    )  # fmt: skip
    assert not done.stderr, done.stderr.decode()
    return done.stdout.decode()


needs_bash = pytest.mark.skipif(not BASH, reason="needs bash")


@needs_bash
@settings(max_examples=examples(300, 15))
@given(SCRIPTS)
def test_words_are_those_of_bash(text: str) -> None:
    assert printed(read_shell(text)) == bash(text)


OPERATORS = ["+", "-", "*", "/", "%", "**", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&", "|"]
OPERATORS += ["^", "&&", "||"]
ARITHMETIC = st.recursive(
    st.one_of(
        st.integers(0, 40).map(str), st.sampled_from(["N", "$N", "${N}", "M", "0x1f", "017"])
    ),
    lambda inner: st.one_of(
        st.tuples(
            inner,
            st.sampled_from(OPERATORS),
            inner,
        ).map(" ".join),
        st.tuples(st.sampled_from(["- ", "! ", "~ ", "+ "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, inner, inner).map(lambda t: f"{t[0]} ? {t[1]} : {t[2]}"),
    ),
    max_leaves=6,
)


@needs_bash
@settings(max_examples=examples(300, 15))
@given(ARITHMETIC)
def test_numbers_are_those_of_bash(expression: str) -> None:
    text = f"N=7\nM=3\nprintf '<%s>\\0' $(({expression}))\n"
    word = read_shell(text).commands[-1].words[2]
    done = subprocess.run([BASH, "--norc"], input=text.encode(), capture_output=True)
    if word.text is not None:
        assert f"<{word.text}>\0" == done.stdout.decode(), expression
    elif not done.stderr:
        assert any(symbol in expression for symbol in ("**", "/", "%", "&&", "||", "?"))


CASES = {
    "branches that are decided": """
X=b
if [ "$X" = a ]; then T=1; elif [[ $X == b && -n "$X" ]]; then T=2; else T=3; fi
case $X in a|c) U=1 ;; [b-d]*) U=2 ;; *) U=3 ;; esac
[ 3 -gt 2 ] && V=yes || V=no
printf '<%s>\\0' $T $U $V
""",
    "tests": """
X=b
[ $X != a ] && A=1 || A=2
[[ $X != b* ]] && B=1 || B=2
[ 3 -ge 3 ] && C=1 || C=2
[ ! -z "$X" -a $X = b ] && D=1 || D=2
printf '<%s>\\0' $A $B $C $D
""",
    "prefixes and suffixes": """
P=a/b/c.d.e
printf '<%s>\\0' ${P#*/} ${P##*/} ${P%.*} ${P%%.*} ${P#x} ${P%.e}
""",
    "functions": """
f() { local a=$1; shift; A=$a; printf '<%s>\\0' "$a" "$@" $#; }
function g { f inner "$1 $2"; }
A=outer a=global
f one 'two three' four
g x y
printf '<%s>\\0' $A $a
""",
    "subshells and pipes keep their variables": """
A=1
(A=2; printf '<%s>\\0' $A)
A=3 | true
printf '<%s>\\0' $A
{ A=4; }
printf '<%s>\\0' $A
""",
    "comments and continued lines": """
printf '<%s>\\0' a#b \\
  c \\
  d # e
printf '<%s>\\0' "a \\
b" 'c \\
d'
""",
    "splitting": """
ARGS=" --tp 8
   --pp 4 "
ARGS+="--cp 2"
printf '<%s>\\0' x$ARGS$ARGS "$ARGS"
E=
printf '<%s>\\0' $E a "$E"
""",
    "defaults with quotes": """
unset Z
printf '<%s>\\0' ${Z:-a "b c" d} "${Z:-a 'b'}" ${Z-} "${Z-}"
: ${Y:=8}
printf '<%s>\\0' $Y
""",
    "set": """
set -- a 'b c'
printf '<%s>\\0' "$@" $1 "$*" $#
shift
printf '<%s>\\0' "$1"
""",
    "one word in a loop": """
for x in only; do printf '<%s>\\0' $x; done
""",
}


@needs_bash
@pytest.mark.parametrize("name", CASES)
def test_a_script_reads_as_bash_runs_it(name: str) -> None:
    assert printed(read_shell(CASES[name])) == bash(CASES[name])
