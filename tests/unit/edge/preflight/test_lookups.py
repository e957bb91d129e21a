"""What reviews look up: once for many, again after a while, and never for long."""

import asyncio
from typing import Any

from gpuledger.api.kinds import RESOURCE_CLAIM_TEMPLATES, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError, UnavailableError
from gpuledger.edge.preflight.claims import ClaimReference, Classes
from gpuledger.edge.preflight.lookups import Lookups
from gpuledger.edge.preflight.settings import PreflightSettings

SETTINGS = PreflightSettings(lookup_timeout_s=0.05, found_s=5.0, missing_s=1.0, lookups_kept_max=4)
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


async def classes(found: Lookups, namespace: str) -> Classes:
    _, of_claims = await found.find(namespace, GPUS)
    return of_claims


def templates(client: Answers) -> list[str]:
    return [one for one in client.asked if one.startswith("resourceclaimtemplates")]


async def test_the_pods_of_a_gang_cost_one_request() -> None:
    found, client, _ = lookups(TEMPLATE)
    client.may.clear()
    waiting = [asyncio.create_task(classes(found, "training")) for _ in range(8)]
    await client.is_asked.wait()
    client.may.set()
    assert await asyncio.gather(*waiting) == [CLASSES] * 8
    assert await classes(found, "training") == CLASSES
    assert client.asked == ["namespaces/None/training", "resourceclaimtemplates/training/template"]
    await classes(found, "other")
    assert len(client.asked) == 4, "another namespace has another template"


async def test_what_was_found_counts_for_a_while_and_what_is_missing_for_less() -> None:
    found, client, clock = lookups(TEMPLATE)
    for now_s, asked in ((0.0, 1), (4.9, 1), (5.1, 2)):
        clock.now_s = now_s
        await classes(found, "training")
        assert len(templates(client)) == asked
    missing, client, clock = lookups(NotFoundError("There is none."))
    for now_s, asked in ((0.0, 1), (0.9, 1), (1.1, 2)):
        clock.now_s = now_s
        assert await classes(missing, "training") == {"gpus": None}
        assert len(templates(client)) == asked


async def test_a_slow_or_failing_api_server_keeps_no_review_waiting_and_is_asked_again() -> None:
    found, client, _ = lookups(TEMPLATE)
    client.may.clear()
    assert await classes(found, "training") == {"gpus": None}
    client.may.set()
    assert await classes(found, "training") == CLASSES
    away, client, _ = lookups(UnavailableError("It is away."))
    for number in (1, 2):
        assert await away.find("training", []) == (None, {})
        assert len(client.asked) == number


async def test_only_so_many_are_kept() -> None:
    found, client, _ = lookups(TEMPLATE)
    for namespace in ("a", "b", "c", "c", "b", "a"):
        await classes(found, namespace)
    assert len(templates(client)) == 4, "of three the oldest was given up"


async def test_of_a_namespace_labels_and_annotations_are_kept_alone() -> None:
    metadata = {"name": "training", "labels": {"a": "b"}, "managedFields": [{}]}
    found, client, _ = lookups({"metadata": metadata, "status": {}})
    namespace, _ = await found.find("training", [])
    assert namespace == {"metadata": {"labels": {"a": "b"}, "annotations": {}}}
    assert client.asked == ["namespaces/None/training"]
