"""The remediator on an API server: each object is created once, whatever happens, and nobody else's is touched."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gpuledger.api.kinds import NODES
from gpuledger.domain.remediation.templates import ANNOTATION
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Decoded
from gpuledger.events.remediation import (
    RemediationCreated,
    RemediationFinished,
    RemediationObjectDeleted,
    RemediationRequested,
    RemediationSuperseded,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.killing import SteppingClient, Steps
from support.kube_server import KubeServer
from support.projections import execute, stop
from support.remediating import (
    QUICK_REMEDIATOR,
    REBOOTS,
    Requester,
    all_done,
    install_remedies,
    remediate_until_killed,
    remediator,
    show,
)
from support.statuswriting import counting
from support.waiting import eventually

STEPS = 10
"""The service asks whose the cluster is, looks, reads the Node, creates the object, and records that: two each."""


@pytest.fixture
async def requester(ledger: JetStreamLedger, client: KubeClient) -> Requester:
    found = Requester(ledger, client)
    await found.claim()
    await install_remedies(client)
    return found


@pytest.fixture
async def writing(kube: KubeServer, client: KubeClient) -> AsyncIterator[SteppingClient]:
    async with counting(kube.kubeconfig, SteppingClient) as found:
        assert isinstance(found, SteppingClient)
        yield found


async def has_objects(requester: Requester, count: int) -> None:
    async def are_there() -> bool:
        return len(await requester.reboots()) == count

    await eventually(are_there)


async def has_result(requester: Requester, intent: Decoded, count: int) -> None:
    async def is_recorded() -> bool:
        return len(await requester.results(intent)) == count

    await eventually(is_recorded)


@pytest.mark.parametrize(("condition", "result"), [("Done", "Succeeded"), ("Broken", "Failed")])
async def test_an_object_is_created_and_its_outcome_recorded(
    requester: Requester, migrated_url: str, writing: SteppingClient, condition: str, result: str
) -> None:
    await requester.node("n1", unschedulable=True)
    intent = await requester.remediate("n1")
    async with remediator(requester.ledger, migrated_url, writing) as writer:
        await has_objects(requester, 1)
        (obj,) = await requester.reboots()
        assert (obj["spec"]["node"], obj["metadata"]["annotations"][ANNOTATION]) == ("n1", intent.id)
        assert isinstance(intent.data, RemediationRequested)
        assert obj["metadata"]["name"] == intent.data.object.name
        await show(requester.client, obj, condition)
        await all_done(writer, requester.ledger)
    assert await requester.results(intent) == [
        RemediationCreated(intent=intent.id, uid=obj["metadata"]["uid"]),
        RemediationFinished.model_validate({"intent": intent.id, "result": result, "message": "Tested: by a test"}),
    ]
    assert writing.written == [f"POST {REBOOTS.path()}"]
    assert len(await requester.reboots()) == 1, "without a retention the object stays"


async def test_a_kill_at_any_step_leads_to_one_object_each(
    requester: Requester, migrated_url: str, writing: SteppingClient
) -> None:
    async def work() -> None:
        while True:
            for obj in await requester.reboots():
                if "status" not in obj:
                    await show(requester.client, obj, "Done")
            await asyncio.sleep(0.01)

    controller = asyncio.create_task(work())
    kill_at, was_killed = 0, True
    while was_killed:
        kill_at += 1
        await requester.node(f"n{kill_at}", unschedulable=True)
        writing.written.clear()
        intent = await requester.remediate(f"n{kill_at}", retention_s=0)
        was_killed = await remediate_until_killed(requester.ledger, migrated_url, writing, Steps(kill_at))
        assert not await remediate_until_killed(requester.ledger, migrated_url, writing, Steps())
        assert isinstance(intent.data, RemediationRequested)
        path = f"{REBOOTS.path()}/{intent.data.object.name}"
        assert writing.written == [f"POST {REBOOTS.path()}", f"DELETE {path}"]
        kinds = [type(one) for one in await requester.results(intent)]
        assert kinds == [RemediationCreated, RemediationFinished, RemediationObjectDeleted]
    await stop(controller)
    assert kill_at > STEPS
    assert await requester.reboots() == []


async def test_what_is_old_imported_or_cancelled_and_a_node_that_is_gone_get_nothing(
    requester: Requester, migrated_url: str, writing: SteppingClient
) -> None:
    await requester.node("n1", unschedulable=True)
    old = system_clock() - QUICK_REMEDIATOR.max_age - timedelta(minutes=1)
    cases = {
        "Expired": await requester.remediate("n1", time=old),
        "Imported": await requester.remediate("n1", imported=True),
        "Cancelled": await requester.remediate("n1"),
        "NodeGone": await requester.remediate("n1", uid="another"),
    }
    await requester.node("n3", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}])
    cases["NotSetAside"] = await requester.remediate("n3")
    await requester.cancel(cases["Cancelled"])
    gone = await requester.remediate("n2", uid="u2")
    async with remediator(requester.ledger, migrated_url, writing) as writer:
        await all_done(writer, requester.ledger)
    for reason, intent in [*cases.items(), ("NodeGone", gone)]:
        (result,) = await requester.results(intent)
        assert isinstance(result, RemediationSuperseded)
        assert result.reason == reason
    assert writing.written == []


async def test_what_runs_is_watched_though_it_is_cancelled_and_old(
    requester: Requester, migrated_url: str, writing: SteppingClient
) -> None:
    await requester.node("n1", unschedulable=True)
    intent = await requester.remediate("n1")
    assert await remediate_until_killed(requester.ledger, migrated_url, writing, Steps(STEPS - 2))
    await requester.cancel(intent)
    execute(migrated_url, "TRUNCATE gpuledger.snapshot CASCADE")
    async with remediator(requester.ledger, migrated_url, writing):
        await has_result(requester, intent, 1)
        (obj,) = await requester.reboots()
        await requester.client.delete(REBOOTS, obj["metadata"]["name"])
        await has_result(requester, intent, 2)
    finished = (await requester.results(intent))[-1]
    assert isinstance(finished, RemediationFinished)
    assert (finished.result, "Somebody deleted" in finished.message) == ("Failed", True)
    assert writing.written == [f"POST {REBOOTS.path()}"]


async def test_what_shows_nothing_times_out_and_is_deleted_after_its_retention(
    requester: Requester, migrated_url: str, writing: SteppingClient
) -> None:
    await requester.node("n1", unschedulable=True)
    intent = await requester.remediate("n1", timeout_s=1, retention_s=1)
    async with remediator(requester.ledger, migrated_url, writing) as writer:
        await has_result(requester, intent, 3)
        await all_done(writer, requester.ledger)
    finished = (await requester.results(intent))[1]
    assert isinstance(finished, RemediationFinished)
    assert finished.result == "TimedOut"
    assert await requester.reboots() == []


async def test_what_the_api_server_does_not_take_is_refused_and_others_stay_as_they_are(
    requester: Requester, migrated_url: str, writing: SteppingClient
) -> None:
    await requester.node("n1", unschedulable=True)
    intent = await requester.remediate("n1")
    assert isinstance(intent.data, RemediationRequested)
    foreign = {"metadata": {"name": intent.data.object.name}, "spec": {"node": "somebody's"}}
    await requester.client.create(REBOOTS, {"apiVersion": "example.com/v1", "kind": "Reboot", **foreign})
    made = intent.data.object
    unserved = await requester.remediate("n1", object=made.model_copy(update={"resource": "unserved"}))
    async with remediator(requester.ledger, migrated_url, writing) as writer:
        await all_done(writer, requester.ledger)
    for one in (intent, unserved):
        (result,) = await requester.results(one)
        assert isinstance(result, RemediationFinished)
        assert result.result == "Refused"
    (obj,) = await requester.reboots()
    assert obj["spec"] == {"node": "somebody's"}
    assert (await requester.client.get(NODES, "n1"))["metadata"]["name"] == "n1"
