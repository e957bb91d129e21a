"""How many pods a gang has, by an object on an API server that comes late, changes, or never comes."""

from dataclasses import replace
from typing import Any

from gpuledger.api.kinds import CONFIG_MAPS, Resource
from gpuledger.edge.kube.crds import install
from gpuledger.events.preflight import GangNotConfigured, GangTimedOut
from support.gangs import QUICK_COORDINATOR, GangPods, coordinator
from support.remediating import remedy_crd
from support.statuswriting import CountingClient

A, B = "default/a", "default/b"
BOTH = ("a:10.0.0.1", "b:10.0.0.2")


PODGROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", namespaced=True)


OF_PODGROUP: dict[str, Any] = {"gang_size": None, "gang_source": "volcano/train"}


async def install_podgroups(pods: GangPods) -> None:
    crd = remedy_crd(PODGROUPS)
    crd["spec"]["scope"] = "Namespaced"
    await install(pods.client, [crd])


async def create_podgroup(pods: GangPods, min_member: int) -> None:
    kind = {"apiVersion": PODGROUPS.api_version, "kind": PODGROUPS.kind}
    body = kind | {"metadata": {"name": "train", "namespace": "default"}, "spec": {"minMember": min_member}}
    await pods.client.create(PODGROUPS, body)


async def test_the_size_comes_from_the_object_of_the_source(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    await install_podgroups(pods)
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1", **OF_PODGROUP)
        await pods.comes(BOTH[0], expected=None)
        (unknown,) = await pods.has_outcome(GangNotConfigured)
        assert unknown.reason == "SizeUnknown"
        await create_podgroup(pods, 2)
        await pods.comes(BOTH[0])
        await pods.pod(B, ip="10.0.0.2", **OF_PODGROUP)
        await pods.comes(*BOTH)


async def test_a_size_that_comes_after_the_time_of_the_gang_counts_as_well(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    """The checks are tried again for as long as their pods exist, and so is the look for the size."""
    await install_podgroups(pods)
    quick = replace(QUICK_COORDINATOR, gang_timeout_s=lambda: 0.1)
    async with coordinator(pods.ledger, migrated_url, writing, quick):
        await pods.pod(A, ip="10.0.0.1", **OF_PODGROUP)
        await pods.pod(B, ip="10.0.0.2", **OF_PODGROUP)
        await pods.has_outcome(GangTimedOut)
        await pods.has_outcome(GangNotConfigured)
        await create_podgroup(pods, 2)
        await pods.comes(*BOTH)


async def test_a_gang_that_shrinks_while_it_waits_is_complete_with_fewer_pods(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    await install_podgroups(pods)
    await create_podgroup(pods, 3)
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1", **OF_PODGROUP)
        await pods.pod(B, ip="10.0.0.2", **OF_PODGROUP)
        await pods.comes(*BOTH, expected="3")
        await pods.client.merge_patch(PODGROUPS, "train", {"spec": {"minMember": 2}}, "default")
        await pods.comes(*BOTH)


async def test_a_gang_with_two_problems_has_each_recorded_once(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    theirs = {"metadata": {"name": "preflight-g", "namespace": "default"}}
    await pods.client.create(CONFIG_MAPS, theirs)
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1", **OF_PODGROUP)
        await pods.has_outcome(GangNotConfigured)
        for number in range(5):
            await pods.pod(A, ip=f"10.0.1.{number}", **OF_PODGROUP)
            await pods.pod("default/c", ip=f"10.0.0.{number}", gang="other")
            await pods.comes(f"c:10.0.0.{number}", gang="other")
        await pods.client.delete(CONFIG_MAPS, "preflight-g", "default")
        await pods.comes("a:10.0.1.4", expected=None)
        await pods.has_outcome(GangNotConfigured, 2)
    recorded = [one.reason for one in await pods.outcomes() if isinstance(one, GangNotConfigured)]
    assert recorded == ["ForeignConfigMap", "SizeUnknown"]
