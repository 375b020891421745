"""Helm charts: helm renders them where it is installed; here a script stands in for helm."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from planner.base import read_files
from planner.errors import LaunchError
from planner.launch.read.read_launch import read_launch
from planner.launch.wrappers import read_helm_charts

_TEMPLATE = "containers:\n- image: {{ .Values.image }}\n  args: [{{ .Values.tp }}]\n"
_RENDERED = """\
---
# Source: server/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: release
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: server
        image: vllm/vllm-openai:v0.11.0
        command: [bash, -c, "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4"]
        resources:
          limits:
            nvidia.com/gpu: 4
"""
# Prints the text, and writes its own arguments into a file of the folder that it stands in.
_HELM = """\
#!{python}
import pathlib, sys
folder = pathlib.Path(__file__).parent
(folder / "arguments").write_text("\\n".join(sys.argv[1:]))
{body}
"""
_PRINTS = 'print((folder / "rendered").read_text())'


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    folder = tmp_path / "charts" / "server"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: server\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text("tp: 2\nimage: vllm/vllm-openai\nmodel:\n  name:\n")
    (folder / "templates" / "deployment.yaml").write_text(_TEMPLATE)
    return folder


def _install(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str = _PRINTS) -> Path:
    """Put a program called helm on PATH; the file that gets its arguments."""
    folder.mkdir(exist_ok=True)
    (folder / "rendered").write_text(_RENDERED)
    (folder / "helm").write_text(_HELM.format(python=sys.executable, body=body))
    (folder / "helm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder / "arguments"


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return _install(monkeypatch, tmp_path / "bin")


@pytest.fixture
def without_helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("name", ["", "Chart.yaml", "values.yaml", "templates/deployment.yaml"])
def test_helm_renders_a_chart(chart: Path, arguments: Path, name: str) -> None:
    found = read_launch(chart / name)

    wanted = {"model": "Qwen/Qwen3-32B", "tensor_parallel": 4, "num_gpus": 8}
    assert wanted.items() <= found.values.items()
    assert (found.path, found.command.line) == (chart / "rendered.yaml", 14)
    assert any("helm rendered the chart server" in note for note in found.notes)
    assert arguments.read_text().split("\n") == ["template", "release", str(chart)]


def test_a_values_file_of_the_chart_is_passed_to_helm(chart: Path, arguments: Path) -> None:
    (chart / "values-large.yaml").write_text("tp: 8\n")
    read_launch(chart / "values-large.yaml")

    values = str(chart / "values-large.yaml")
    assert arguments.read_text().split("\n")[3:] == ["--values", values]


def test_a_command_passes_its_values_to_helm(chart: Path, arguments: Path) -> None:
    folder = chart.parent.parent / "recipes"
    folder.mkdir()
    for name in ("more.yaml", "args.txt"):
        (folder / name).write_text("a: 1\n")
    script = folder / "install.sh"
    script.write_text(
        "helm install -f more.yaml,elsewhere.yaml \\\n"
        "  --set a.b=1,c='x,y' --set model.name=$MODEL,tp=$TP,image=$REPO/vllm:$TAG \\\n"
        "  --set-file args=args.txt,no=nowhere.txt --namespace serving name $ROOT/charts/server\n"
    )
    assert read_launch(script).values["num_gpus"] == 8

    # tp is a number of the chart's values: what the environment sets stays unknown.
    assert arguments.read_text().split("\n")[2:] == shlex.split(
        f"{chart} --values {folder}/more.yaml --set a.b=1,c=x,y --set model.name=FROM_OUTSIDE "
        f"--set image=FROM_OUTSIDE/vllm:FROM_OUTSIDE --set-file args={folder}/args.txt"
    )


@pytest.mark.parametrize("name", ["", "Chart.yaml", "values.yaml", "templates/deployment.yaml"])
@pytest.mark.usefixtures("without_helm")
def test_without_helm_the_error_says_how_to_render(chart: Path, name: str) -> None:
    with pytest.raises(LaunchError, match=r"Helm chart\. Install helm, or run `helm template"):
        read_launch(chart / name)


@pytest.mark.usefixtures("without_helm")
def test_a_script_is_refused_if_its_chart_is_all_that_it_starts(chart: Path) -> None:
    script = chart.parent.parent / "install.sh"
    script.write_text("helm install name charts/server\n")
    with pytest.raises(LaunchError, match="This is a Helm chart"):
        read_launch(script)

    script.write_text("helm install name charts/server\nvllm serve Qwen/Qwen3-8B\n")
    assert read_launch(script).values["model"] == "Qwen/Qwen3-8B"


@pytest.mark.usefixtures("without_helm")
def test_a_template_alone_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(_TEMPLATE)
    with pytest.raises(LaunchError, match="This is a Helm chart"):
        read_launch(tmp_path / "deployment.yaml")


@pytest.mark.security
def test_no_program_is_started_for_files_from_a_browser(chart: Path, arguments: Path) -> None:
    with (
        read_files.restrict_to_folders([chart]),
        pytest.raises(LaunchError, match="This is a Helm chart"),
    ):
        read_launch(chart)
    assert not arguments.exists()


def test_the_error_of_helm_is_passed_on(
    chart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, tmp_path / "bin", 'sys.exit("found in Chart.yaml, but missing: redis")')
    with pytest.raises(LaunchError, match="helm template failed: found in Chart"):
        read_launch(chart)


def test_helm_is_stopped_after_a_time(
    chart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, tmp_path / "bin", "import time; time.sleep(5)")
    monkeypatch.setattr(read_helm_charts, "_HELM_SECONDS", 0.1)
    with pytest.raises(LaunchError, match="did not end within"):
        read_launch(chart)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("values.yaml", "recipes/values.yaml"),
        ("./values.yaml", "recipes/values.yaml"),
        ("charts/server", "charts/server"),
        ('"$HERE/values.yaml"', "recipes/values.yaml"),
        ("absent.yaml", None),
        ("", None),
        ("values$RUN.yaml", None),
        ("../charts/server", None),
        ("{absolute}", None),
    ],
)
def test_files_of_a_command_lie_near_it(chart: Path, name: str, found: str | None) -> None:
    """Folders above are not left by ``..`` or a whole path, as a file of others could name any."""
    folder = chart.parent.parent
    (folder / "recipes").mkdir()
    (folder / "recipes/values.yaml").write_text("tp: 1\n")
    (folder / f"recipes/values{read_helm_charts._FROM_ENVIRONMENT}.yaml").write_text("tp: 1\n")
    text = name.format(absolute=chart / "values.yaml")
    for variable in ("$HERE", "$RUN"):
        text = text.replace(variable, read_helm_charts._FROM_ENVIRONMENT)
    near = read_helm_charts._find_near(folder / "recipes/run.sh", text)
    assert near == (None if found is None else folder / found)
