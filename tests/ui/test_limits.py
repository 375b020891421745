"""What the server keeps, lets wait and works on: worked numbers of every limit."""

from __future__ import annotations

import resource
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import OWN_HOST

from planner.errors import SearchSpaceError
from planner.ui import worker_pool as pools
from planner.ui.question import Question
from planner.ui.request_limits import Limits, RequestRefused
from planner.ui.worker_pool import Answer, AnswerCache, Pool, answer


def _question(number: int) -> Question:
    return Question(command="search", workload="train", fields={"model": str(number)})


def _kept(**limits: int) -> AnswerCache:
    return AnswerCache(Pool(Limits(workers=0, **limits)))


def _is_answered(kept: AnswerCache, number: int, size: int) -> None:
    """A question is asked and gets an answer of so many bytes, of its three parts."""
    job = kept.ask(_question(number), "a").job
    job.future.set_result(Answer(title="", object="o", content="c" * (size - 1)))
    kept.settle()


def _has(kept: AnswerCache, *numbers: int) -> list[bool]:
    """Which questions have a kept answer, in an order that leaves the last asked for last."""
    return [kept.answer(_question(n)) is not None for n in numbers]


def test_answers_are_kept_up_to_their_bytes_and_the_longest_unasked_goes_first():
    kept = _kept(kept_bytes=100)
    _is_answered(kept, 1, 60)
    _is_answered(kept, 2, 40)
    assert _has(kept, 2, 1) == [True, True]  # 100 of 100; asked for last: 1
    _is_answered(kept, 3, 3)
    assert _has(kept, 1, 2, 3) == [True, False, True]  # 103, so that 2 goes: 63
    _is_answered(kept, 4, 37)
    assert _has(kept, 1, 3, 4) == [True, True, True]  # 100 again


def test_an_answer_beyond_all_kept_bytes_is_kept_until_the_next():
    kept = _kept(kept_bytes=100)
    _is_answered(kept, 1, 101)
    assert _has(kept, 1) == [True]
    _is_answered(kept, 2, 3)
    assert _has(kept, 1, 2) == [False, True]


def test_an_answer_that_is_given_again_counts_once():
    kept = _kept(kept_bytes=100)
    for size in (50, 50, 60):  # as of two clients that asked at once
        jobs = [kept.ask(_question(1), client).job for client in ("a", "b")]
        for job in jobs:
            job.future.set_result(Answer(title="", object="o" * size, content=""))
        kept.settle()
    _is_answered(kept, 2, 40)
    assert _has(kept, 1, 2) == [True, True]


ANSWERED = st.lists(st.tuples(st.integers(1, 6), st.integers(3, 60), st.booleans()), max_size=20)


@given(ANSWERED)
def test_the_latest_answers_that_have_room_together_are_kept(answered):
    kept, latest = _kept(kept_bytes=100), {}
    for number, size, is_asked in answered:
        _is_answered(kept, number, size)
        latest.pop(number, None)
        latest[number] = size
        while sum(latest.values()) > 100 and len(latest) > 1:
            del latest[next(iter(latest))]
        if is_asked and 1 in latest:
            assert kept.answer(_question(1))
            latest[1] = latest.pop(1)
    assert {n for n in range(1, 7) if kept.answer(_question(n))} == set(latest)


def test_two_hundred_faults_are_kept():
    kept = _kept(waiting=1000)
    for number in range(201):
        job = kept.ask(_question(number), "a").job
        job.future.set_exception(SearchSpaceError("wrong"))
        kept.settle()
    assert _has(kept, 0, 1, 200) == [False, True, True]


def test_that_it_took_too_long_is_told_once():
    kept = _kept()
    kept.ask(_question(1), "a").job.future.set_exception(RequestRefused("too long", 504))
    kept.settle()
    assert _has(kept, 1, 1) == [True, False]


