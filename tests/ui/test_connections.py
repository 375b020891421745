"""Connections: none waits for ever for its client, and who only connects locks nobody out."""

from __future__ import annotations

import asyncio
import heapq
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import h11
import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from served import OWN_HOST, PATIENCE_S, SMALL, Served, read, server, until
from uvicorn.server import ServerState

from planner.ui.request_limits import Limits, within_files
from planner.ui.server import Connection, client_network

HOST = b"host: localhost\r\n"
BEGUN = b"GET /search HTTP/1.1\r\n"
WHOLE = BEGUN + HOST + b"\r\n"
NO_BODY = b"POST /api/search HTTP/1.1\r\n" + HOST + b"content-length: 50\r\n\r\n"
HALF = (b"", b"G", BEGUN, BEGUN + HOST, NO_BODY, NO_BODY + b"{")
"""What those send who never send the rest."""


class Clock:
    """The part of an event loop that a connection uses, whose time is set."""

    def __init__(self):
        self.now, self._due, self._number = 0.0, [], count()

    def time(self):
        return self.now

    def call_later(self, seconds, function):
        handle = asyncio.TimerHandle(self.now + seconds, function, (), self)
        heapq.heappush(self._due, (handle.when(), next(self._number), handle))
        return handle

    def create_task(self, work):
        work.close()
        return asyncio.Future(loop=self)

    def get_debug(self):
        return False

    def _timer_handle_cancelled(self, handle):
        pass

    def go_to(self, now):
        while self._due and self._due[0][0] <= now:
            self.now, _, handle = heapq.heappop(self._due)
            if not handle.cancelled():
                handle._run()
        self.now = now


class Transport(asyncio.Transport):
    """The other end of a connection, where ``unsent`` bytes are not taken yet."""

    def __init__(self, host):
        super().__init__({"peername": (host, 4000), "sockname": ("127.0.0.1", 8765)})
        self.unsent, self.written, self.ended = 0, b"", ""

    def get_write_buffer_size(self):
        return self.unsent

    def write(self, data):
        self.written += data

    def is_closing(self):
        return bool(self.ended)

    def close(self):
        self.ended = self.ended or "closed"

    def abort(self):
        self.ended = "aborted"


class Server:
    """Connections of clients, by their addresses."""

    def __init__(self, **limits):
        self.clock, self.state = Clock(), ServerState()
        self._limits = Limits(**limits)
        self._config = uvicorn.Config(lambda *_: None, ws="none", log_level="critical")
        self._config.load()

    def connected(self, host="192.0.2.1", sent=b""):
        made = Connection(
            self._limits,
            config=self._config,
            server_state=self.state,
            app_state={},
            _loop=self.clock,
        )
        made.connection_made(Transport(host))
        if sent and not made.transport.ended:
            made.data_received(sent)
        self.clock.now += 0.001
        return made


@pytest.mark.parametrize("sent", HALF)
@pytest.mark.parametrize("slowly", [False, True])
def test_a_request_has_ten_seconds_however_slowly_it_comes(sent, slowly):
    at = Server()
    held = at.connected(sent=sent)
    for tenth in range(1, 100):
        at.clock.go_to(tenth / 10)
        if slowly and tenth % 10 == 0:
            held.data_received(b" " if sent.endswith(b"{") else b"x")
        assert not held.transport.ended
    at.clock.go_to(10.0)
    assert held.transport.ended == "closed"
    assert not at.state.connections
    is_told = held.transport.written.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert is_told is (slowly or sent != b"")


def test_who_waits_for_an_answer_is_not_timed_and_has_ten_seconds_anew_after_it():
    at = Server()
    asks = at.connected(sent=WHOLE)
    at.clock.go_to(1000)
    assert not asks.transport.ended
    asks.conn.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
    asks.conn.send(h11.EndOfMessage())
    asks.cycle.response_complete = True
    asks.on_response_complete()
    at.clock.go_to(1004)
    asks.data_received(BEGUN)  # so that it is not idle, which ends after 5 s
    at.clock.go_to(1009.9)
    assert not asks.transport.ended
    at.clock.go_to(1010)
    assert asks.transport.ended == "closed"


@pytest.mark.parametrize(("taken", "ended"), [(0, 10), (16_383, 10), (16_384, 20), (32_768, 20)])
def test_an_answer_is_taken_by_16_kib_in_ten_seconds_or_given_up(taken, ended):
    at = Server()
    asks = at.connected(sent=WHOLE)
    asks.transport.unsent = 2**20
    asks.pause_writing()
    at.clock.go_to(9.9)
    asks.transport.unsent -= taken
    at.clock.go_to(ended - 0.1)
    assert not asks.transport.ended
    at.clock.go_to(ended + 0.01)
    assert asks.transport.ended == "aborted"


def test_an_answer_that_is_taken_is_not_given_up():
    at = Server()
    asks = at.connected(sent=WHOLE)
    asks.transport.unsent = 2**20
    asks.pause_writing()
    asks.transport.unsent = 0
    asks.resume_writing()
    at.clock.go_to(1000)
    assert not asks.transport.ended


