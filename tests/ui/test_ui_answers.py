"""What workers find for each command, files of it, what was uploaded, and what the time leaves."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

import pytest

from planner.errors import InfeasibleError, LaunchError, PlannerError, SearchSpaceError, SpecError
from planner.optimize.exhaustive import StopSearch
from planner.ui.form import FIRST, field_groups, plan_sliders
from planner.ui.question import COMMANDS, Question, suggest_fixes
from planner.ui.request_limits import Limits, RequestRefused
from planner.ui.worker_pool import Uploads, answer, make_file

SMALL = "model=llama-7b&num_gpus=8&space=small"
ASKED = {
    "search": SMALL,
    "size": "model=llama-7b&gpu=a100&total_tokens=1T&calendar_time=60d&num_gpus=64,128",
    "sweep": "model=llama-7b&gpu=a100,h100&num_gpus=8,16&space=small",
    "compare": "things=a100,h100&model=llama-7b&num_gpus=8&space=small",
    "estimate": "model=llama-7b&num_gpus=8&settings=zero%3D1",
    "explain": "model=llama-7b&num_gpus=8&settings=zero%3D1+tp%3D2&against=tp%3D4",
    "max-batch": "model=llama-7b&num_gpus=8&settings=zero%3D1",
    "max-length": "model=llama-7b&num_gpus=8&settings=zero%3D1",
    "launch": f"{SMALL}&target=megatron-lm&wrapper=slurm",
}
PARTS = {
    "search": "recommended",
    "size": "rows",
    "sweep": "rows",
    "compare": "verdicts",
    "estimate": "operators",
    "explain": "against",
    "max-batch": "largest",
    "max-length": "largest",
    "launch": "files",
}
SCRIPT = """accelerate launch train.py --model_name_or_path meta-llama/Llama-3.1-8B \\
  --deepspeed {} --bf16 --per_device_train_batch_size 1 --max_seq_length 2048
