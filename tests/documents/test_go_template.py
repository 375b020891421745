"""Templates of Go as Helm fills them, against what Go and Sprig say of each construct."""

from __future__ import annotations

from typing import Any

import pytest

from planner.documents.go_template import Templates
from planner.documents.template_functions import FUNCTIONS
from planner.errors import LaunchError

VALUES: dict[str, Any] = {
    "Values": {
        "name": "llama",
        "count": 4,
        "share": 0.9,
        "off": False,
        "empty": "",
        "args": ["--a", "b c"],
        "limits": {"nvidia.com/gpu": 2, "cpu": "8"},
    },
    "Release": {"Name": "r"},
}


def _filled(text: str, *helpers: str) -> str:
    templates = Templates()
    for helper in helpers:
        templates.add(helper, "_helpers.tpl")
    return templates.filled(templates.add(text, "t.yaml"), VALUES).text


# pkg.go.dev/text/template: actions, trimming, variables; sprig: default, ternary, indentation.
@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("a {{ .Values.name }} b", "a llama b"),
        ("a\n  {{- .Values.count -}}\n b", "a4b"),
        ("{{/* said to people */}}x", "x"),
        ('{{ "{{" }}', "{{"),
        ("{{ .Values.none.of.it }}", ""),
        ("{{ if .Values.off }}a{{ else if .Values.count }}b{{ else }}c{{ end }}", "b"),
        ("{{ if and .Values.name (not .Values.off) }}a{{ end }}", "a"),
        ("{{ if or .Values.empty .Values.off }}a{{ else }}b{{ end }}", "b"),
        ("{{ with .Values.limits }}{{ .cpu }}{{ $.Release.Name }}{{ end }}", "8r"),
        ("{{ with .Values.empty }}a{{ else }}{{ .Values.name }}{{ end }}", "llama"),
        ("{{ range .Values.args }}[{{ . }}]{{ end }}", "[--a][b c]"),
        ("{{ range $i, $a := .Values.args }}{{ $i }}{{ $a }};{{ end }}", "0--a;1b c;"),
        ("{{ range $k, $v := .Values.limits }}{{ $k }}={{ $v }} {{ end }}",
         "cpu=8 nvidia.com/gpu=2 "),
        ("{{ range .Values.none }}a{{ else }}b{{ end }}", "b"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ('{{ .Values.empty | default "d" | quote }}', '"d"'),
        ('{{ index .Values.limits "nvidia.com/gpu" }}', "2"),
        ('{{ eq .Values.name "x" "llama" | ternary "a" "b" }}', "a"),
        ("{{ div .Values.count 8 | max 1 }}", "1"),
        ("{{ toYaml .Values.args | nindent 2 }}", '\n  - "--a"\n  - "b c"'),
        ('{{ printf "%s-%03d%%" .Values.name 7 }}', "llama-007%"),
        ('{{ tpl "{{ .Values.count }}x" . }}', "4x"),
        ("{{ .Values.share }} {{ .Values.off }} {{ .Values.args }}", "0.9 false [--a b c]"),
        ("{{ gt (int .Values.limits.cpu) 4 }}", "true"),
    ],
)  # fmt: skip
def test_a_template_becomes_what_go_makes_of_it(text: str, becomes: str) -> None:
    assert _filled(text) == becomes


def test_templates_of_other_files_are_included_with_their_own_dot() -> None:
    helper = '{{- define "own" -}}{{ .cpu }}{{ template "two" 2 }}{{- end -}}'
    two = '{{ define "two" }}({{ . }}){{ end }}'

    assert _filled('{{ include "own" .Values.limits | upper }}', helper, two) == "8(2)"


def test_what_is_not_understood_is_left_out_and_told() -> None:
    templates = Templates()
    text = 'a\n{{ newest .Values.name }}\n{{ if strange 1 }}b{{ end }}\n{{ include "no" . }}c'
    found = templates.filled(templates.add(text, "t.yaml"), VALUES)

    assert found.text == "a\n\n\nc"
    assert [why.partition(":")[0] for why in found.left_out] == ["line 2", "line 3", "line 4"]
    assert "newest" in found.left_out[0]


def test_lines_of_the_text_are_those_of_the_template() -> None:
    templates = Templates()
    text = "a:\n{{- if .Values.count }}\n  b: 1\n{{- end }}\n{{ toYaml .Values.args }}\nc: 2\n"
    found = templates.filled(templates.add(text, "t.yaml"), VALUES)

    lines = dict(zip(found.text.split("\n"), found.lines, strict=True))
    assert found.text == 'a:\n  b: 1\n- "--a"\n- "b c"\nc: 2\n'
    assert lines == {"a:": 1, "  b: 1": 3, '- "--a"': 5, '- "b c"': 5, "c: 2": 6, "": 7}


@pytest.mark.parametrize(
    "text",
    ["{{ if .a }}", "{{ end }}", "{{ .a ", "a\n{{ range .b }}{{ else }}",
     "{{ if 1 }}" * 60 + "{{ end }}" * 60],
)  # fmt: skip
def test_what_is_no_template_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(LaunchError, match=r"t\.yaml:\d"):
        Templates().add(text, "t.yaml")


def test_a_chart_that_refuses_its_values_says_why() -> None:
    with pytest.raises(LaunchError, match="give a model"):
        _filled('{{ required "give a model" .Values.none }}')


def test_templates_without_an_end_are_stopped() -> None:
    templates = Templates()
    endless = templates.add('{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}', "t")
    with pytest.raises(LaunchError, match="deep"):
        templates.filled(endless, VALUES)
    many = templates.add("{{ range until 9999 }}{{ range until 9999 }}x{{ end }}{{ end }}", "t")
    with pytest.raises(LaunchError, match="more than is read"):
        templates.filled(many, VALUES)


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"required", "fail"}))
def test_a_function_that_is_given_anything_breaks_nothing(name: str) -> None:
    for given in ("", "1", '"a"', ".Values", ".Values.args 2", "nil nil nil", '"%d" "x" .Values'):
        assert isinstance(_filled(f"{{{{ {name} {given} }}}}"), str)


def test_a_mapping_in_itself_is_left_out() -> None:
    text = '{{ $a := dict "x" 1 }}{{ $b := set $a "x" $a }}{{ toYaml $b }}{{ $b }}c'

    assert _filled(text) == "c"
