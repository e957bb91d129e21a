"""`gpuledger node` and `get maintenance`: what they record, what they refuse, and how they say so."""

import asyncio
import getpass
from datetime import timedelta
from functools import partial

import pytest

from gpuledger.events.device import DeviceAttached
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.maintenance import (
    Drain,
    LeavingPod,
    NamespaceMode,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationChanged,
    NodeIsolationSuperseded,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.cli import Run
from support.events import event
from support.ledgers import everything
from support.maintenance import WATCHERS, WRITER, observed
from support.projections import publish
from support.waiting import eventually

ME = f"operators/{getpass.getuser()}"


async def test_a_request_is_listed_until_it_is_released(run: Run, ledger: JetStreamLedger) -> None:
    asked = await run("node", "cordon", "w1", "--reason", "fan", "--label", "state=broken", "--message", "loud")
    assert (asked.code, "There is no node w1 yet" in asked.err) == (0, True), asked
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (found["node"], found["owner"], found["reason"], found["state"]) == ("w1", ME, "fan", "NoNode")
    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    shown = (await run("get", "maintenance", "w1", "-o", "wide")).out.splitlines()
    assert shown[0].split() == [
        "NODE", "OWNER", "REASON", "REQUESTED", "EXPIRES", "CORDON", "STATE", "SINCE", "DRAIN", "PODS-LEFT",
        "DRAIN-SINCE", "DEVICES", "PODS", "TAINTS", "LABELS", "MESSAGE", "DETAIL",
    ]  # fmt: skip
    assert "Pending" in shown[1]
    assert "state=broken" in shown[1]
    described = (await run("describe", "node", "w1")).out
    assert ME in described[described.index("Maintenance:") :]
    position = await ledger.head()
    released = await run("node", "uncordon", "node/w1")
    assert "is to be given back" in released.err
    (left,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (left["owner"], left["state"], left["cordon"]) == (None, "Pending", False)
    (then,) = (await run("get", "maintenance", "--as-recorded", str(position), "-o", "json")).json()
    assert (then["owner"], then["cordon"]) == (ME, True)
    own = [decode(one.data) for one in await everything(ledger) if ".svc.operators." in one.subject]
    assert [type(one.data) for one in own] == [NodeMaintenanceRequested, NodeMaintenanceReleased]
    assert {one.source for one in own} == {f"/{ME}"}


async def test_a_drain_is_listed_with_the_pods_that_are_left(run: Run, ledger: JetStreamLedger) -> None:
    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    modes = ("--mode", "DeleteAfterTimeout", "--timeout", "30m", "--namespace-mode", "team-*=Immediate")
    asked = await run("node", "drain", "node/w1", "--reason", "fan", *modes, "--no-wait")
    assert (asked.code, "is to be drained for" in asked.err) == (0, True), asked
    own = [decode(one.data) for one in await everything(ledger) if ".svc.operators." in one.subject]
    (data,) = (one.data for one in own)
    assert isinstance(data, NodeMaintenanceRequested)
    team = NamespaceMode(namespaces="team-*", mode="Immediate")
    assert data.drain == Drain(mode="DeleteAfterTimeout", timeout_s=1800, namespaces=(team,))
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (found["cordon"], found["drain"], found["pods_left"]) == (True, "Pending", None)
    (intent,) = await drains(ledger)
    left = (LeavingPod(namespace="team-a", pod="p", state="Blocked: b"),)
    report = NodeDrainProgressed(intent=intent.id, left=1, pods=left)
    await publish(ledger, [event(report, "w1", source=WRITER)])
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (found["drain"], found["pods_left"], found["pods"]) == ("Draining", 1, ["team-a/p (Blocked: b)"])
    described = (await run("describe", "node", "w1")).out
    assert "Draining" in described[described.index("Maintenance:") :]


async def test_a_drain_of_a_card_is_for_a_card_of_the_node(run: Run, ledger: JetStreamLedger) -> None:
    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    drain = ("node", "drain", "w1", "--reason", "xid", "--mode", "Immediate", "--no-wait", "--device", "GPU-1")
    unknown = await run(*drain)
    assert (unknown.code != 0, "Node w1 has no card GPU-1: the ledger has it nowhere" in unknown.err) == (True, True)
    card = DeviceAttached(name="w1-gpu", slot="w1/0000:17:00.0", uuid="GPU-1", model="H200")
    await publish(ledger, [event(card, "GPU-1", source="/services/inventory")])
    asked = await run(*drain)
    assert (asked.code, "GPU-1 of node w1 is to be drained for" in asked.err) == (0, True), asked
    elsewhere = await run("node", "drain", "w2", *drain[3:])
    assert "Node w2 has no card GPU-1: it is in w1/0000:17:00.0" in elsewhere.err
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (found["cordon"], found["devices"], found["drain"]) == (False, ["GPU-1"], "Pending")
    assert found["state"] is None, "nothing is to be done to the Node itself"


async def drains(ledger: JetStreamLedger) -> list[Decoded]:
    """The intents to drain, as the ledger has them."""
    found = [decode(one.data) for one in await everything(ledger) if one.subject.startswith("ledger.svc.maintenance.")]
    return [one for one in found if isinstance(one.data, NodeDrainChanged)]


async def test_who_waits_for_a_drain_sees_pods_go_also_when_somebody_else_asks_too(
    run: Run, ledger: JetStreamLedger
) -> None:
    async def is_decided(number: int) -> bool:
        return len(await drains(ledger)) >= number

    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    waiting = asyncio.ensure_future(run("node", "drain", "w1", "--reason", "fan"))
    await eventually(partial(is_decided, 1))
    (first,) = await drains(ledger)
    left = (LeavingPod(namespace="team", pod="p", state="Blocked: b"),)
    reports = [NodeDrainProgressed(intent=first.id, left=1, pods=left)]
    await publish(ledger, [event(one, "w1", source=WRITER) for one in reports])
    await run("node", "drain", "w1", "--reason", "x", "--owner", "operators/ben", "--mode", "Immediate", "--no-wait")
    await eventually(partial(is_decided, 2))
    _, second = await drains(ledger)
    finished = event(NodeDrainFinished(intent=second.id), "w1", number=2, source=WRITER)
    third = NodeMaintenanceRequested(owner="operators/eva", reason="y", drain=Drain())
    await publish(ledger, [finished, event(third, "w1", source="/operators/eva")._replace(time=system_clock())])
    done = await waiting
    assert (done.code, "Node w1 is drained." in done.err) == (0, True), done


async def test_who_waits_for_a_drain_that_is_late_is_shown_that(run: Run, ledger: JetStreamLedger) -> None:
    async def is_decided() -> bool:
        return bool(await drains(ledger))

    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    waiting = asyncio.ensure_future(run("node", "drain", "w1", "--reason", "fan"))
    await eventually(is_decided)
    (first,) = await drains(ledger)
    late = NodeDrainTimedOut(intent=first.id, left=3)
    await publish(ledger, [event(late, "w1", source=WRITER)])
    done = await waiting
    assert (done.code, "3 pods are left on node w1 after the time-out" in done.err) == (1, True), done


@pytest.mark.usefixtures("ledger")
async def test_a_request_can_end_by_itself(run: Run) -> None:
    asked = await run("node", "cordon", "w1", "--reason", "fan", "--for", "4h")
    assert " until 20" in asked.err
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert found["expires_at"] > found["requested_at"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("cordon", "a b", "--reason", "x"), "'a b' as the name of a node is not valid"),
        (("uncordon", "w1", "--owner", "x" * 254), "--owner has 1 to 253 characters"),
        (("cordon", "w1", "--reason", " "), "--reason has 1 to 253 characters"),
        (("cordon", "w1", "--reason", "x", "--taint", "broken"), "no taint of the form KEY[=VALUE]:EFFECT"),
        (("cordon", "w1", "--reason", "x", "--taint", "a b:NoSchedule"), "The key 'a b' of the taint is not valid"),
        (("cordon", "w1", "--reason", "x", "--label", "broken"), "no label of the form KEY=VALUE"),
        (("cordon", "w1", "--reason", "x", "--label", "a=b c"), "The value 'b c' of the label is not valid"),
        (("cordon", "w1", "--reason", "x", "--for", "soon"), "is not a time"),
        (("drain", "w1", "--reason", "x", "--timeout", "9d"), "--timeout is from 1s to 7d, and not 9d"),
        (("drain", "w1", "--reason", "x", "--device", "3"), "'3' is no UUID of a card or a MIG instance"),
        (("drain", "w1", "--reason", "x", *["--device=GPU-1"] * 65), "at most 64 --device"),
        (("drain", "w1", "--reason", "x", "--namespace-mode", "team"), "'team' is no mode of the form PATTERN=MODE"),
        (("drain", "w1", "--reason", "x", "--namespace-mode", "a=Now"), "The mode is Immediate, DeleteAfterTimeout"),
        (("drain", "w1", "--reason", "x", *["--namespace-mode=a=Immediate"] * 17), "at most 16 --namespace-mode"),
        (("uncordon", "w1"), "has no request about node w1. Nobody has"),
        (("cordon", "w1", "--reason", "x", *["--label=a=b"] * 17), "A request has at most 16 --label"),
    ],
)
@pytest.mark.usefixtures("ledger")
async def test_what_makes_no_sense_is_refused(run: Run, options: tuple[str, ...], problem: str) -> None:
    refused = await run("node", *options)
    assert refused.code != 0
    assert problem in refused.err


