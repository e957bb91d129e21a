"""Pods that come late to a gang on an API server: for whom they wait, and who waits for them."""

from gpuledger.events.preflight import GangConfigured, GangTimedOut
from support.gangs import PASSED, GangPods, coordinator

A, B = "default/a", "default/b"
BOTH = ("a:10.0.0.1", "b:10.0.0.2")


async def form(pods: GangPods) -> None:
    await pods.pod(A, ip="10.0.0.1")
    await pods.pod(B, ip="10.0.0.2")
    await pods.comes(*BOTH)


async def test_a_pod_that_is_replaced_is_a_peer_no_more(pods: GangPods, migrated_url: str) -> None:
    async with coordinator(pods.ledger, migrated_url, pods.client):
        await form(pods)
        await pods.has_outcome(GangConfigured)
        await pods.gone(B)
        await pods.comes(BOTH[0])
        await pods.pod(B, uid="new", ip="10.0.0.9")
        await pods.comes(BOTH[0], "b:10.0.0.9")


async def test_the_successor_of_a_pod_of_a_gang_that_has_passed_is_alone(pods: GangPods, migrated_url: str) -> None:
    async with coordinator(pods.ledger, migrated_url, pods.client):
        await form(pods)
        await pods.has_outcome(GangConfigured)
        for pod, ip in ((A, "10.0.0.1"), (B, "10.0.0.2")):
            await pods.pod(pod, ip=ip, checks=[PASSED], done=True)
        await pods.gone(B)
        await pods.pod("default/c", uid="new", ip="10.0.0.9")
        await pods.comes("c:10.0.0.9", expected="1")
        found = await pods.config_map()
        assert found is not None
        assert found["data"]["passed_count"] == "1"
        *_, last = await pods.has_outcome(GangConfigured, 2)
        assert (last.complete, last.expected, last.passed, [one.pod for one in last.peers]) == (True, 1, 1, ["c"])
        await pods.gone(A)
        await pods.pod("default/d", ip="10.0.0.8")
        await pods.pod("default/c", uid="newest", ip="10.0.0.7")
        await pods.comes("c:10.0.0.7", "d:10.0.0.8")
        found = await pods.config_map()
        assert found is not None
        assert "passed_count" not in found["data"]
    assert not any(isinstance(one, GangTimedOut) for one in await pods.outcomes())
