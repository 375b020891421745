"""The server: answers are those of the commands, limits hold, nobody slows another down."""

from __future__ import annotations

import json
import threading
import time

import httpx
import pytest
from served import LONG, SMALL, server

from planner.ui.limits import Limits


def _rows(text):
    return json.loads(text)["rows"]


def test_the_object_is_that_of_the_command(client, planner, tmp_path):
    asked = client.get(f"/api/search?{SMALL}")
    assert asked.status_code == 200
    command = asked.json()["manifest"]["command"]
    assert command == "planner search --model llama-7b --gpus 8 --space small"
    planner(*command.split()[1:], "--quiet", "--json", tmp_path / "a.json")
    written = json.loads((tmp_path / "a.json").read_text())
    assert asked.json()["rows"] == written["rows"]
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
        ("/api/search?model=llama-7b&num_gpus=8&x=1", 400, "knows no 'x'"),
        ("/api/search?model=llama-65b&num_gpus=1&space=small", 422, "fits"),
        ("/api/dream?model=llama-7b", 404, "ask search, estimate, size"),
        ("/api/search?model=" + "a" * 20_000, 413, "at most 16,384 bytes"),
        ("/search?model=lama-65b&num_gpus=8", 200, "Working"),
        ("/search?model=a/b&num_gpus=8", 200, "is a path"),
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
        ("{", 400, "is no JSON"),
        ("[]", 400, "is a JSON object"),
        ("[" * 16_000, 400, "is no JSON"),
        (" " * 20_000, 413, "at most 16,384 bytes"),
    ):
        asked = client.post("/api/search", content=body)
        assert (asked.status_code, words in asked.text) == (status, True), asked.text


def test_the_interface_is_described(client):
    table = client.get("/api/openapi.json").json()
    assert set(table["paths"]) == {"/api/search", "/api/estimate", "/api/size"}
    body = table["paths"]["/api/search"]["post"]["requestBody"]["content"]["application/json"]
    fields = body["schema"]["properties"]
    assert fields["model"]["description"].startswith("the model")
    assert "time_to_train" in fields["constraints"]["properties"]
    assert "/api/search" in client.get("/api").text


def test_a_page_asks_nothing_of_others_and_empty_fields_leave_its_link(client):
    page = client.get("/search?model=llama-7b&gpu=&num_gpus=8")
    assert page.status_code == 303
    assert page.headers["location"] == "/search?model=llama-7b&num_gpus=8"
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_an_answer_is_a_page_when_it_is_there(client):
    for _ in range(200):
        page = client.get(f"/search?{SMALL}")
        if 'id="job"' not in page.text:
            break
        time.sleep(0.05)
    assert "Recommended: 8 x a100-sxm-80gb" in page.text
    assert "planner search --model llama-7b --gpus 8 --space small" in page.text
    assert f"/api/search?{SMALL}".replace("&", "&amp;") in page.text


def test_an_answer_is_worked_out_again_when_own_specs_change(tmp_path):
    import shutil
    from importlib.resources import files

    mine = tmp_path / "models" / "mine.toml"
    mine.parent.mkdir()
    shutil.copy(str(files("planner").joinpath("model_specs/llama-7b.toml")), mine)
    mine.write_text(mine.read_text().replace('"LLaMA 7B"', '"Mine one"'))

    def title() -> str:
        for _ in range(200):
            page = asks.get("/search?model=mine&num_gpus=8&space=small").text
            if 'id="job"' not in page:
                return page[page.index("<title>") : page.index("</title>")]
            time.sleep(0.05)
        return ""

    limits = Limits(workers=1)
    with server(limits, specs=tmp_path) as address, httpx.Client(base_url=address) as asks:
        assert "Mine one" in title()
        mine.write_text(mine.read_text().replace("Mine one", "Mine two"))
        assert "Mine two" in title()


def test_other_sites_and_other_names_may_not_ask(client):
    from_elsewhere = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get(f"/api/search?{SMALL}", headers=from_elsewhere).status_code == 403
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/search", headers=followed).status_code == 200
    assert client.post("/api/search", headers=followed).status_code == 403
    assert client.get("/search", headers={"host": "evil.example:80"}).status_code == 421
    assert client.get("/search", headers={"host": "localhost:8765"}).status_code == 200


