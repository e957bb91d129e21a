"""The proxy before a container runtime passes any message of any method byte for byte, in both directions."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.runtimeproxy import cri_pb2
from support.container_runtime import TEST_TIMEOUT_S, ContainerRuntime, RuntimeAnswer, proxied, running_runtime
from support.thoroughness import examples

METHODS: Final = tuple(
    f"/{service.full_name}/{method.name}"
    for service in cri_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
"""Every method of upstream's services."""

WORDS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789", min_size=1, max_size=12)
ANY_METHOD = st.one_of(st.sampled_from(METHODS), st.builds("/{}.v1.{}/{}".format, WORDS, WORDS, WORDS))
FIELDS = st.dictionaries(st.integers(1000, 5000), st.binary(max_size=64), max_size=3)
"""Fields that no build has."""

MESSAGES = st.one_of(
    st.binary(max_size=2000),
    st.builds(
        lambda uid, fields: (
            cri_pb2.RunPodSandboxRequest(
                config=cri_pb2.PodSandboxConfig(metadata=cri_pb2.PodSandboxMetadata(uid=uid))
            ).SerializeToString()
            + b"".join(_field(number, value) for number, value in fields.items())
        ),
        WORDS,
        FIELDS,
    ),
)
METADATA = st.lists(
    st.one_of(
        st.tuples(st.just("x-text"), st.text("abc 123/", min_size=1).map(str.strip).filter(bool)),
        st.tuples(st.just("x-bytes-bin"), st.binary(min_size=1, max_size=50)),
    ),
    max_size=4,
)
CODES = st.sampled_from(list(grpc.StatusCode))


class Conversation(NamedTuple):
    """A call: what the kubelet sends, and how the runtime answers."""

    method: str
    requests: list[bytes]
    answer: RuntimeAnswer
    metadata: list[tuple[str, str | bytes]]


def conversations() -> st.SearchStrategy[Conversation]:
    answers = st.builds(
        RuntimeAnswer,
        messages=st.lists(MESSAGES, max_size=4),
        code=CODES,
        details=st.text(max_size=40),
        initial=METADATA,
        trailing=METADATA,
    )
    return st.builds(Conversation, ANY_METHOD, st.lists(MESSAGES, max_size=4), answers, METADATA)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


@examples(0.5)
@given(st.lists(conversations(), min_size=1, max_size=5))
def test_bytes_in_are_bytes_out(talks: list[Conversation]) -> None:
    asyncio.run(_converse(talks))


def test_upstreams_streams_are_among_the_methods() -> None:
    streaming = {
        method.name
        for service in cri_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.server_streaming
    }
    assert {"GetContainerEvents", "StreamContainers", "StreamImages"} <= streaming


async def _converse(talks: list[Conversation]) -> None:
    with tempfile.TemporaryDirectory(prefix="gpuledger-cri-") as name:
        folder = Path(name)
        async with running_runtime(folder) as runtime, proxied(folder) as kubelet:
            for talk in talks:
                await _call(runtime, kubelet, talk)


async def _call(runtime: ContainerRuntime, kubelet: Any, talk: Conversation) -> None:
    runtime.answers = {talk.method: talk.answer}
    call = kubelet.stream_stream(talk.method)(
        iter(talk.requests), timeout=TEST_TIMEOUT_S, metadata=tuple(talk.metadata)
    )
    received: list[bytes] = []
    try:
        async for message in call:
            received.append(message)  # noqa: PERF401 - what came before an error counts
    except grpc.aio.AioRpcError:
        assert talk.answer.code is not grpc.StatusCode.OK
    seen = runtime.calls[-1]
    assert (seen.method, seen.messages, received) == (talk.method, talk.requests, list(talk.answer.messages))
    assert await call.code() is talk.answer.code
    if talk.answer.code is not grpc.StatusCode.OK:  # the library gives no details of a success
        assert await call.details() == talk.answer.details
    assert _by_key(seen.metadata) == _by_key(talk.metadata)
    assert _by_key(await call.initial_metadata()) == _by_key(talk.answer.initial)
    assert _by_key(await call.trailing_metadata()) == _by_key(talk.answer.trailing)


def _by_key(metadata: Any) -> list[tuple[str, str | bytes]]:
    """Metadata of tests; only the order of what has the same key means anything."""
    return sorted(((key, value) for key, value in metadata if key.startswith("x-")), key=lambda one: one[0])
