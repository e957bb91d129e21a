"""Pods with injected checks on an API server: two watched kinds have one aggregate, and a crash loop floods nothing."""

from dataclasses import replace
from typing import Any

from gpuledger.api.kinds import PODS
from gpuledger.api.preflight import ANNOTATION_GANG, ANNOTATION_GANG_SOURCE, ANNOTATION_INJECTED, LABEL_PREFLIGHT
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.watchers.checked_namespaces import CheckedNamespaces
from gpuledger.edge.watchers.resources import pods, preflight_pods
from gpuledger.events.envelope import decode
from gpuledger.events.pod import PodObserved
from gpuledger.events.preflight import PodPreflightObserved
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kube_fleet import create
from support.ledgers import everything
from support.watching import HASTY, comes_of, listed_again, lists, watching

KINDS = (pods.KIND, preflight_pods.KIND)
UNITS, CHECKS = "pod default/p observed", "pod default/p preflight-observed"
CONTAINER = "preflight-nccl-allreduce"

Json = dict[str, Any]


async def put_pod(client: KubeClient) -> None:
    """A pod of a gang that requests units of a pool, and goes at once when it is deleted."""
    annotations = {
        ANNOTATION_INJECTED: "nccl-allreduce", ANNOTATION_GANG: "g", ANNOTATION_GANG_SOURCE: "scheduling-group/g",
    }  # fmt: skip
    metadata = {"name": "p", "namespace": "default", "labels": {LABEL_PREFLIGHT: "true"}, "annotations": annotations}
    limits = {"resources": {"limits": {"gpu.deckhouse.io/a": "1"}}}
    spec = {
        "containers": [{"name": "c", "image": "i", **limits}],
        "initContainers": [{"name": CONTAINER, "image": "i"}],
        "schedulingGroup": {"podGroupName": "g"},
        "nodeName": "w1",
        "terminationGracePeriodSeconds": 0,
    }
    await create(client, PODS, {"metadata": metadata, "spec": spec})


async def show(client: KubeClient, state: Json, restarts: int = 0, last: Json | None = None) -> None:
    """The kubelet says how far the check is."""
    container = {
        "name": CONTAINER, "image": "i", "imageID": "i", "ready": False, "restartCount": restarts, "state": state,
        "lastState": last or {},
    }  # fmt: skip
    status = {"phase": "Pending", "podIP": "10.0.0.1", "initContainerStatuses": [container]}
    await client.merge_patch(PODS, "p", {"status": status}, "default", subresource="status")


async def comes(ledger: JetStreamLedger, units: list[str], checks: list[str]) -> None:
    """Return when each kind has recorded exactly this; which of them is first, nobody says."""
    await comes_of((pods.KIND,), ledger, *units)
    await comes_of((preflight_pods.KIND,), ledger, *checks)


def ended(attempt: int, code: int = 3) -> Json:
    time = f"2026-01-02T03:0{attempt}:05Z"
    return {"terminated": {"exitCode": code, "reason": "Error", "startedAt": time, "finishedAt": time}}


async def observed(ledger: JetStreamLedger) -> list[PodPreflightObserved]:
    found = [decode(message.data).data for message in await everything(ledger)]
    return [one for one in found if isinstance(one, PodPreflightObserved)]


async def test_each_attempt_of_a_check_is_one_fact_beside_those_about_units(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client)
    async with watching(client, ledger, database_url):
        await comes(ledger, [UNITS], [CHECKS])
        for attempt in range(2):
            last = ended(attempt - 1) if attempt else None
            await show(client, ended(attempt), attempt, last)
            await comes(ledger, [UNITS], [CHECKS] * (attempt + 2))
            await show(client, {"waiting": {"reason": "CrashLoopBackOff", "message": "10s"}}, attempt, ended(attempt))
            await show(client, {"running": {"startedAt": "2026-01-02T03:04:05Z"}}, attempt + 1, ended(attempt))
        await show(client, ended(2, 0), 2, ended(1))
        await comes(ledger, [UNITS], [CHECKS] * 4)
    recorded = await observed(ledger)
    assert [one.done for one in recorded] == [False, False, False, True]
    assert [[check.exit_code for check in one.checks] for one in recorded] == [[None], [3], [3], [0]]
    assert {(one.gang, one.gang_source, one.ip) for one in recorded[1:]} == {("g", "scheduling-group/g", "10.0.0.1")}


async def test_both_kinds_go_on_after_a_restart_and_record_nothing_again(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client)
    for _ in range(2):
        before = [lists(kind) for kind in KINDS]
        async with watching(client, ledger, database_url):
            await listed_again(KINDS, before)
            await comes(ledger, [UNITS], [CHECKS])
    await client.delete(PODS, "p", "default")
    async with watching(client, ledger, database_url):
        await comes(ledger, [UNITS, "pod default/p gone"], [CHECKS, "pod default/p preflight-gone"])


async def test_only_pods_of_namespaces_with_checks_are_recorded_and_then_to_their_end(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    """A label is nobody's proof: what a pod says elsewhere of checks and gangs, watchers pass over."""
    checked = CheckedNamespaces()
    async with watching(client, ledger, database_url, settings=replace(HASTY, checked=checked)):
        await put_pod(client)
        await comes(ledger, [UNITS], [])
        checked.set(frozenset({"default"}))
        await comes(ledger, [UNITS], [CHECKS])
        checked.set(frozenset({"elsewhere"}))
        await show(client, ended(0, 0))
        await comes(ledger, [UNITS], [CHECKS] * 2)
        await client.delete(PODS, "p", "default")
        await comes(ledger, [UNITS, "pod default/p gone"], [*[CHECKS] * 2, "pod default/p preflight-gone"])
        await put_pod(client)
        await comes(ledger, [UNITS, "pod default/p gone", UNITS], [*[CHECKS] * 2, "pod default/p preflight-gone"])


async def test_the_pod_keeps_its_scheduling_group(client: KubeClient) -> None:
    """What gangs are found by stays in the objects of the embedded server."""
    await put_pod(client)
    found = await client.get(PODS, "p", "default")
    assert found["spec"]["schedulingGroup"] == {"podGroupName": "g"}


def test_the_kinds_have_sources_of_their_own() -> None:
    assert len({kind.source for kind in KINDS}) == len(KINDS)
    assert {kind.payload.AGGREGATE for kind in KINDS} == {PodObserved.AGGREGATE}
