"""What the status writer takes next, and how often it may write."""

import asyncio

import pytest

from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.errors import TooManyRequestsError, UnavailableError
from gpuledger.edge.kube.events import PendingQueue
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.statuswriter.cache.objects import HOUR_S, ObjectState
from gpuledger.edge.statuswriter.objects import Key
from gpuledger.edge.statuswriter.throttle.drift_limit import correction_allowed_at_s, note_correction
from gpuledger.runtime.backoff import Backoff
from support.statuswriter_parts import DEVICE, NODE, Clock


def test_drift_of_an_object_is_corrected_so_many_times_an_hour() -> None:
    state, other = ObjectState(), ObjectState()
    for at_s in (0.0, 10.0):
        assert correction_allowed_at_s(state, 2, at_s) == at_s
        note_correction(state, 2, at_s)
    assert correction_allowed_at_s(state, 2, 20.0) == HOUR_S
    assert correction_allowed_at_s(other, 2, 20.0) == 20.0
    assert correction_allowed_at_s(state, 2, HOUR_S) == HOUR_S
    note_correction(state, 2, HOUR_S)
    assert correction_allowed_at_s(state, 2, HOUR_S + 1) == HOUR_S + 10.0


async def test_a_key_is_worked_on_once_and_by_one_worker() -> None:
    clock = Clock()
    queue = WorkQueue[Key](clock)
    queue.add(DEVICE)
    queue.add(DEVICE)
    queue.add(NODE, clock.now_s + 5)
    assert (len(queue), queue.active) == (2, 1)
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
    queue = WorkQueue[Key](Clock())
    queue.add_background(DEVICE)
    queue.add_background(NODE)
    queue.add(NODE)
    queue.add_background(NODE)
    assert (len(queue), queue.active) == (2, 2)
    assert await queue.take() == NODE
    queue.add_background(NODE)
    assert await queue.take() == DEVICE
    queue.done(DEVICE)
    queue.done(NODE)
    assert len(queue) == 0


async def test_a_key_that_is_hastened_waits_for_nothing() -> None:
    clock = Clock()
    queue = WorkQueue[Key](clock)
    queue.add(DEVICE, clock.now_s + 60)
    queue.hasten(DEVICE)
    assert await queue.take() == DEVICE
    queue.hasten(DEVICE)
    queue.add(DEVICE, clock.now_s + 60)
    queue.done(DEVICE)
    assert await queue.take() == DEVICE
    queue.add(DEVICE, clock.now_s + 60)
    queue.done(DEVICE)
    assert (len(queue), queue.active) == (1, 0)
    clock.now_s += 60
    assert await queue.take() == DEVICE


async def test_a_key_for_later_is_not_taken_sooner() -> None:
    clock = Clock()
    queue = WorkQueue[Key](clock)
    queue.add(DEVICE, clock.now_s + 60)
    queue.add(DEVICE)
    assert (len(queue), queue.active) == (1, 0)
    queue.clear()
    assert len(queue) == 0


def test_a_bucket_gives_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    bucket = RateLimiter(2.0, 3, clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5
    clock.now_s += 100
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5


async def test_a_server_in_trouble_gets_one_request_at_a_time() -> None:
    clock = Clock()
    breaker = CircuitBreaker(RateLimiter(1000.0, 1000, clock), Backoff(first_s=0.01, max_s=0.01), lambda: 0.0, clock)
    with pytest.raises(UnavailableError):
        async with breaker.request():
            raise UnavailableError("no")
    inside = most = 0

    async def send() -> None:
        nonlocal inside, most
        async with breaker.request():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(send() for _ in range(5)))
    assert most == 1


async def test_requests_that_fail_together_count_once_and_retry_after_is_kept() -> None:
    clock = Clock()
    breaker = CircuitBreaker(RateLimiter(1000.0, 1000, clock), Backoff(first_s=1.0, max_s=64.0), lambda: 0.0, clock)
    go = asyncio.Event()

    async def send() -> None:
        async with breaker.request():
            await go.wait()
            clock.now_s += 1
            raise TooManyRequestsError("wait", 20.0)

    sending = [asyncio.create_task(send()) for _ in range(5)]
    await asyncio.sleep(0.01)
    go.set()
    await asyncio.gather(*sending, return_exceptions=True)
    assert breaker.retry_at_s - 1001.0 == pytest.approx(20.0)


async def test_waiting_names_are_bounded() -> None:
    waiting = PendingQueue(2)
    assert [waiting.add(name) for name in "aabc"] == [None, None, None, "a"]
    assert [await waiting.take(), await waiting.take()] == ["b", "c"]
