"""The coordinator of gangs on an API server: each gang has its ConfigMap with few writes, and no other is touched."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, NAMESPACES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.owner import CLUSTER_ROLES
from gpuledger.events.preflight import (
    GangConfigured,
    GangDissolved,
    GangNotConfigured,
    GangTimedOut,
)
from gpuledger.runtime.clock import system_clock
from support.gangs import PASSED, QUICK_COORDINATOR, GangPods, coordinate_until_killed, coordinator, observed
from support.killing import SteppingClient, Steps
from support.kube_server import KubeServer
from support.statuswriting import CountingClient, counting
from support.waiting import eventually

A, B = "default/a", "default/b"
BOTH = ("a:10.0.0.1", "b:10.0.0.2")
STEPS = 6
"""The service asks whose the cluster is, looks, creates the ConfigMap, and records that: two each."""


def writes(client: CountingClient) -> list[str]:
    return [one for one in client.written if "configmaps" in one]


async def form(pods: GangPods) -> None:
    await pods.pod(A, ip="10.0.0.1")
    await pods.pod(B, ip="10.0.0.2")
    await pods.comes(*BOTH)


async def test_a_gang_forms_stays_until_its_last_pod_is_gone_and_is_dissolved(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(B)
        await pods.comes()
        await form(pods)
        found = await pods.config_map()
        assert found is not None
        assert found["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gpuledger"}
        assert found["data"] == {
            "gang_id": "g", "expected_count": "2", "master_addr": "10.0.0.1", "master_port": "29500",
            "peers": "a:10.0.0.1\nb:10.0.0.2\n",
        }  # fmt: skip
        for pod, ip in ((A, "10.0.0.1"), (B, "10.0.0.2")):
            await pods.pod(pod, ip=ip, checks=[PASSED], done=True)
        await pods.gone(A)
        await pods.gone(B)
        (dissolved,) = await pods.has_outcome(GangDissolved)
    assert dissolved == GangDissolved(removed=True)
    assert await pods.config_map() is None
    first, *_, last = [one for one in await pods.outcomes() if isinstance(one, GangConfigured)]
    assert (first.created, first.complete, first.expected) == (True, False, 2)
    assert (last.created, last.complete, [one.pod for one in last.peers]) == (False, True, ["a", "b"])
    assert last.waited_s is not None


@pytest.mark.embedded_only("dependents are collected by a controller")
async def test_the_config_map_goes_with_the_role_of_the_release(
    pods: GangPods, migrated_url: str, client: KubeClient
) -> None:
    await client.create(CLUSTER_ROLES, {"metadata": {"name": "checks"}, "rules": []})
    owned = replace(QUICK_COORDINATOR, owner="checks")
    async with coordinator(pods.ledger, migrated_url, client, owned):
        await form(pods)
    await client.delete(CLUSTER_ROLES, "checks")
    await pods.disappears()


async def test_512_pods_form_a_gang_with_at_most_20_writes(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    count = 512
    async with coordinator(pods.ledger, migrated_url, writing):
        for start in range(0, count, 8):
            await pods.record(
                *(
                    (f"default/p{one:03}", observed(f"u{one}", f"10.1.{one // 256}.{one % 256}", gang_size=count))
                    for one in range(start, start + 8)
                )
            )
        expected = [f"p{one:03}:10.1.{one // 256}.{one % 256}" for one in range(count)]
        await pods.comes(*expected, expected=str(count))
    assert len(writes(writing)) <= 20


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_a_config_map_that_is_deleted_or_changed_is_put_back(
    pods: GangPods, migrated_url: str, writing: CountingClient, is_deleted: bool
) -> None:
    async with coordinator(pods.ledger, migrated_url, writing):
        await form(pods)
        await pods.has_outcome(GangConfigured)
        before = len(await pods.has_outcome(GangConfigured))
        if is_deleted:
            await pods.client.delete(CONFIG_MAPS, "preflight-g", "default")
        else:
            await pods.client.merge_patch(CONFIG_MAPS, "preflight-g", {"data": {"peers": "x:1"}}, "default")
        *_, last = await pods.has_outcome(GangConfigured, before + 1)
        await pods.comes(*BOTH)
    assert (last.created, last.complete) == (is_deleted, True)


async def test_a_config_map_that_somebody_made_immutable_is_made_anew(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1")
        await pods.comes(BOTH[0])
        patch = {"immutable": True, "data": {"peers": "x:1"}}
        await pods.client.merge_patch(CONFIG_MAPS, "preflight-g", patch, "default")
        await form(pods)
        found = await pods.config_map()
        assert found is not None
        assert "immutable" not in found


async def test_what_somebody_added_to_a_config_map_keeps_nobody_from_writing_it(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1")
        await pods.comes(BOTH[0])
        patch = {"data": {"theirs": "x" * 512 * 1024}, "binaryData": {"more": "eA=="}}
        await pods.client.merge_patch(CONFIG_MAPS, "preflight-g", patch, "default")
        await form(pods)
        found = await pods.config_map()
        assert found is not None
        assert ("theirs" in found["data"], "binaryData" in found) == (False, False)


async def test_a_config_map_of_somebody_else_is_not_touched(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    theirs = {"metadata": {"name": "preflight-g", "namespace": "default"}, "data": {"peers": "mine"}}
    made = await pods.client.create(CONFIG_MAPS, theirs)
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1")
        await pods.pod(B, ip="10.0.0.2")
        (refused,) = await pods.has_outcome(GangNotConfigured)
        assert refused.reason == "ForeignConfigMap"
        await pods.gone(A)
        await pods.gone(B)
        (dissolved,) = await pods.has_outcome(GangDissolved)
        assert not dissolved.removed
        assert await pods.config_map() == made
        await pods.client.delete(CONFIG_MAPS, "preflight-g", "default")
        await form(pods)
    assert writes(writing)[0] == f"POST {CONFIG_MAPS.path('default')}"


async def test_two_gangs_of_one_name_in_two_namespaces_are_two(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    await pods.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod("team/a", ip="10.0.1.1")
        await form(pods)
        await pods.comes("a:10.0.1.1", namespace="team")
        await pods.pod("team/b", ip="10.0.1.2")
        await pods.comes("a:10.0.1.1", "b:10.0.1.2", namespace="team")
        await pods.comes(*BOTH)


async def test_another_leader_goes_on_where_the_first_one_ended(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, ip="10.0.0.1")
        await pods.comes(BOTH[0])
        await pods.has_outcome(GangConfigured)
    before = len(writes(writing))
    await pods.pod(B, ip="10.0.0.2")
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.comes(*BOTH)
        await pods.has_outcome(GangConfigured, 2)
    assert len(writes(writing)) == before + 1
    await pods.gone(A)
    await pods.gone(B)
    async with coordinator(pods.ledger, migrated_url, writing):
        assert await pods.has_outcome(GangDissolved) == [GangDissolved(removed=True)]


async def test_a_write_that_was_not_recorded_is_not_repeated(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    """The leader before was killed between the two."""
    data = {"gang_id": "g", "expected_count": "2", "master_addr": "10.0.0.1", "master_port": "29500"}
    labels = {"app.kubernetes.io/managed-by": "gpuledger"}
    metadata = {"name": "preflight-g", "namespace": "default", "labels": labels}
    await pods.client.create(CONFIG_MAPS, {"metadata": metadata, "data": data | {"peers": "a:10.0.0.1\n"}})
    await pods.pod(A, ip="10.0.0.1")
    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.has_outcome(GangConfigured)
    assert writes(writing) == []


async def test_a_gang_that_is_not_complete_in_time_is_recorded_once(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    quick = replace(QUICK_COORDINATOR, gang_timeout_s=lambda: 0.2)
    async with coordinator(pods.ledger, migrated_url, writing, quick):
        await pods.pod(A, ip="10.0.0.1")
        (timed_out,) = await pods.has_outcome(GangTimedOut)
        assert (timed_out.expected, timed_out.found) == (2, 1)
        await pods.pod(B, ip="10.0.0.2")
        await pods.comes(*BOTH)
        *_, last = await pods.has_outcome(GangConfigured, 2)
        assert last.complete
    assert [type(one) for one in await pods.outcomes()].count(GangTimedOut) == 1


async def test_a_gang_that_is_queued_does_not_time_out(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    quick = replace(QUICK_COORDINATOR, gang_timeout_s=lambda: 0.2)
    async with coordinator(pods.ledger, migrated_url, writing, quick):
        await pods.pod(A)
        await pods.pod("default/c", ip="10.0.0.3", gang="other")
        await pods.has_outcome(GangTimedOut, gang="default/other")
        assert not [one for one in await pods.outcomes() if isinstance(one, GangTimedOut)]
        await pods.pod(A, ip="10.0.0.1")
        await pods.has_outcome(GangTimedOut)


async def test_a_gang_may_take_longer_than_what_is_history_elsewhere(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    """Nothing is recorded about pods that wait, so that their gang times out long after its last fact."""
    patient = replace(QUICK_COORDINATOR, max_age=timedelta(seconds=0.2), gang_timeout_s=lambda: 2.0)
    async with coordinator(pods.ledger, migrated_url, writing, patient):
        await pods.pod(A, ip="10.0.0.1")
        (timed_out,) = await pods.has_outcome(GangTimedOut)
    assert timed_out.waited_s >= 2.0


async def test_what_was_recorded_long_ago_leads_to_nothing(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    old = system_clock() - QUICK_COORDINATOR.max_age - timedelta(minutes=1)
    await pods.record(("default/old", observed(gang="old", ip="10.0.0.3")), at=old)
    async with coordinator(pods.ledger, migrated_url, writing):
        await form(pods)
    assert await pods.config_map("old") is None
    assert await pods.outcomes("default/old") == []


async def test_a_check_that_failed_is_an_event_of_its_pod_once(
    pods: GangPods, migrated_url: str, writing: CountingClient
) -> None:
    result = {"outcome": "failed", "codes": ["NCCL_SYSTEM_ERROR"], "message": "no route"}

    def failed(attempt: int) -> dict[str, Any]:
        return {"name": "nccl-allreduce", "state": "ended", "exit_code": 1, "attempt": attempt, "result": result}

    async def is_there() -> bool:
        return bool(await pods.events())

    async with coordinator(pods.ledger, migrated_url, writing):
        await pods.pod(A, uid="u1", ip="10.0.0.1", checks=[failed(0)])
        await eventually(is_there)
        await pods.pod(A, uid="u1", ip="10.0.0.1", checks=[failed(1)])
        await form(pods)
    (event,) = await pods.events()
    assert (event["reason"], event["type"], event["regarding"]["uid"]) == ("PreflightCheckFailed", "Warning", "u1")
    assert event["note"] == "The preflight check nccl-allreduce ended with exit code 1 (NCCL_SYSTEM_ERROR): no route"


async def test_a_kill_at_any_step_leads_to_one_config_map_and_no_second_write(
    pods: GangPods, migrated_url: str, kube: KubeServer
) -> None:
    async with counting(kube.kubeconfig, SteppingClient) as stepping:
        assert isinstance(stepping, SteppingClient)
        kill_at, was_killed = 0, True
        while was_killed:
            kill_at += 1
            gang = f"g{kill_at}"
            await pods.pod(f"default/a{kill_at}", ip="10.0.0.1", gang=gang, gang_size=1)
            stepping.written.clear()
            was_killed = await coordinate_until_killed(pods, migrated_url, stepping, Steps(kill_at), gang)
            assert not await coordinate_until_killed(pods, migrated_url, stepping, Steps(), gang)
            assert writes(stepping) == [f"POST {CONFIG_MAPS.path('default')}"]
            await pods.comes("a" + f"{kill_at}:10.0.0.1", gang=gang, expected="1")
            assert len({str(one) for one in await pods.outcomes(f"default/{gang}")}) == 1
    assert kill_at > STEPS
