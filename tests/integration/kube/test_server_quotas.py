"""Quotas on units of pools, as the embedded API server counts and keeps them."""

import asyncio
from typing import Any, Final

import pytest

from gpuledger.api.kinds import NAMESPACES, PODS
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import ForbiddenError
from support.admission import pod_with
from support.examples import QUOTAS
from support.kube_fleet import create
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("quotas are counted by the controller manager")

UNITS: Final = "cluster.gpu.deckhouse.io/a"
NAME: Final = f"requests.{UNITS}"


def pod(name: str, units: str = "1") -> dict[str, Any]:
    given = pod_with(UNITS, amount=units, namespace="team")
    return given | {"metadata": given["metadata"] | {"name": name}}


@pytest.fixture
async def limited(client: KubeClient) -> KubeClient:
    """The namespace `team` may have two units."""
    await create(client, NAMESPACES, {"metadata": {"name": "team"}})
    await create(client, QUOTAS, {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {NAME: "2"}}})
    return client


async def shows(client: KubeClient, used: str) -> None:
    """Return when the quota's status says so."""

    async def is_shown() -> bool:
        status = (await client.get(QUOTAS, "q", "team")).get("status")
        return bool(status == {"hard": {NAME: "2"}, "used": {NAME: used}})

    await eventually(is_shown)


async def test_a_quota_is_kept_and_shown(limited: KubeClient) -> None:
    await shows(limited, "0")
    await create(limited, PODS, pod("a"))
    await shows(limited, "1")
    with pytest.raises(ForbiddenError, match=f"exceeded quota: q, requested: {NAME}=2, used: {NAME}=1, limited"):
        await create(limited, PODS, pod("b", "2"))
    await create(limited, PODS, pod("b"))
    await shows(limited, "2")


@pytest.mark.parametrize("ended", [True, False])
async def test_what_is_given_back_can_be_had_again(limited: KubeClient, ended: bool) -> None:
    await create(limited, PODS, pod("a", "2"))
    if ended:
        await limited.merge_patch(PODS, "a", {"status": {"phase": "Succeeded"}}, "team", subresource="status")
    else:
        await limited.delete(PODS, "a", "team")
    await shows(limited, "0")
    await create(limited, PODS, pod("b", "2"))


async def test_two_at_once_cannot_both_have_the_last_unit(limited: KubeClient) -> None:
    requests = (create(limited, PODS, pod(name, "2")) for name in "abc")
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [type(one) for one in answers if one is not None] == [ForbiddenError, ForbiddenError]
