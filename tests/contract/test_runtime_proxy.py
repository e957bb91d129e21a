"""What the kubelet and its runtime see of each other through the proxy: everything, as it is."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpuledger.runtimeproxy.errors import CallRefusedError
from gpuledger.runtimeproxy.forwarding import ChangedMessage
from gpuledger.runtimeproxy.traffic import Traffic
from support.container_runtime import (
    CREATE,
    EVENTS,
    TEST_TIMEOUT_S,
    VERSION,
    ContainerRuntime,
    RuntimeAnswer,
    kubelet_of,
    proxied,
    running_runtime,
    unary,
)
from support.waiting import eventually

UNKNOWN = "/runtime.v9.FutureService/DoWhatNobodyKnows"


@pytest.fixture
def folder() -> Any:
    """A short path: a socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gpuledger-cri-") as name:
        yield Path(name)


@pytest.fixture
async def runtime(folder: Path) -> AsyncIterator[ContainerRuntime]:
    async with running_runtime(folder) as running:
        yield running


async def test_status_metadata_and_deadline_pass_both_ways(folder: Path, runtime: ContainerRuntime) -> None:
    details = bytes(range(256))
    runtime.answers[UNKNOWN] = RuntimeAnswer(
        messages=(),
        code=grpc.StatusCode.NOT_FOUND,
        details='no container "ä"',
        initial=(("x-first", "1"),),
        trailing=(("x-last", "2"), ("grpc-status-details-bin", details)),
    )
    sent = (("x-trace", "abc"), ("x-trace", "def"), ("x-raw-bin", details))
    async with proxied(folder) as kubelet:
        call = kubelet.unary_unary(UNKNOWN)(b"\xff\x00", timeout=TEST_TIMEOUT_S, metadata=sent)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
    error = refused.value
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, 'no container "ä"')
    assert ("x-first", "1") in tuple(error.initial_metadata())
    assert {("x-last", "2"), ("grpc-status-details-bin", details)} <= set(error.trailing_metadata())
    (seen,) = runtime.calls
    assert seen.messages == [b"\xff\x00"]
    assert tuple(one for one in seen.metadata if one[0].startswith("x-")) == sent
    assert seen.time_remaining_s is not None
    assert round(seen.time_remaining_s) <= TEST_TIMEOUT_S, "gRPC rounds a deadline up"


async def test_a_call_without_deadline_has_none_behind_the_proxy(folder: Path, runtime: ContainerRuntime) -> None:
    async with proxied(folder) as kubelet:
        await unary(kubelet, VERSION, timeout=None)
    assert runtime.calls[0].time_remaining_s is None


async def test_a_deadline_that_passes_ends_the_call_on_both_sides(folder: Path, runtime: ContainerRuntime) -> None:
    runtime.answers[VERSION] = RuntimeAnswer(messages=(), hold=asyncio.Event())
    async with proxied(folder) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await unary(kubelet, VERSION, timeout=0.2)
        await eventually(lambda: _is(runtime.calls[0].cancelled))
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_who_cancels_a_stream_cancels_it_in_the_runtime(folder: Path, runtime: ContainerRuntime) -> None:
    runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"one", b"two"), hold=asyncio.Event())
    traffic = Traffic()
    async with proxied(folder, traffic=traffic) as kubelet:
        call = kubelet.unary_stream(EVENTS)(b"")
        assert [await call.read(), await call.read()] == [b"one", b"two"]
        assert traffic.under_way[EVENTS] == 1
        call.cancel()
        await eventually(lambda: _is(runtime.calls[0].cancelled))
        await eventually(lambda: _is(not traffic.under_way[EVENTS]))


async def test_a_message_passes_as_soon_as_it_is_there(folder: Path, runtime: ContainerRuntime) -> None:
    """Events of containers must not wait for the next one."""
    go_on = asyncio.Event()
    runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"now",), hold=go_on, trailing=(("x-end", "yes"),))
    async with proxied(folder) as kubelet:
        call = kubelet.unary_stream(EVENTS)(b"", timeout=TEST_TIMEOUT_S)
        assert await call.read() == b"now"
        go_on.set()
        assert await call.read() is grpc.aio.EOF
        assert ("x-end", "yes") in tuple(await call.trailing_metadata())


async def test_messages_of_both_streams_keep_their_order(folder: Path, runtime: ContainerRuntime) -> None:
    messages = tuple(b"%d" % number for number in range(300))
    runtime.answers[UNKNOWN] = RuntimeAnswer(messages=messages)
    async with proxied(folder) as kubelet:
        call = kubelet.stream_stream(UNKNOWN)(iter(messages), timeout=TEST_TIMEOUT_S)
        assert [one async for one in call] == list(messages)
    assert runtime.calls[0].messages == list(messages)


async def test_messages_as_large_as_kubelets_take_pass(folder: Path, runtime: ContainerRuntime) -> None:
    large = bytes(16 * 1024 * 1024)
    runtime.answers[VERSION] = RuntimeAnswer(messages=(large,))
    async with proxied(folder) as kubelet:
        assert await unary(kubelet, VERSION, large) == large
    assert runtime.calls[0].messages == [large]