def test_a_client_has_so_many_and_its_oldest_that_asks_nothing_goes_first():
    at = Server(client_connections=3)
    asks = at.connected(sent=WHOLE)
    one, two, three = (at.connected() for _ in range(3))
    ended = [held.transport.ended for held in (asks, one, two, three)]
    assert ended == ["", "closed", "", ""]
    assert not at.connected("192.0.2.2").transport.ended  # of another client
    at.connected(sent=BEGUN)
    assert [held.transport.ended for held in (asks, two, three)] == ["", "closed", ""]


def test_of_all_the_client_with_the_most_gives_one():
    at = Server(connections=5, client_connections=4)
    few = [at.connected("192.0.2.1") for _ in range(2)]
    many = [at.connected("192.0.2.2") for _ in range(3)]
    new = at.connected("192.0.2.3")
    assert [one.transport.ended for one in (*few, *many, new)] == ["", "", "closed", "", "", ""]


def test_where_all_are_answered_the_new_one_is_told_that_it_is_too_much():
    at = Server(connections=3)
    asks = [at.connected(f"192.0.2.{n}", WHOLE) for n in range(3)]
    new = at.connected("192.0.2.9")
    assert new.transport.written.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert new.transport.ended == "closed"
    assert not any(one.transport.ended for one in asks)


def test_programs_of_this_machine_have_no_limit_of_their_own():
    at = Server(connections=50, client_connections=2)
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        held = [at.connected(host) for _ in range(10)]
        assert not any(one.transport.ended for one in held)


OPENED = st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from([b"", BEGUN, WHOLE])))


@given(opened=OPENED, every=st.integers(2, 9), own=st.integers(1, 5))
def test_limits_hold_whoever_connects_and_who_is_answered_is_never_closed(opened, every, own):
    at = Server(connections=every, client_connections=own)
    for name, sent in opened:
        new = at.connected(f"192.0.2.{ord(name)}", sent)
        open_ones = at.state.connections
        of_it = [one for one in open_ones if one.client == new.client]
        assert len(open_ones) <= every
        assert len(of_it) <= own
        if new.transport.ended:  # then none of its client's others could be closed for it
            assert all(one.cycle is not None for one in of_it)
    for one in at.state.connections:
        assert not one.transport.ended


def test_who_a_client_is():
    assert client_network("192.0.2.7") == client_network("::ffff:192.0.2.7") == "192.0.2.7"
    assert (
        client_network("2001:db8:0:1::1")
        == client_network("2001:db8:0:1:ffff::9")
        == "2001:db8:0:1::/64"
    )
    assert client_network("2001:db8:0:2::1") != client_network("2001:db8:0:1::1")
    assert client_network("fe80::1%eth0") == "fe80::/64"


@pytest.mark.parametrize(("files", "most"), [(1024, 500), (1000, 500), (998, 499), (256, 128)])
def test_connections_are_at_most_half_of_the_files_one_may_open(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert within_files(Limits()).connections == most
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert within_files(Limits()).connections == 500


def half_open(at: Served, number: int) -> list[int]:
    """Connections of several kinds that ask nothing whole, as plain descriptors."""
    return [at.connected(HALF[n % len(HALF)]).detach() for n in range(number)]


def test_half_open_connections_are_closed_and_told():
    with server(Limits(workers=1, client_seconds=1.0)) as at:
        held = [at.connected(sent) for sent in HALF]
        said = [read(one).partition(b"\r\n")[0] for one in held]
        for one in held:
            one.close()
        assert said == [b"", *[b"HTTP/1.1 408 Request Timeout"] * 5]
        until(lambda: not at.connections)


def test_sixty_half_open_connections_lock_nobody_out():
    limits = Limits(workers=1, connections=40, client_connections=5, client_seconds=PATIENCE_S)
    with server(limits) as at:
        held = half_open(at, 60)
        try:
            assert httpx.get(f"{at.address}/search", timeout=PATIENCE_S).status_code == 200
            assert len(at.connections) <= 40 + 1  # a new one
            asking = [at.connected(WHOLE) for _ in range(30)]  # at once, from this machine
            assert all(b"HTTP/1.1 200 OK" in one.recv(2**16) for one in asking)
            for one in asking:
                one.close()
        finally:
            for number in held:
                os.close(number)


@pytest.mark.drawn
def test_two_thousand_half_open_connections_and_fifty_searches_at_once():
    """While fifty clients search, 2,000 connections are held, and opened again in turn."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(6000, before[1]), before[1]))

    def search(_: int) -> int:
        return httpx.get(f"{at.address}/api/search?{SMALL}", timeout=None).status_code

    try:
        limits = Limits(workers=2, seconds=PATIENCE_S)
        with server(limits) as at, ThreadPoolExecutor(50) as clients:
            held = half_open(at, 2000)
            try:
                at.asked("/search", OWN_HOST)  # after which all of them were met
                answers = clients.map(search, range(50))
                for _ in range(40):
                    for one in held[:50]:
                        os.close(one)
                    held = held[50:] + half_open(at, 50)
                    assert at.asked("/search", OWN_HOST).startswith(b"HTTP/1.1 200 ")
                    assert len(at.connections) <= 500 + 1  # a new one
                assert [*answers] == [200] * 50
            finally:
                for one in held:
                    os.close(one)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