@pytest.mark.usefixtures("ledger")
async def test_who_releases_for_somebody_else_is_shown_for_whom(run: Run) -> None:
    await run("node", "cordon", "w1", "--reason", "x", "--owner", "operators/ada")
    refused = await run("node", "uncordon", "w1")
    assert "These have: operators/ada. Give one as --owner" in refused.err


@pytest.mark.usefixtures("ledger")
async def test_there_is_no_history_of_it_in_event_time(run: Run) -> None:
    refused = await run("get", "maintenance", "--at", "-1h")
    assert (refused.code != 0, "history" in refused.err) == (True, True), refused


async def test_who_releases_or_asks_from_a_slow_clock_is_heard(run: Run, ledger: JetStreamLedger) -> None:
    ahead = system_clock() + timedelta(hours=1)
    first = NodeMaintenanceRequested(owner="health/gpu", reason="Unhealthy")
    events = [event(observed(), "w1", source=WATCHERS), event(first, "w1", source="/services/health")]
    await publish(ledger, [events[0], events[1]._replace(time=ahead)])
    released = await run("node", "uncordon", "w1", "--owner", "health/gpu")
    assert released.code == 0, released
    (left,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (left["owner"], left["cordon"]) == (None, False)
    await run("node", "cordon", "w1", "--owner", "health/gpu", "--reason", "again")
    (found,) = (await run("get", "maintenance", "-o", "json")).json()
    assert (found["owner"], found["reason"]) == ("health/gpu", "again")


async def test_a_request_that_lapsed_is_shown_as_such(run: Run, ledger: JetStreamLedger) -> None:
    await publish(ledger, [event(observed(), "w1", source=WATCHERS)])
    await run("node", "cordon", "w1", "--reason", "x", "--owner", "operators/ada")
    await run("node", "drain", "w1", "--reason", "y", "--owner", "operators/ben", "--no-wait")
    assert (await run("get", "maintenance")).code == 0
    decided = [
        decode(one.data) for one in await everything(ledger) if one.subject.startswith("ledger.svc.maintenance.")
    ]
    newest = [one for one in decided if isinstance(one.data, NodeIsolationChanged)][-1]
    (drain,) = await drains(ledger)
    outcomes = [
        NodeIsolationSuperseded(intent=newest.id, reason="Expired"),
        NodeDrainSuperseded(intent=drain.id, reason="NotCordoned"),
    ]
    await publish(ledger, [event(one, "w1", number=number, source=WRITER) for number, one in enumerate(outcomes, 1)])
    found = (await run("get", "maintenance", "-o", "json")).json()
    assert [(one["owner"], one["state"], one["drain"]) for one in found] == [
        ("operators/ada", "Lapsed", "Superseded"), ("operators/ben", "Lapsed", "Superseded"),
    ]  # fmt: skip
    assert "Ask for it again" in found[0]["detail"]