async def test_metadata_beyond_the_usual_limit_passes(folder: Path, runtime: ContainerRuntime) -> None:
    """The library refuses metadata from 8 KiB on by itself; a runtime's status details may have more."""
    details = b"d" * 100_000
    runtime.answers[VERSION] = RuntimeAnswer(code=grpc.StatusCode.UNKNOWN, trailing=(("x-details-bin", details),))
    async with proxied(folder) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(kubelet, VERSION, metadata=(("x-large", "v" * 50_000),))
    assert ("x-details-bin", details) in tuple(refused.value.trailing_metadata())
    assert ("x-large", "v" * 50_000) in runtime.calls[0].metadata


async def test_many_streams_and_calls_pass_at_a_time(folder: Path, runtime: ContainerRuntime) -> None:
    go_on = asyncio.Event()
    runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"first",), hold=go_on)
    runtime.answers[VERSION] = lambda message: message + b"!"
    async with proxied(folder) as kubelet:
        streams = [kubelet.unary_stream(EVENTS)(b"", timeout=TEST_TIMEOUT_S) for _ in range(200)]
        assert {await one.read() for one in streams} == {b"first"}
        answers = await asyncio.gather(*(unary(kubelet, VERSION, b"%d" % number) for number in range(200)))
        assert answers == [b"%d!" % number for number in range(200)]
        go_on.set()
        assert {await one.read() for one in streams} == {grpc.aio.EOF}


async def test_a_runtime_that_is_away_is_unavailable_and_comes_back(folder: Path, runtime: ContainerRuntime) -> None:
    async with proxied(folder) as kubelet:
        await unary(kubelet, VERSION)
        await runtime.stop()
        with pytest.raises(grpc.aio.AioRpcError) as away:
            await unary(kubelet, VERSION)
        assert away.value.code() is grpc.StatusCode.UNAVAILABLE
        await runtime.start()
        await eventually(lambda: _answers(kubelet))


async def test_a_stream_ends_with_the_runtime(folder: Path, runtime: ContainerRuntime) -> None:
    runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"one",), hold=asyncio.Event())
    async with proxied(folder) as kubelet:
        call = kubelet.unary_stream(EVENTS)(b"", timeout=TEST_TIMEOUT_S)
        await call.read()
        await runtime.stop()
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()


async def test_a_changed_message_reaches_the_runtime_and_success_is_reported(
    folder: Path, runtime: ContainerRuntime
) -> None:
    succeeded: list[str] = []

    async def change(message: bytes) -> ChangedMessage:
        async def on_success() -> None:
            succeeded.append(message.decode())

        return ChangedMessage(message.upper(), on_success)

    runtime.answers[CREATE] = lambda message: message[::-1]
    async with proxied(folder, {CREATE: change}) as kubelet:
        assert await unary(kubelet, CREATE, b"abc") == b"CBA"
        assert await unary(kubelet, VERSION, b"abc") == b""
        await eventually(lambda: _is(succeeded == ["abc"]))
        runtime.answers[CREATE] = RuntimeAnswer(messages=(), code=grpc.StatusCode.INTERNAL)
        with pytest.raises(grpc.aio.AioRpcError):
            await unary(kubelet, CREATE, b"def")
    assert succeeded == ["abc"]
    assert [call.messages for call in runtime.calls] == [[b"ABC"], [b"abc"], [b"DEF"]]


async def test_a_report_that_fails_or_takes_long_holds_up_no_answer(folder: Path, runtime: ContainerRuntime) -> None:
    go_on, ended = asyncio.Event(), []

    async def change(message: bytes) -> ChangedMessage:
        async def on_success() -> None:
            await go_on.wait()
            ended.append(message)
            raise OSError("the disk is full")

        return ChangedMessage(message, on_success)

    async with proxied(folder, {CREATE: change}) as kubelet:
        await unary(kubelet, CREATE, b"abc")
        assert ended == []
        go_on.set()
    assert ended == [b"abc"], "the end of the proxy waits for it"


async def test_a_refused_message_never_reaches_the_runtime(folder: Path, runtime: ContainerRuntime) -> None:
    async def refuse(message: bytes) -> ChangedMessage:
        raise CallRefusedError("Why, and what to do.")

    traffic = Traffic()
    async with proxied(folder, {CREATE: refuse}, traffic=traffic) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await unary(kubelet, CREATE, b"abc")
    assert (refused.value.code(), refused.value.details()) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "Why, and what to do.",
    )
    assert (runtime.calls, traffic.refused) == ([], 1)


async def test_the_end_waits_for_calls_and_not_for_endless_streams(folder: Path, runtime: ContainerRuntime) -> None:
    go_on = asyncio.Event()
    runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"one",), hold=asyncio.Event())
    runtime.answers[VERSION] = RuntimeAnswer(messages=(b"done",), hold=go_on)
    async with kubelet_of(folder / "proxy.sock") as kubelet:
        async with proxied(folder, drain_max_s=TEST_TIMEOUT_S):
            events = kubelet.unary_stream(EVENTS)(b"", timeout=TEST_TIMEOUT_S)
            await events.read()
            pulling = asyncio.create_task(unary(kubelet, VERSION))
            await eventually(lambda: _is(len(runtime.calls) == 2))
            asyncio.get_running_loop().call_later(0.2, go_on.set)
        assert await pulling == b"done"
        with pytest.raises(grpc.aio.AioRpcError):
            await events.read()


async def _is(holds: bool) -> bool:
    return holds


async def _answers(kubelet: grpc.aio.Channel) -> bool:
    try:
        await unary(kubelet, VERSION)
    except grpc.aio.AioRpcError:
        return False
    return True
