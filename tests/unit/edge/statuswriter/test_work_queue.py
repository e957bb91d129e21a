"""What the status writer takes next, and how often it may: a queue, a bucket, a gate, and what is undone."""

import asyncio

import pytest

from gpuledger.edge.kube.errors import TooManyRequestsError, UnavailableError
from gpuledger.edge.statuswriter.cache.pending import Waiting
from gpuledger.edge.statuswriter.reconcile.work_queue import Queue
from gpuledger.edge.statuswriter.throttle.drift import HOUR_S, Undos
from gpuledger.edge.statuswriter.throttle.rate_limiter import Bucket, Gate
from gpuledger.runtime.backoff import Backoff
from support.statuswriter_parts import DEVICE, NODE, Clock


def test_so_many_undos_an_hour() -> None:
    undos = Undos(2)
    for at_s in (0.0, 10.0):
        assert undos.allowed_at(DEVICE, at_s) == at_s
        undos.note(DEVICE, at_s)
    assert undos.allowed_at(DEVICE, 20.0) == HOUR_S
    assert undos.allowed_at(NODE, 20.0) == 20.0
    assert undos.allowed_at(DEVICE, HOUR_S) == HOUR_S
    undos.note(DEVICE, HOUR_S)
    assert undos.allowed_at(DEVICE, HOUR_S + 1) == HOUR_S + 10.0


async def test_a_key_is_looked_at_once_and_by_one() -> None:
    clock = Clock()
    queue = Queue(clock)
    queue.add(DEVICE)
    queue.add(DEVICE)
    queue.add(NODE, clock.now_s + 5)
    assert (len(queue), queue.waiting) == (2, 1)
    assert await queue.take() == DEVICE
    queue.add(DEVICE)
    taken = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not taken.done()
    queue.done(DEVICE)
    assert await taken == DEVICE
    queue.done(DEVICE)
    clock.now_s += 5
    assert await queue.take() == NODE
    queue.done(NODE)
    assert len(queue) == 0


async def test_what_changed_goes_before_what_is_only_gone_through() -> None:
    queue = Queue(Clock())
    queue.add_patient(DEVICE)
    queue.add_patient(NODE)
    queue.add(NODE)
    queue.add_patient(NODE)
    assert (len(queue), queue.waiting) == (2, 2)
    assert await queue.take() == NODE
    queue.add_patient(NODE)
    assert await queue.take() == DEVICE
    queue.done(DEVICE)
    queue.done(NODE)
    assert len(queue) == 0


async def test_what_waits_for_later_is_not_looked_at_sooner() -> None:
    clock = Clock()
    queue = Queue(clock)
    queue.add(DEVICE, clock.now_s + 60)
    queue.add(DEVICE)
    assert (len(queue), queue.waiting) == (1, 0)
    queue.clear()
    assert len(queue) == 0


def test_a_bucket_gives_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    bucket = Bucket(2.0, 3, clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5
    clock.now_s += 100
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5


async def test_a_server_in_trouble_is_asked_by_one_at_a_time() -> None:
    clock = Clock()
    gate = Gate(Bucket(1000.0, 1000, clock), Backoff(first_s=0.01, max_s=0.01), lambda: 0.0, clock)
    with pytest.raises(UnavailableError):
        async with gate.passing():
            raise UnavailableError("no")
    inside = most = 0

    async def ask() -> None:
        nonlocal inside, most
        async with gate.passing():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(ask() for _ in range(5)))
    assert most == 1


async def test_requests_that_fail_together_count_once_and_retry_after_is_kept() -> None:
    clock = Clock()
    gate = Gate(Bucket(1000.0, 1000, clock), Backoff(first_s=1.0, max_s=64.0), lambda: 0.0, clock)
    go = asyncio.Event()

    async def ask() -> None:
        async with gate.passing():
            await go.wait()
            clock.now_s += 1
            raise TooManyRequestsError("wait", 20.0)

    asked = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(0.01)
    go.set()
    await asyncio.gather(*asked, return_exceptions=True)
    assert gate.open_at_s - 1001.0 == pytest.approx(20.0)


async def test_waiting_names_are_bounded() -> None:
    waiting = Waiting(2)
    assert [waiting.add(name) for name in "aabc"] == [None, None, None, "a"]
    assert [await waiting.take(), await waiting.take()] == ["b", "c"]
