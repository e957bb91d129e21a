"""What reviews look up: once for many, again after a while, and never for long."""

import asyncio
from typing import Any

from gpuledger.api.kinds import RESOURCE_CLAIM_TEMPLATES, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError, UnavailableError
from gpuledger.edge.preflight.claims import ClaimReference
from gpuledger.edge.preflight.lookups import Lookups
from gpuledger.edge.preflight.settings import PreflightSettings

SETTINGS = PreflightSettings(lookup_timeout_s=0.05, found_s=5.0, missing_s=1.0, lookups_kept_max=2)
GPUS = [ClaimReference("gpus", RESOURCE_CLAIM_TEMPLATES, "template")]
TEMPLATE = {"spec": {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}}}
CLASSES = {"gpus": frozenset({"gpu.nvidia.com"})}


class Answers(KubeClient):
    """An API server that answers all requests in one way, once it may, and counts them."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.is_asked = asyncio.Event()
        self.may = asyncio.Event()
        self.may.set()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Any:
        self.asked.append(f"{resource.plural}/{namespace}/{name}")
        self.is_asked.set()
        await self.may.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lookups(answer: dict[str, Any] | Exception) -> tuple[Lookups, Answers, Clock]:
    client, clock = Answers(answer), Clock()
    return Lookups(client, SETTINGS, clock), client, clock


async def test_the_pods_of_a_gang_cost_one_request() -> None:
    found, client, _ = lookups(TEMPLATE)
    client.may.clear()
    waiting = [asyncio.create_task(found.classes(GPUS, "training")) for _ in range(8)]
    await client.is_asked.wait()
    client.may.set()
    assert await asyncio.gather(*waiting) == [CLASSES] * 8
    assert await found.classes(GPUS, "training") == CLASSES
    assert client.asked == ["resourceclaimtemplates/training/template"]
    await found.classes(GPUS, "other")
    assert len(client.asked) == 2, "another namespace has another template"


async def test_what_was_found_counts_for_a_while_and_what_is_missing_for_less() -> None:
    found, client, clock = lookups(TEMPLATE)
    for now_s, asked in ((0.0, 1), (4.9, 1), (5.1, 2)):
        clock.now_s = now_s
        await found.classes(GPUS, "training")
        assert len(client.asked) == asked
    missing, client, clock = lookups(NotFoundError("There is none."))
    for now_s, asked in ((0.0, 1), (0.9, 1), (1.1, 2)):
        clock.now_s = now_s
        assert await missing.classes(GPUS, "training") == {"gpus": None}
        assert len(client.asked) == asked


async def test_a_slow_or_failing_api_server_keeps_no_review_waiting_and_is_asked_again() -> None:
    found, client, _ = lookups(TEMPLATE)
    client.may.clear()
    assert await found.classes(GPUS, "training") == {"gpus": None}
    client.may.set()
    assert await found.classes(GPUS, "training") == CLASSES
    away, client, _ = lookups(UnavailableError("It is away."))
    for number in (1, 2):
        assert await away.namespace("training") is None
        assert len(client.asked) == number


async def test_only_so_many_are_kept() -> None:
    found, client, _ = lookups(TEMPLATE)
    for namespace in ("a", "b", "c", "c", "b", "a"):
        await found.classes(GPUS, namespace)
    assert len(client.asked) == 4, "of three the oldest was given up"


async def test_of_a_namespace_labels_and_annotations_are_kept_alone() -> None:
    metadata = {"name": "training", "labels": {"a": "b"}, "managedFields": [{}]}
    found, client, _ = lookups({"metadata": metadata, "status": {}})
    assert await found.namespace("training") == {"metadata": {"labels": {"a": "b"}, "annotations": {}}}
    assert client.asked == ["namespaces/None/training"]
