"""Charts of Helm: the folder, a template, and commands that install them with other values."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read import read_launch

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.copies }}
  template:
    spec:
      containers:
      - name: server
        image: {{ .Values.image }}
        command: [bash, -c, "bash /scripts/start.sh"]
        resources:
          limits:
            nvidia.com/gpu: {{ .Values.tp }}
"""
_SCRIPTS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: scripts
data:
  start.sh: |
    vllm serve {{ required "a model" .Values.model.name }} \\
      --tensor-parallel-size {{ .Values.tp }} {{ join " " .Values.args }}
"""
_VALUES = "copies: 2\ntp: 2\nimage: vllm/vllm-openai:v0.11.0\nmodel:\n  name:\nargs: []\n"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart whose server starts from a ConfigMap, and whose model is left to the user."""
    folder = tmp_path / "charts" / "server"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: server\nversion: 0.1.0\n")
    (folder / "values.yaml").write_text(_VALUES)
    (folder / "templates" / "deployment.yaml").write_text(_DEPLOYMENT)
    (folder / "templates" / "scripts.yaml").write_text(_SCRIPTS)
    return folder


def test_a_command_fills_the_chart_that_stands_near_it(chart: Path) -> None:
    script = chart.parent.parent / "recipes" / "install.sh"
    script.parent.mkdir()
    (script.parent / "more.yaml").write_text("args: [--max-model-len, 4096]\ncopies: 3\n")
    script.write_text(
        "helm install -f more.yaml \\\n  --set model.name=Qwen/Qwen3-32B,tp=4 \\\n"
        "  --namespace serving name $ROOT/charts/server\n"
    )
    found = read_launch(script)

    wanted = {"tensor_parallel": 4, "num_gpus": 12, "max_model_len": 4096}
    assert wanted.items() <= found.values.items()
    assert found.path.name == "scripts.yaml"
    assert found.found.line == 7
    assert found.version == ""
    assert any("values of server" in note for note in found.notes)


def test_a_folder_and_its_templates_are_the_chart(chart: Path) -> None:
    (chart / "values.yaml").write_text(_VALUES.replace("name:", "name: Qwen/Qwen3-8B"))
    paths = (chart, chart / "values.yaml", chart / "templates" / "deployment.yaml")

    found = [read_launch(path).values for path in paths]
    assert found[0] == found[1] == found[2]
    assert found[0]["num_gpus"] == 4


def test_values_of_another_name_go_over_those_of_the_chart(chart: Path) -> None:
    (chart / "values-large.yaml").write_text("model:\n  name: Qwen/Qwen3-32B\ntp: 8\n")
    found = read_launch(chart / "values-large.yaml").values

    assert {"tensor_parallel": 8, "num_gpus": 16}.items() <= found.items()


def test_values_that_a_chart_refuses_are_told(chart: Path) -> None:
    with pytest.raises(LaunchError):
        read_launch(chart)


def test_what_the_environment_sets_leaves_numbers_and_asks_for_a_model(chart: Path) -> None:
    (chart / "values.yaml").write_text(_VALUES.replace("name:", "name: Qwen/Qwen3-8B"))
    script = chart.parent.parent / "install.sh"
    script.write_text("helm install --set tp=$TP,image=$REPO/vllm:$TAG name charts/server\n")
    numbers = read_launch(script).values
    script.write_text("helm install --set model.name=$MODEL name charts/server\n")

    assert {"tensor_parallel": 2, "model": "Qwen/Qwen3-8B"}.items() <= numbers.items()
    assert "model" in read_launch(script).lacking({})


def test_options_of_a_file_stand_where_the_script_gives_its_own(chart: Path) -> None:
    """As launchers of gpu-recipes do, with a ConfigMap of options."""
    (chart / "values.yaml").write_text(_VALUES.replace("name:", "name: Qwen/Qwen3-8B"))
    env = "        env: [{name: SERVER_ARGS_FILE, value: /configs/args.yaml}]\n        resources:"
    text = _DEPLOYMENT.replace("        resources:", env)
    (chart / "templates" / "deployment.yaml").write_text(text)
    options = "  args.yaml: |\n    max-model-len: 8192\n    enable-prefix-caching: false\n"
    started = _SCRIPTS.replace('{{ join " " .Values.args }}', '"$@"') + options
    (chart / "templates" / "scripts.yaml").write_text(started)

    assert read_launch(chart).values["max_model_len"] == 8192
