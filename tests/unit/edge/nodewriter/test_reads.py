"""Nodes that are asked for at about the same time are read by one request, where their labels are their names."""

import asyncio
from typing import Any, cast

import pytest

from gpuledger.api.labels import HOSTNAME
from gpuledger.edge.kube.circuit_breaker import CircuitBreaker, RateLimiter
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import ForbiddenError, KubeError, NotFoundError, UnavailableError
from gpuledger.edge.nodewriter.reads import LABEL_LENGTH_MAX, FoundNode, NodeReads
from gpuledger.runtime.backoff import Backoff

NAMES = tuple(f"n{number}" for number in range(5))


class FakeClient:
    """Has Nodes by name, with the labels that they are found by, and says what was requested."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.requests: list[str] = []
        self.error: KubeError | None = None
        self.requested = asyncio.Event()

    async def get(self, _resource: object, name: str) -> Object:
        self.requests.append(name)
        await asyncio.sleep(0)
        if name not in self.labels:
            raise NotFoundError("There is none.", 404)
        return self._node(name)

    async def list_cached(self, _resource: object, selection: Selection) -> list[Object]:
        self.requests.append(selection.labels)
        self.requested.set()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        names = selection.labels.partition("(")[2].rstrip(")").split(",")
        return [self._node(name) for name, label in self.labels.items() if label in names]

    def _node(self, name: str) -> Object:
        return {"metadata": {"name": name, "labels": {HOSTNAME: self.labels[name]}}}


def reads(client: FakeClient) -> NodeReads:
    now = asyncio.get_running_loop().time
    breaker = CircuitBreaker(RateLimiter(1e6, 1_000, now), Backoff(0.001, 0.001), lambda: 0.0, now)
    return NodeReads(cast("KubeClient", client), breaker)


async def together(reading: NodeReads, *names: str) -> dict[str, FoundNode]:
    found = await asyncio.gather(*map(reading.together, names))
    assert [one.node["metadata"]["name"] for one in found] == list(names)
    return dict(zip(names, found, strict=True))


async def test_what_several_ask_for_at_once_is_one_request() -> None:
    client = FakeClient({name: name for name in NAMES})
    found = await together(reads(client), *NAMES)
    assert client.requests == [f"{HOSTNAME} in ({','.join(NAMES)})"]
    assert not any(one.is_newest for one in found.values())


async def test_what_is_asked_for_meanwhile_is_the_next_request() -> None:
    client = FakeClient({name: name for name in NAMES})
    reading = reads(client)
    first = asyncio.create_task(together(reading, *NAMES[:2]))
    await client.requested.wait()
    await together(reading, *NAMES[2:])
    await first
    assert [request.partition(" (")[2] for request in client.requests] == ["n0,n1)", "n2,n3,n4)"]


async def test_who_asks_alone_gets_the_newest_version() -> None:
    client = FakeClient({name: name for name in NAMES})
    found = await together(reads(client), "n1")
    assert (client.requests, found["n1"].is_newest) == (["n1"], True)


async def test_a_node_with_another_label_or_a_long_name_is_read_by_its_name() -> None:
    long = "n" * (LABEL_LENGTH_MAX + 1)
    client = FakeClient({"n0": "n0", "n1": "host-1", "n2": "n2", long: long})
    found = await together(reads(client), "n0", "n1", "n2", long)
    assert {name for name, one in found.items() if one.is_newest} == {"n1", long}
    assert client.requests.count(f"{HOSTNAME} in (n0,n1,n2)") == 1
    assert len(client.requests) == len(found) - 1


async def test_a_label_that_is_the_name_of_another_node_gives_nobody_the_wrong_one() -> None:
    client = FakeClient({"n0": "n0", "n1": "n2", "n2": "n1"})
    found = await together(reads(client), "n0", "n1", "n2")
    assert not any(one.is_newest for one in found.values())


@pytest.mark.parametrize("error", [None, ForbiddenError("No right.", 403)])
async def test_where_no_list_helps_each_is_read_alone_from_then_on(error: KubeError | None) -> None:
    client = FakeClient({name: f"host-{name}" for name in NAMES})
    client.error = error
    reading = reads(client)
    for _ in range(2):
        found = await together(reading, *NAMES)
        assert all(one.is_newest for one in found.values())
    assert len([request for request in client.requests if " in " in request]) == 1


async def test_trouble_of_the_server_is_the_askers_own_and_lists_go_on() -> None:
    client = FakeClient({name: name for name in NAMES})
    client.error = UnavailableError("Away.")
    reading = reads(client)
    answers: list[Any] = await asyncio.gather(*map(reading.together, NAMES), return_exceptions=True)
    assert [type(one) for one in answers] == [UnavailableError, *[FoundNode] * (len(NAMES) - 1)]
    client.error = None
    await together(reading, *NAMES)
    assert client.requests[-1].startswith(HOSTNAME)


async def test_a_node_that_is_gone_is_the_askers_own_error() -> None:
    client = FakeClient({name: name for name in NAMES})
    answers: list[Any] = await asyncio.gather(*map(reads(client).together, ("n0", "n9")), return_exceptions=True)
    assert [type(one) for one in answers] == [FoundNode, NotFoundError]
