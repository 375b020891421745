"""Who may ask, and where one is sent on to: over sockets, with headers of browsers and others."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest
from served import PATIENCE_S, Served, server

from planner.ui.request_limits import Limits, is_loopback

pytestmark = pytest.mark.security

TOKEN = "a long; token=ü"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server that needs a token, and works for nobody."""
    with server(Limits(workers=0), token=TOKEN) as found:
        yield found


def _status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


@pytest.mark.parametrize(
    "path",
    [
        "/%5Cevil.example",
        "/%5C%5Cevil.example",
        "/\\evil.example",
        "//evil.example",
        "///evil.example/search",
        "/%2F%2Fevil.example",
        "/%2F%5Cevil.example",
        "/%09/evil.example",
        "/%09%5Cevil.example",
        "/%0D%0A/evil.example",
        "/%0d%0aset-cookie:%20a=b",
        "/%00//evil.example",
        "/%20//evil.example",
        "/..//evil.example",
        "/.%2F/evil.example",
        "/%E2%80%A8/evil.example",
        "/@evil.example",
        "/https:evil.example",
        "/https://evil.example",
        "https://evil.example/search",
        "/search",
    ],
)
def test_whoever_comes_with_the_token_goes_on_to_a_path_of_this_server(guarded, path):
    given = f"{path}?token={quote(TOKEN)}&model=x"
    answer = guarded.asked(given, "host: planner.example:80").partition(b"\r\n\r\n")[0]
    assert _status(answer) == 303
    told = dict(line.lower().split(b": ", 1) for line in answer.split(b"\r\n")[1:])
    assert set(told) >= {b"location", b"set-cookie"}
    assert told[b"set-cookie"].startswith(b"planner_token_80=")
    link = told[b"location"].decode("ascii")
    assert all("!" <= one <= "~" and one != "\\" for one in link)
    assert link.startswith("/")
    assert not link.startswith("//")
    assert link.endswith("?model=x")
    assert urlsplit(urljoin("http://planner.example/", link)).netloc == "planner.example"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8765", 200),
        ("LocalHost.", 200),
        ("localhost.:8765", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:8765", 200),
        ("127.9.9.9:1", 200),
        ("[::1]", 200),
        ("[::1]:8765", 200),
        ("[0:0:0:0:0:0:0:1]:8765", 200),
        ("localhost:", 200),
        ("evil.example", 421),
        ("evil.example:8765", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("evil.example@localhost", 421),
        ("evil.example#localhost", 421),
        ("localhost..", 421),
        ("[::2]:8765", 421),
        ("::1", 421),
        ("10.0.0.1", 421),
        ("0.0.0.0", 421),
        ("", 421),
    ],
)
def test_without_a_token_one_asks_by_a_name_of_this_machine(served, host, status):
    assert _status(served.asked("/search", f"host: {host}")) == status


def test_ipv6_is_listened_on_and_asked_by_its_address():
    import socket

    from planner.ui.server import link, open_listener

    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    with open_listener("::1", 0) as found:
        assert link(found, "::1", "") == f"http://[::1]:{found.getsockname()[1]}/"
    assert is_loopback("::1")
    assert not is_loopback("::")


OWN = "host: localhost:8765"
POST, DELETE = ("POST", "/api/estimate"), ("DELETE", "/jobs/none")
EVERY = (("GET", "/search"), ("GET", "/api/openapi.json"), POST, DELETE)


@pytest.mark.parametrize(("method", "path"), EVERY)
@pytest.mark.parametrize(
    ("headers", "is_let_pass"),
    [
        ((), True),
        (("origin: http://localhost:8765",), True),
        (("origin: HTTP://LOCALHOST:8765",), True),
        (("origin: https://localhost:8765",), True),  # a server before it has the encryption
        (("origin: http://evil.example",), False),
        (("origin: http://localhost:3000",), False),
        (("origin: http://localhost",), False),
        (("origin: http://evil.example/localhost:8765",), False),
        (("origin: http://localhost:8765.evil.example",), False),
        (("origin: null",), False),
        (("origin: ",), False),
        (("origin: http://evil.example", "sec-fetch-mode: navigate"), False),
        (("sec-fetch-site: same-origin", "origin: https://planner.example"), True),
        (("sec-fetch-site: none",), True),
        (("sec-fetch-site: same-site",), False),  # another port of this machine
        (("sec-fetch-site: cross-site",), False),
        (("sec-fetch-site: cross-site", "sec-fetch-mode: no-cors"), False),
        (("sec-fetch-site: new-word",), False),
    ],
)
def test_pages_of_other_sites_may_not_ask(served, method, path, headers, is_let_pass):
    answer = served.asked(
        path, OWN, *headers, method=method, body=b"{}" if method == "POST" else b""
    )
    assert (_status(answer) == 403) is not is_let_pass


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_a_link_may_be_followed_from_another_site(served, method, path):
    followed = ("sec-fetch-site: cross-site", "sec-fetch-mode: navigate")
    assert (_status(served.asked(path, OWN, *followed, method=method)) == 403) is (method != "GET")


def test_two_servers_of_a_host_do_not_log_each_other_out(guarded):
    with (
        server(Limits(workers=0), token="another") as other,
        httpx.Client(timeout=PATIENCE_S) as browser,
    ):
        tokens = {guarded.address: TOKEN, other.address: "another"}
        for address, token in tokens.items():
            came = browser.get(f"{address}/search", params={"token": token, "model": "x"})
            assert came.headers["location"] == "/search?model=x"
            cookie = came.headers["set-cookie"]
            assert cookie.startswith(f"planner_token_{address.rpartition(':')[2]}=")
            assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
        for address in tokens:
            assert browser.get(f"{address}/search").status_code == 200


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/search", "x: y", 401),
        (f"/api/openapi.json?token={quote(TOKEN[:-1])}", "x: y", 401),
        (f"/api/openapi.json?token={quote(TOKEN)}x", "x: y", 401),
        (f"/api/openapi.json?token={quote(TOKEN.upper())}", "x: y", 401),
        ("/api/openapi.json?token=", "x: y", 401),
        (f"/api/openapi.json?Token={quote(TOKEN)}", "x: y", 401),
        ("/api/openapi.json", "authorization: Bearer ", 401),
        ("/api/openapi.json", "authorization: Bearer another", 401),
        ("/api/openapi.json", f"cookie: planner_token_80={quote(TOKEN)}x", 401),
        ("/api/openapi.json", f"cookie: planner_token_81={quote(TOKEN)}", 401),
        ("/api/openapi.json", f"cookie: other={quote(TOKEN)}", 401),
        ("/api/openapi.json", f"cookie: planner_token_80={quote(TOKEN)}", 200),
        ("/api/openapi.json", f'cookie: a="b; c[]=1; planner_token_80={quote(TOKEN)}', 200),
    ],
)
def test_nobody_asks_without_the_token(guarded, path, header, status):
    assert _status(guarded.asked(path, "host: planner.example:80", header)) == status


def test_programs_send_the_token_as_their_authorization():
    with server(Limits(workers=0), token="secret") as at:
        asked = at.asked("/api/openapi.json", "host: x", "authorization: Bearer secret")
        assert _status(asked) == 200
