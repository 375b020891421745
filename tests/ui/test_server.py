"""The server: answers are those of the commands, limits hold, nobody slows another down."""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from served import LONG, OWN_HOST, PATIENCE_S, SMALL, server, until

from planner.ui.question import COMMANDS
from planner.ui.request_limits import Limits


def _answered(asks, path):
    """The page with an answer, once it is there: the events of its job end then."""
    page = asks.get(path).text
    if job := re.search(r'data-job="([^"]+)"', page):
        assert "event: end" in asks.get(f"/jobs/{job[1]}/events").text
        page = asks.get(path).text
    assert "data-job" not in page
    return page


def test_the_object_is_that_of_the_command(client, planner, tmp_path):
    asked = client.get(f"/api/search?{SMALL}")
    assert asked.status_code == 200
    command = asked.json()["manifest"]["command"]
    assert command == "planner search --model llama-7b --gpus 8 --space small"
    planner(*command.split()[1:], "--quiet", "--json", tmp_path / "a.json")
    written = json.loads((tmp_path / "a.json").read_text())
    assert asked.json()["rows"] == written["rows"]
    assert client.get(f"/api/v1/search?{SMALL}").json()["rows"] == written["rows"]
    assert asked.json()["recommended_row"] == written["recommended_row"]
    posted = client.post("/api/search", json={"model": "llama-7b", "num_gpus": 8, "space": "small"})
    assert posted.json()["rows"] == written["rows"]


def test_estimates_and_sizes_are_answered_too(client):
    one = client.get("/api/estimate?model=llama-7b&num_gpus=8&settings=zero%3D1")
    assert len(one.json()["rows"]) == 1
    query = "model=llama-7b&gpu=a100&total_tokens=1T&calendar_time=60d&num_gpus=64,128"
    sizes = client.get(f"/api/size?{query}&contract=on-demand").json()
    assert sizes["answer"][0].startswith("Cheapest")
    assert sizes["manifest"]["command"].startswith("planner size --model llama-7b --gpu a100")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/search?model=lama-65b&num_gpus=8", 400, "Did you mean llama-65b"),
        ("/api/search?model=llama-7b&num_gpus=8&x=1", 400, "has no 'x'"),
        ("/api/search?model=llama-65b&num_gpus=1&space=small", 422, "fits"),
        ("/api/dream?model=llama-7b", 404, "ask search, size, sweep"),
        ("/api/search?model=" + "a" * 20_000, 413, "at most 16,384 bytes"),
        ("/search?model=lama-65b&num_gpus=8", 200, "Working"),
        ("/search?model=a/b/c&num_gpus=8", 200, "is a path"),
        ("/dream", 404, "There is no page /dream"),
    ],
)
def test_what_is_wrong_is_told(client, path, status, words):
    asked = client.get(path)
    assert asked.status_code == status
    assert words in asked.text
    assert "Traceback" not in asked.text


def test_bodies_that_are_none_are_told(client):
    for body, status, words in (
        ("{", 400, "is not JSON"),
        ("[]", 400, "must be a JSON object"),
        ("[" * 16_000, 400, "is not JSON"),
        (" " * 20_000, 413, "at most 16,384 bytes"),
    ):
        asked = client.post("/api/search", content=body)
        assert (asked.status_code, words in asked.text) == (status, True), asked.text


def test_the_interface_is_described(client):
    table = client.get("/api/openapi.json").json()
    assert set(table["paths"]) == {f"/api/v1/{command}" for command in COMMANDS}
    body = table["paths"]["/api/v1/search"]["post"]["requestBody"]["content"]["application/json"]
    fields = body["schema"]["properties"]
    assert fields["model"]["description"].startswith("the model")
    assert "time_to_train" in fields["constraints"]["properties"]
    assert "/api/v1/search" in client.get("/api").text


def test_a_page_asks_nothing_of_others_and_empty_fields_leave_its_link(client):
    page = client.get("/search?model=llama-7b&gpu=&num_gpus=8")
    assert page.status_code == 303
    assert page.headers["location"] == "/search?model=llama-7b&num_gpus=8"
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_an_answer_is_a_page_when_it_is_there(client):
    page = _answered(client, f"/search?{SMALL}")
    assert "Recommended: 8 x a100-sxm-80gb" in page
    assert "planner search --model llama-7b --gpus 8 --space small" in page
    assert f"/api/search?{SMALL}".replace("&", "&amp;") in page