def test_what_nobody_asked_for_in_thirty_seconds_is_cancelled(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    kept = _kept()
    left, watched, again = (kept.ask(_question(n), "a") for n in range(3))
    watched.watchers = 1
    now += 20
    assert kept.ask(_question(2), "a") is again
    now += 10
    kept.settle()
    assert kept.find(left.name) is left
    now += 0.001
    kept.settle()
    assert kept.find(left.name) is None
    found = [one.job.is_cancelled for one in (left, watched, again)]
    assert found == [True, False, False]


def test_one_client_asks_the_same_once_and_others_on_their_own():
    kept = _kept()
    mine = kept.ask(_question(1), "a")
    assert kept.ask(_question(1), "a") is mine
    assert kept.ask(_question(1), "b") is not mine
    assert kept.ask(_question(2), "a") is not mine


def test_so_many_wait_and_the_next_is_refused_until_one_is_cancelled():
    pool = Pool(Limits(workers=0, waiting=3))
    jobs = [pool.submit(_question(n), "a") for n in range(3)]
    assert [pool.before(job) for job in jobs] == [0, 1, 2]
    with pytest.raises(RequestRefused, match="3 questions are waiting") as refused:
        pool.submit(_question(3), "b")
    assert refused.value.status == 503
    jobs[1].cancel()
    assert pool.before(jobs[2]) == 1
    last = pool.submit(_question(3), "b")
    assert pool.before(last) == 2
    assert jobs[1].future.exception().status == 409


def test_the_client_with_the_fewest_that_are_worked_on_is_next():
    pool = Pool(Limits(workers=0))
    jobs = [pool.submit(_question(n), client) for n, client in enumerate("aaabb")]
    order = [jobs.index(pool._next()) for _ in jobs]  # as so many workers take them
    assert order == [0, 3, 1, 4, 2]


class Process:
    """A worker process and its pipe, without either: it says what it is to, and time passes."""

    is_lost = False

    def __init__(self, monkeypatch, said):
        self.began, self.ended, self.now, self._said = 0, 0, 0.0, said
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def Pipe(self):
        return self, SimpleNamespace(close=lambda: None)

    def Process(self, **_):
        self.began += 1
        return SimpleNamespace(
            start=lambda: None, is_alive=lambda: True, kill=self.kill, join=list, close=list
        )

    def kill(self):
        self.ended += 1

    def poll(self, seconds):
        self.now += seconds
        return bool(self._said)

    def recv(self):
        said = self._said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    def send(self, question):
        if self.is_lost:
            raise BrokenPipeError

    def close(self):
        pass


def _work(process, num=1, cancelled=False, **limits):
    """The jobs of a worker with that process."""
    worker = pools._Worker(process, None, Limits(**limits))
    jobs = [pools.Job(question=_question(n), client="a") for n in range(num)]
    for job in jobs:
        job.is_cancelled = cancelled
        worker.work(job)
    return jobs


def test_work_ends_after_its_seconds(monkeypatch):
    process = Process(monkeypatch, [])
    (job,) = _work(process, seconds=60.0)
    error = job.future.exception()
    assert (error.status, "more than 60 s" in str(error)) == (504, True)
    assert 60 < process.now < 60.11
    assert (process.began, process.ended) == (1, 1)


def test_work_that_nobody_waits_for_ends_at_once(monkeypatch):
    process = Process(monkeypatch, [])
    (job,) = _work(process, cancelled=True)
    assert job.future.exception().status == 409
    assert (process.now, process.ended) == (0.0, 1)


def test_progress_is_told_until_the_answer(monkeypatch):
    process = Process(monkeypatch, [("done", (1, 4)), ("done", (3, 4)), ("answer", "it")])
    (job,) = _work(process)
    assert (job.done, job.total, job.future.result(), process.ended) == (3, 4, "it", 0)


def test_a_worker_is_replaced_after_so_many_answers(monkeypatch):
    process = Process(monkeypatch, [("answer", n) for n in range(7)])
    jobs = _work(process, num=7, tasks=3)
    assert [job.future.result() for job in jobs] == [*range(7)]
    assert (process.began, process.ended) == (3, 2)


def test_a_worker_that_is_lost_is_told_and_replaced(monkeypatch):
    process = Process(monkeypatch, [EOFError(), ("answer", 1)])
    first, second = _work(process, num=2)
    assert first.future.exception().status == 500
    assert "out of memory" in str(first.future.exception())
    assert (second.future.result(), process.began) == (1, 2)


def test_a_worker_that_was_lost_before_it_was_asked_is_told(monkeypatch):
    process = Process(monkeypatch, [EOFError()])
    process.is_lost = True
    (job,) = _work(process)
    assert "out of memory" in str(job.future.exception())


def test_a_worker_has_so_much_memory_and_tells_that_it_is_not_enough(monkeypatch):
    given = []
    monkeypatch.setattr(resource, "setrlimit", lambda *what: given.append(what))
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def none_left(*_):
        raise MemoryError

    class Pipe:
        asked, said = [(_question(1), "")], []

        def recv(self):
            if not self.asked:
                raise EOFError
            return self.asked.pop()

        def send(self, what):
            self.said.append(what)

    monkeypatch.setattr(pools, "answer", none_left)
    pools._worker_loop(Pipe(), None, Limits(memory_bytes=12345))
    assert given == [(resource.RLIMIT_AS, (12345, 12345))]
    ((kind, error),) = Pipe.said
    assert (kind, error.status, "Not enough memory" in str(error)) == ("error", 413, True)


SMALL = Question.of("search", [("model", "llama-7b"), ("num_gpus", "8"), ("space", "small")])
ONE = Question.of("estimate", [("model", "llama-7b"), ("num_gpus", "8")])


def _answer(question: Question, told: list[int] | None = None, **limits: int) -> Answer:
    return answer(question, None, Limits(**limits), lambda _, total: (told or []).append(total))


def test_a_search_has_so_many_configurations(monkeypatch):
    monkeypatch.setattr("planner.ui.run_commands.result_page", _too_late)
    with pytest.raises(RequestRefused, match="here a search has at most 1") as refused:
        _answer(SMALL, rows=1)
    num = int(str(refused.value).split()[2].replace(",", ""))
    with pytest.raises(RequestRefused, match=f"That is {num:,} configurations") as refused:
        _answer(SMALL, rows=num - 1)
    assert refused.value.status == 413
    with pytest.raises(_Searched):
        _answer(SMALL, rows=num)


class _Searched(Exception):
    pass


def _too_late(*_: object) -> None:
    raise _Searched


def test_an_answer_has_so_many_bytes(monkeypatch):
    whole = _answer(ONE)
    assert whole.size == len(whole.object) + len(whole.content)
    monkeypatch.setattr("planner.ui.run_commands.result_text", lambda _: whole.object)
    assert _answer(ONE, answer_bytes=whole.size).size == whole.size
    for most in (whole.size - 1, len(whole.object) - 1):
        with pytest.raises(RequestRefused, match="narrow the question") as refused:
            _answer(ONE, answer_bytes=most)
        assert refused.value.status == 413
    monkeypatch.setattr("planner.ui.run_commands.result_page", _too_late)
    with pytest.raises(RequestRefused):  # before a page is made of it
        _answer(ONE, answer_bytes=len(whole.object) - 1)


@pytest.mark.parametrize(("more", "status"), [(0, b"400"), (1, b"413")])
def test_a_question_has_16_kib(served, more, status):
    body = b" " * (16 * 2**10 + more)
    assert served.asked("/api/search", OWN_HOST, method="POST", body=body).split()[1] == status
    path = "/api/search?x=" + "a" * (16 * 2**10 - 2 + more)
    assert served.asked(path, OWN_HOST).split()[1] == status


def test_a_long_question_may_come_in_pieces(served):
    head = b"GET /api/search?x=" + b"a" * 16_382 + b" HTTP/1.1\r\n"
    with served.connected(head) as asks:
        asks.sendall(b"x: " + b"y" * 40_000 + b"\r\n")
        asks.sendall(f"{OWN_HOST}\r\n\r\n".encode())
        assert asks.recv(100).split()[1] == b"400"


def test_as_many_are_worked_on_as_there_are_workers():
    assert len(Pool(Limits(workers=0))._threads) == 0
    pool = Pool(Limits(workers=3), Path("unused"))
    try:
        assert len(pool._threads) == 3
    finally:
        pool.close()
    with pytest.raises(RequestRefused):
        pool.submit(_question(1), "a")