"""


def _of(command, query, *files):
    return replace(Question.of(command, parse_qsl(query)), files=files)


def _answer(command, query, *files, tell=lambda *_: None):
    return answer(_of(command, query, *files), None, Limits(), tell)


def _sentences(found):
    told = re.findall(r'class="(?:headline|sentence)">(.*?)</p>', found.content, re.DOTALL)
    return [re.sub("<[^>]*>", "", one) for one in told]


@pytest.mark.few(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page_and_an_object(command):
    found = _answer(command, ASKED[command])
    table = json.loads(found.object)
    assert table["manifest"]["command"].startswith(f"planner {command} ")
    assert table[PARTS[command]] if command != "compare" else table["manifest"]
    assert _sentences(found)
    assert "/planner-" not in found.object + found.content  # the folder that it was in
    if command not in ("compare", "launch"):
        plan = Question.draft("launch", [*parse_qsl(found.plan), ("target", found.targets[0])])
        assert "train.sh" in answer(plan, None, Limits(), lambda *_: None).content


@pytest.mark.slow
def test_pools_are_those_of_the_command_line(planner, tmp_path):
    fields = {
        "model": "llama-3.1-8b", "gpu": "h100", "request_rate": "20", "engine": "vllm",
        "mode": "aggregated", "price": "2", "lengths": "azure-code", "pools": "4k",
    }  # fmt: skip
    found = _answer("size", urlencode({"workload": "serve", **fields}))
    options = [word for n, text in fields.items() for word in (f"--{n.replace('_', '-')}", text)]
    path = tmp_path / "size.json"
    assert planner("size", "--workload", "serve", *options, "--json", path).exit_code == 0
    answers = [json.loads(found.object), json.loads(path.read_text())]
    for part in ("rows", "answer", "cuts", "pools"):
        assert answers[0][part] == answers[1][part]
    assert "--pools 4k" in answers[0]["manifest"]["command"]
    assert any("2 pools by length" in line for line in _sentences(found))


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["search", "explain", "max-batch"])
def test_what_nobody_gave_is_told_by_field(command):
    found = _answer(command, "model=llama-7b&num_gpus=8&settings=zero%3D1+tp%3D2")
    assert found.assumed["sequence_length"].startswith("2,048 (")
    assert {"gpu", "price"} <= {*found.assumed}


@pytest.mark.slow
def test_files_of_an_answer():
    question = _of("search", SMALL)

    def made(name, of=question):
        return make_file(of, name, None, Limits(), lambda *_: None).content

    rows = json.loads(_answer("search", SMALL).object)["rows"]
    table = [*csv.DictReader(io.StringIO(made("table.csv").decode()))]
    assert [float(row["step_time_s"]) for row in table] == [row["step_time_s"] for row in rows]
    assert made("front.png").startswith(b"\x89PNG")
    assert b"#14181d" in made("parts-dark.svg")
    assert made("page.html").startswith(b"<!doctype html>")
    assert b'workload = "train"' in made("plan.toml")
    with zipfile.ZipFile(io.BytesIO(made("launch.zip", _of("launch", ASKED["launch"])))) as found:
        assert {"train.sbatch", "plan.toml"} <= {*found.namelist()}
    # Pictures of other commands among them.
    for name in ("launch.zip", "matrix.txt", "../plan.toml", "cost.png", "day.svg", "x.png"):
        with pytest.raises(SearchSpaceError, match="has no file"):
            made(name)
    with pytest.raises(SearchSpaceError, match="has no file"):
        made("front.png", _of("size", ASKED["size"]))
    with pytest.raises(SearchSpaceError, match="draws a load"):
        made("day.png", _of("size", ASKED["size"]))
    with pytest.raises(SearchSpaceError, match="has no rows"):
        made("table.csv", _of("compare", ASKED["compare"]))


def test_own_prices_are_those_of_the_question():
    price = json.loads(_answer("estimate", f"{ASKED['estimate']}&prices=a100=7").object)
    assert price["rows"][0]["price_per_gpu_hour_usd"] == pytest.approx(7)
    found = _answer("search", f"{SMALL}&prices=a100 spot=3, a100=7&contract=spot")
    assert "price" in found.assumed
    assert "3.00 USD" in found.assumed["price"]
    plan = Question.draft("estimate", parse_qsl(found.plan))
    assert plan.fields["prices"] == "a100 spot=3, a100=7"
    assert "--prices prices.csv" in plan.line
    for text, words in (("a100", "write GPU=USD"), ("a100 lease=3", "Unknown contract 'lease'")):
        with pytest.raises(SpecError, match=words):
            _answer("search", f"{SMALL}&prices={text}")


def test_a_launch_file_is_read_with_the_files_beside_it():
    config = json.dumps({"zero_optimization": {"stage": 3}, "train_batch_size": 64})
    files = ("run.sh", SCRIPT.format("ds.json")), ("ds.json", config)
    found = _answer("estimate", "file=x:run.sh&num_gpus=8&gpu=h100", *files)
    assert "ds.json" in found.content
    assert json.loads(found.object)["rows"][0]["zero_stage"] == 3
    assert found.workload == "train"
    alone = _answer("estimate", "file=x:run.sh", files[0])
    assert alone.assumed["gpu"].startswith("h100-sxm-80gb (")


@pytest.mark.security
def test_nothing_of_the_server_is_read_for_a_question(tmp_path):
    """A script may name any file; the command reads what the page must not."""
    secret = tmp_path / "ds.json"
    secret.write_text(json.dumps({"zero_optimization": {"stage": 3}, "train_batch_size": 4321}))
    own = tmp_path / "run.sh"
    own.write_text(SCRIPT.format(secret))
    from planner.launch.read.read_launch import read_launch

    assert read_launch(own).values["global_batch_size"] == 4321
    for name in (str(secret), f"../../../../..{secret}"):
        told = _told("file=x:run.sh&num_gpus=8&gpu=h100", ("run.sh", SCRIPT.format(name)))
        assert "4321" not in told
    model = f"vllm serve {tmp_path}\n"
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 4321}')
    assert "4321" not in _told("file=x:run.sh", ("run.sh", model))
    with pytest.raises(SearchSpaceError, match="Unknown name 'tests'"):
        _answer("compare", "things=tests,h100&model=llama-7b&num_gpus=8")


def _told(query, *files):
    """All that is said of files, without commas in numbers."""
    try:
        found = _answer("estimate", query, *files)
        return (found.object + found.content).replace(",", "")
    except PlannerError as error:
        return str(error).replace(",", "")


def test_a_config_of_a_model_is_a_model():
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    files = ("config.json", json.dumps(config))
    found = _answer("search", "file=x:config.json&num_gpus=8&space=small", files)
    assert "1." in found.content
    plan = dict(parse_qsl(found.plan))
    assert plan["file"] == "x:config.json"
    assert "model" not in plan
    with pytest.raises(SpecError, match="upload it again"):
        _answer("search", "file=x:config.json&num_gpus=8")


def test_what_does_not_fit_is_a_page_with_what_would():
    text = "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 1\n"
    found = _answer("estimate", "file=x:run.sh&gpu=h100&num_gpus=1", ("run.sh", text))
    assert "The best change" in found.content
    assert found.workload == "serve"


def test_a_plan_of_reinforcement_learning_has_sliders_that_move_it():
    asked = "workload=rl&model=qwen3-8b&gpu=h100&num_gpus=16&settings=recompute%3Dfull"
    plan = Question.draft("estimate", parse_qsl(asked))
    names = {one.name for one in plan_sliders(plan)}
    assert {"num_gpus", "placement", "rollout_tp"} <= names
    assert "mbs" not in names


def test_plans_are_explained_and_launched_from_their_query():
    found = _answer("search", SMALL)
    plan = Question.draft("estimate", parse_qsl(found.plan))
    again = json.loads(answer(plan, None, Limits(), lambda *_: None).object)["rows"][0]
    assert again["step_time_s"] == json.loads(found.object)["recommended_row"]["step_time_s"]
    sliders = {one.name: one for one in plan_sliders(plan)}
    assert sliders["num_gpus"].values[sliders["num_gpus"].at] == "8"
    assert sliders["tp"].values[:3] == ["1", "2", "4"]
    assert sliders["zero"].is_setting
    assert not sliders["global_batch_size"].is_setting
    with pytest.raises(LaunchError, match="Name the tool"):
        _answer("launch", SMALL)


def _until(number):
    """Tells that the time is over once so much is done."""

    def tell(done, _):
        if done >= number:
            raise StopSearch

    return tell


@pytest.mark.slow
def test_what_was_found_when_the_time_ends_is_kept():
    numbers = ",".join(str(8 * number) for number in range(1, 10))
    many = f"model=llama-7b&gpu=a100,h100&num_gpus={numbers}&space=small"
    found = _answer("sweep", many, tell=_until(1))
    rows = json.loads(found.object)["rows"]
    assert len(rows) == 16  # of 18: parts of so many are done as a whole
    assert "Time limit reached" in _sentences(found)[0]
    sizes = "model=llama-7b&gpu=a100,h100,b200&total_tokens=1T&calendar_time=90d&num_gpus=64"
    rows = json.loads(_answer("size", sizes, tell=_until(1)).object)["rows"]
    reasons = {row["gpu"]: row.get("reason") for row in rows if not row.get("feasible", True)}
    assert "the time ended" in reasons["b200"]
    whole = "model=llama-7b&num_gpus=8&gpu=a100,h100"
    found = _answer("search", whole, tell=_until(20_000))
    assert "configurations" in _sentences(found)[0]
    assert json.loads(found.object)["manifest"]["interrupted"]
    with pytest.raises(RequestRefused, match="more than 60 s"):
        _answer("sweep", "model=llama-65b&gpu=a100&num_gpus=1,2", tell=_until(1))
    for command, fields in (("size", sizes), ("sweep", many)):
        with pytest.raises(RequestRefused, match="more than 60 s"):
            _answer(command, fields, tell=_until(0))


def test_a_sweep_has_so_many_scenarios():
    with pytest.raises(RequestRefused, match="That is 4 scenarios; here a sweep has at most 3"):
        answer(_of("sweep", ASKED["sweep"]), None, Limits(scenarios=3), lambda *_: None)


def test_a_message_has_buttons_that_ask_what_it_names():
    question = _of("search", "model=lama-65b&num_gpus=8&gpu=a100,h10")
    labels = {one.label: one.query for one in suggest_fixes(question, _fault(question))}
    assert labels["lama-65b → llama-65b"] == "model=llama-65b&gpu=a100%2Ch10&num_gpus=8"
    small = _of("search", "model=llama-65b&num_gpus=1")
    fix = next(one for one in suggest_fixes(small, _fault(small)) if "num gpus" in one.label)
    assert dict(parse_qsl(fix.query))["num_gpus"] not in ("", "1")
    sized = _of("size", "model=llama-65b&num_gpus=8&gpu=a100")
    fields = {one.field for one in suggest_fixes(sized, _fault(sized))}
    assert {"calendar_time", "cost"} <= fields
    pinned = _of("estimate", "model=llama-7b&num_gpus=8&settings=tp=2 zero=1")
    (fix,) = suggest_fixes(pinned, "Try --set zero=3.")
    assert dict(parse_qsl(fix.query))["settings"] == "tp=2 zero=3"


def _fault(question):
    with pytest.raises((SpecError, InfeasibleError, SearchSpaceError)) as told:
        answer(question, None, Limits(), lambda *_: None)
    return str(told.value)


def test_a_form_shows_what_was_given_first_and_what_was_assumed():
    question = _of("search", "model=llama-7b&num_gpus=8&region=SE")
    assumed = {"sequence_length": "2,048 (published run of LLaMA 7B)"}
    groups = {group.name: group for group in field_groups(question, assumed)}
    assert "region" in [field.name for field in groups[FIRST].fields]
    first = groups["question"].fields[0]
    assert (first.name, first.took) == ("sequence_length", "2,048")
    assert [*groups["question"].assumed] == [first]


@pytest.mark.security
def test_uploads_are_texts_of_so_many_bytes_kept_by_what_they_say():
    uploads = Uploads(Limits(uploads_bytes=10))
    first = uploads.keep({"files": [{"name": "C:\\a\\..\\run.sh", "text": "123456"}]})
    assert first.endswith(":run.sh")
    placed = uploads.with_files(_of("estimate", f"file={first}"))
    assert placed.files == (("run.sh", "123456"),)
    again = uploads.keep({"files": [{"name": "run.sh", "text": "123456"}]})
    assert again == first
    uploads.keep({"files": [{"name": "b.sh", "text": "12345678"}]})
    assert uploads.with_files(_of("estimate", f"file={first}")).files == ()
    files = [[], [3], [{"name": "..", "text": ""}], [{"name": "a", "text": "\0"}]]
    wrong = [[], {}, *({"files": one} for one in [*files, [{"name": "a", "text": ""}] * 17])]
    for table in wrong:
        with pytest.raises(SearchSpaceError):
            uploads.keep(table)


def test_files_go_to_the_server_and_answers_come_in_parts(client):
    text = SCRIPT.format("none.json")
    sent = client.post("/uploads", json={"files": [{"name": "run.sh", "text": text}]})
    link = {"file": sent.json()["file"], "num_gpus": "8", "gpu": "h100"}
    first = client.get("/answers/estimate", params=link).json()
    assert first["job"]
    assert "event: end" in client.get(f"/jobs/{first['job']}/events").text
    part = client.get("/answers/estimate", params=link).json()
    assert "What the file sets" in part["html"]
    assert part["assumed"]["price"]
    assert not part["job"]
    large = {"files": [{"name": "a", "text": "x" * 2**20}]}
    assert client.post("/uploads", json=large).status_code == 413
    other = {"sec-fetch-site": "cross-site"}
    assert client.post("/uploads", json={}, headers=other).status_code == 403
    made = client.get(f"/files/search/plan.toml?{SMALL}")
    assert made.headers["content-disposition"] == 'attachment; filename="plan.toml"'
    assert client.get(f"/files/search/nothing.txt?{SMALL}").status_code == 400


def test_the_first_page_has_examples_that_are_questions(client):
    page = client.get("/").text
    links = re.findall(r'class="card" href="/([\w-]+)\?([^"]+)"', page)
    assert len(links) == 6
    for command, query in links:
        question = Question.of(command, parse_qsl(query.replace("&amp;", "&")))
        assert question.fields["model"]


def test_an_error_in_an_uploaded_file_names_the_file_without_its_folder():
    """The user knows the name of the file, and nothing of where the server put it."""
    text = '[services.chat]\nmodel = "llama-3.1-8b"\nrate = ["'
    files = ("fleet.toml", text)
    with pytest.raises(PlannerError, match=r"^fleet\.toml") as error:
        _answer("size", "workload=serve&services=x:fleet.toml", files)
    assert "planner-" not in str(error.value)