def test_an_answer_is_worked_out_again_when_own_specs_change(tmp_path):
    import shutil
    from importlib.resources import files

    mine = tmp_path / "models" / "mine.toml"
    mine.parent.mkdir()
    shutil.copy(str(files("planner").joinpath("model_specs/llama-7b.toml")), mine)
    mine.write_text(mine.read_text().replace('"LLaMA 7B"', '"Mine one"'))

    def title() -> str:
        page = _answered(asks, "/search?model=mine&num_gpus=8&space=small")
        return page[page.index("<title>") : page.index("</title>")]

    with (
        server(Limits(workers=1, seconds=PATIENCE_S), specs=tmp_path) as served,
        httpx.Client(base_url=served.address, timeout=PATIENCE_S) as asks,
    ):
        assert "Mine one" in title()
        mine.write_text(mine.read_text().replace("Mine one", "Mine two"))
        assert "Mine two" in title()


def test_what_takes_too_long_is_ended_and_told():
    """Which no machine does in a fiftieth of a second."""
    with server(Limits(workers=1, seconds=0.02)) as served:
        late = served.asked(f"/api/{LONG}", OWN_HOST)
    assert late.startswith(b"HTTP/1.1 504 ")
    assert b"more than 0.02 s" in late


def test_too_many_are_refused_and_who_left_is_not_worked_for():
    with server(Limits(workers=1, waiting=2, seconds=PATIENCE_S)) as served:
        ask = f"GET /api/{LONG} HTTP/1.1\r\n{OWN_HOST}\r\n\r\n".encode()
        held = [served.connected(ask)]
        until(lambda: served.pool._running)
        held += [served.connected(ask) for _ in range(2)]
        until(lambda: len(served.pool._waiting) == 2)
        jobs = [*served.pool._running, *served.pool._waiting]
        assert [job.is_running for job in jobs] == [True, False, False]
        refused = served.asked(f"/api/search?{SMALL}", OWN_HOST)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5\r\n" in refused
        for one in held:
            one.close()
        ended = [job.future.exception(timeout=PATIENCE_S) for job in jobs]
        assert [error.status for error in ended] == [409, 409, 409]
        assert served.asked(f"/api/search?{SMALL}", OWN_HOST).startswith(b"HTTP/1.1 200 ")


def test_a_worker_that_is_killed_is_told_and_replaced():
    others = {*multiprocessing.active_children()}
    with server(Limits(workers=1, seconds=PATIENCE_S)) as served, ThreadPoolExecutor() as asking:
        lost = asking.submit(served.asked, f"/api/{LONG}", OWN_HOST)
        until(lambda: served.pool._running and served.pool._running[0].total)
        (worker,) = {*multiprocessing.active_children()} - others
        worker.kill()
        answer = lost.result()
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"ended" in answer
        assert served.asked(f"/api/search?{SMALL}", OWN_HOST).startswith(b"HTTP/1.1 200 ")


def test_a_server_that_is_ended_ends_its_work_first(capfd):
    with server(Limits(workers=1, seconds=PATIENCE_S)) as served, ThreadPoolExecutor() as asking:
        asked = asking.submit(served.asked, f"/api/{LONG}", OWN_HOST)
        until(lambda: served.pool._running)
        (job,) = served.pool._running
        served.end()
        assert job.future.exception().status == 409
        assert asked.result().startswith(b"HTTP/1.1 409 ")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("begun", [b"", b"{"])
def test_who_leaves_before_the_question_has_come_is_not_a_fault_of_the_server(served, capfd, begun):
    head = f"POST /api/search HTTP/1.1\r\n{OWN_HOST}\r\ncontent-length: 9\r\n\r\n"
    served.connected(head.encode() + begun).close()
    served.asked("/search", OWN_HOST)
    until(lambda: not served.connections)
    assert capfd.readouterr().err == ""


def test_a_port_in_use_a_folder_that_is_none_and_what_is_missing(planner, tmp_path, monkeypatch):
    from planner.ui.server import open_listener

    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        ran = planner("ui", "--port", port)
        assert ran.exit_code == 8
        assert ran.err == (
            f"127.0.0.1:{port}: cannot listen (Address already in use); give another "
            "--port, or 0 for any.\n"
        )
    assert "is not an address" in planner("ui", "--host", "a" * 64).err  # nobody need be asked
    assert "there is no such folder" in planner("ui", "--specs", tmp_path / "no").err
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    # What the server imports is not there either.
    monkeypatch.setitem(sys.modules, "h11", None)
    monkeypatch.delitem(sys.modules, "planner.ui.server", raising=False)
    ran = planner("ui")
    assert ran.exit_code == 7
    assert "pip install 'llm-gpu-planner[ui]'" in ran.err


def test_beyond_this_machine_there_is_a_token(monkeypatch):
    import uvicorn

    from planner.ui.server import serve

    said = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    for host in ("0.0.0.0", "127.0.0.1"):
        serve(host, 0, token="", limits=Limits(workers=1), specs=None, report_address=said.append)
    assert "?token=" in said[0]
    assert len(said[0].partition("?token=")[2]) >= 20
    assert "token" not in said[1]