def test_with_a_token_nobody_asks_without_it():
    with (
        server(Limits(workers=1), token="secret") as address,
        httpx.Client(base_url=address) as asks,
    ):
        assert asks.get("/search").status_code == 401
        assert asks.get("/search?token=wrong").status_code == 401
        bearer = {"authorization": "Bearer secret"}
        assert asks.get("/api/openapi.json", headers=bearer).status_code == 200
        came = asks.get("/search?token=secret&model=x")
        assert came.status_code == 303
        assert came.headers["location"] == "/search?model=x"
        cookie = came.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert asks.get("/search").status_code == 200  # by the cookie


def test_what_takes_too_long_or_is_too_much_is_ended_and_told():
    limits = Limits(workers=1, seconds=1.0, rows=1_000_000)
    with server(limits) as address, httpx.Client(base_url=address, timeout=30) as asks:
        late = asks.get(f"/api/search?{LONG}")
        assert late.status_code in (413, 504)
        slow = asks.get("/api/size?model=llama-65b&total_tokens=1T&calendar_time=30d&gpu=all")
        assert slow.status_code == 504
        assert "more than 1 s" in slow.json()["message"]
        much = asks.get("/api/search?model=llama-65b&gpu=a100,h100,b200&num_gpus=256,512,1024,2048")
        assert much.status_code == 413
        assert "configurations; here a search has at most 1,000,000" in much.json()["message"]
        assert asks.get(f"/api/search?{SMALL}").status_code == 200


def test_too_many_are_refused_and_who_left_is_not_worked_for():
    limits = Limits(workers=1, waiting=2)
    with server(limits) as address, httpx.Client(base_url=address, timeout=60) as asks:

        def leave() -> None:
            with pytest.raises(httpx.ReadTimeout):
                httpx.get(f"{address}/api/search?{LONG}", timeout=1.5)

        threads = [threading.Thread(target=leave) for _ in range(3)]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        refused = asks.get(f"/api/search?{SMALL}")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        for thread in threads:
            thread.join()
        started = time.monotonic()
        assert asks.get(f"/api/search?{SMALL}").status_code == 200
        assert time.monotonic() - started < 10


def test_a_worker_that_is_killed_is_told_and_replaced(client):
    import os
    import signal

    import psutil

    found = []

    def ask() -> None:
        found.append(client.get(f"/api/search?{LONG}"))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(1.0)
    children = psutil.Process(os.getpid()).children(recursive=True)
    workers = [one for one in children if any("forkserver" in word for word in one.cmdline())]
    busy = max(workers, key=lambda one: sum(one.cpu_times()[:2]))
    os.kill(busy.pid, signal.SIGKILL)
    thread.join(timeout=40)
    assert found[0].status_code == 500
    assert "ended" in found[0].json()["message"]
    assert client.get(f"/api/search?{SMALL}").status_code == 200


def test_a_port_in_use_a_folder_that_is_none_and_what_is_missing(planner, tmp_path, monkeypatch):
    from planner.ui.serve import listening

    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        ran = planner("ui", "--port", port)
        assert ran.exit_code == 8
        assert ran.err == (
            f"127.0.0.1:{port}: cannot be listened on (Address already in use); give another "
            "--port, or 0 for any.\n"
        )
    assert "is no address" in planner("ui", "--host", "no.such.host.invalid").err
    assert "there is no such folder" in planner("ui", "--specs", tmp_path / "no").err
    monkeypatch.setattr("planner.ui.serve.find_spec", lambda name: None)
    ran = planner("ui")
    assert ran.exit_code == 7
    assert "pip install 'llm-gpu-planner[ui]'" in ran.err


def test_beyond_this_machine_there_is_a_token(monkeypatch):
    import uvicorn

    from planner.ui.serve import serve

    said = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    for host in ("0.0.0.0", "127.0.0.1"):
        serve(host, 0, token="", limits=Limits(workers=1), specs=None, said=said.append)
    assert "?token=" in said[0]
    assert len(said[0].partition("?token=")[2]) >= 20
    assert "token" not in said[1]
