"""`gpuledger quarantine`: what it records and shows, and what it refuses with the file, the ruleset and the place."""

import getpass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset, is_after
from gpuledger.events.quarantine import QUARANTINE, QuarantineBreakerReset, QuarantineRulesApplied
from gpuledger.events.slice import SlicePublished
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.applied_documents import ATTEMPTS_MAX, apply_document, apply_first
from gpuledger.tools.errors import ToolBusyError
from gpuledger.tools.operators import record
from gpuledger.tools.quarantine.example import example_rules
from gpuledger.tools.queries.backend import Backend
from support.cli import Run
from support.enforcing import enforce
from support.events import event
from support.ledger_double import LedgerDouble
from support.ledgers import everything
from support.paths import ROOT
from support.projections import QUICK_SERVICE, publish, reaches, running
from support.quarantine import GPU_FATAL, labelled, reported, rules
from support.waiting import eventually

EXAMPLE = ROOT / "examples" / "quarantine-rules.yaml"
ME = f"operators/{getpass.getuser()}"


@pytest.mark.usefixtures("ledger")
async def test_rules_are_shown_as_they_were_applied(run: Run) -> None:
    assert (await run("quarantine", "rules", "-o", "json")).json() == []
    dry = await run("quarantine", "apply", "-f", str(EXAMPLE), "--dry-run")
    assert (dry.code, "is valid: 5 rulesets, version " in dry.err) == (0, True), dry
    assert (await run("quarantine", "rules", "-o", "json")).json() == []
    applied = await run("quarantine", "apply", "-f", str(EXAMPLE))
    assert (applied.code, f"5 rulesets of {EXAMPLE} are in force" in applied.err) == (0, True), applied
    first, *_ = (await run("quarantine", "rules", "-o", "json")).json()
    assert (first["ruleset"], first["priority"], first["actions"], first["matched"]) == (GPU_FATAL, 100, ["cordon"], 0)
    status = (await run("quarantine", "status", "-o", "json")).json()
    assert [(one["breaker"], one["nodes"], one["version"]) for one in status] == [("Closed", 0, first["version"])]
    assert (await run("quarantine", "faults", "-o", "json")).json() == []


async def test_a_fleet_that_has_rules_keeps_them(run: Run, ledger: JetStreamLedger) -> None:
    assert await apply_first(ledger, example_rules(), QUARANTINE) == ledger.generations.position(1)
    assert await apply_first(ledger, example_rules(), QUARANTINE) is None
    assert await apply_first(ledger, rules(), QUARANTINE) is None
    found = (await run("quarantine", "rules", "-o", "json")).json()
    assert {one["file"] for one in found} == {"examples/quarantine-rules.yaml"}


class Overtaken(LedgerDouble):
    """Somebody else applies rules behind each look at the last ones, for as long as there are any."""

    def __init__(self, ledger: JetStreamLedger, others: list[QuarantineRulesApplied]) -> None:
        super().__init__(ledger)
        self._ledger, self._others = ledger, others

    async def last_sequence(self, subject_filter: str) -> Offset:
        found = await super().last_sequence(subject_filter)
        if self._others:
            await record(self._ledger, QUARANTINE, self._others.pop())
        return found


async def test_of_two_who_apply_the_same_rules_at_once_one_records_them(ledger: JetStreamLedger) -> None:
    mine, other = example_rules(), rules()
    applied = await apply_document(backend(Overtaken(ledger, [mine])), mine, QUARANTINE)
    assert applied == (ledger.generations.position(await ledger.head()), False)
    third = other.model_copy(update={"digest": "b" * 64})
    assert (await apply_document(backend(Overtaken(ledger, [other])), third, QUARANTINE)).is_new
    with pytest.raises(ToolBusyError, match="Another document is being recorded"):
        await apply_document(backend(Overtaken(ledger, [other] * ATTEMPTS_MAX)), mine, QUARANTINE)


async def test_of_two_fleets_that_start_at_once_one_records_rules(ledger: JetStreamLedger) -> None:
    assert await apply_first(Overtaken(ledger, [rules()]), example_rules(), QUARANTINE) is None
    assert len([one for one in await everything(ledger) if ".svc.operators." in one.subject]) == 1


def backend(ledger: JetStreamLedger) -> Backend:
    """What applies rules; it asks the ledger alone."""
    return Backend(ledger, "", "", None)


async def test_rules_that_are_in_force_are_not_recorded_again(
    run: Run, ledger: JetStreamLedger, tmp_path: Path
) -> None:
    other, copy = tmp_path / "other.yaml", tmp_path / "copy.yaml"
    other.write_text(EXAMPLE.read_text().replace("percentage: 50", "percentage: 10"))
    copy.write_text(EXAMPLE.read_text() + "# A comment makes no other rules.\n")

    async def applied(file: Path, *, is_new: bool) -> None:
        before = await ledger.head()
        done = await run("quarantine", "apply", "-f", str(file))
        assert (done.code, "nothing was recorded" in done.err) == (0, not is_new), done
        assert is_after(await ledger.head(), before) is is_new

    await applied(EXAMPLE, is_new=True)
    await applied(copy, is_new=False)
    await applied(other, is_new=True)
    await applied(EXAMPLE, is_new=True)
    await applied(EXAMPLE, is_new=False)
    assert (await run("log", "skip", str(await ledger.head()), "--reason", "a test", "--yes")).code == 0
    await applied(EXAMPLE, is_new=True)


async def test_the_breaker_is_shown_and_reset_by_whoever_has_looked(
    run: Run, ledger: JetStreamLedger, migrated_url: str
) -> None:
    assert (await run("quarantine", "apply", "-f", str(EXAMPLE))).code == 0
    await enforce(ledger, migrated_url)
    nodes = [event(labelled(), name, number=number, source="/watchers/nodes") for number, name in enumerate("ab", 1)]
    now = system_clock()
    reports = [
        event(reported("0"), name, source=f"/nodes/{name}/agent", event_id=f"report-{name}")._replace(time=now)
        for name in "ab"
    ]
    async with running(Runner(HealthProjection(), ledger, migrated_url, settings=QUICK_SERVICE)):
        await publish(ledger, [*nodes, *reports])

        async def is_open() -> bool:
            return any(one.subject.startswith("ledger.svc.health.quarantine.") for one in await everything(ledger))

        await eventually(is_open)
        await reaches(migrated_url, "health", await ledger.head())
    (status,) = (await run("quarantine", "status", "-o", "json")).json()
    assert (status["breaker"], status["nodes"], status["set_aside"], status["held_back"]) == ("Open", 2, 1, 1)
    assert status["detail"] == f"b would have been 2 of 2 nodes, by {GPU_FATAL!r} (report report-b)"
    faults = (await run("quarantine", "faults", "-o", "json")).json()
    assert [(one["node"], one["state"], one["owner"]) for one in faults] == [
        ("a", "Accepted", f"health/{GPU_FATAL}"),
        ("b", "Held", None),
    ]
    assert "needs your consent" in (await run("quarantine", "reset", "--reason", "looked")).err
    assert (await run("quarantine", "reset", "--reason", "looked", "--yes")).code == 0
    (status,) = (await run("quarantine", "status", "-o", "json")).json()
    assert (status["breaker"], status["reset_by"]) == ("Closed", ME)
    assert "The circuit breaker is closed" in (await run("quarantine", "reset", "--reason", "again", "--yes")).err
    own = [decode(one.data) for one in await everything(ledger) if ".svc.operators." in one.subject]
    assert [type(one.data) for one in own] == [QuarantineRulesApplied, QuarantineBreakerReset]
    assert {(one.source, one.subject) for one in own} == {(f"/{ME}", QUARANTINE)}


async def test_what_is_wrong_is_not_recorded(run: Run, ledger: JetStreamLedger, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(EXAMPLE.read_text().replace("event.componentClass == 'GPU'", "event.colour == 'red'", 1))
    refused = await run("quarantine", "apply", "-f", str(file))
    expected = "ruleSets[0] 'GPU fatal error ruleset': match.all[1].expression: event has no field colour"
    assert (refused.code != 0, f"{file}: {expected}" in refused.err) == (True, True), refused
    missing = await run("quarantine", "apply", "-f", str(tmp_path / "none.yaml"))
    assert "cannot be read" in missing.err
    assert not [one for one in await everything(ledger) if ".svc.operators." in one.subject]


CARD_DRAIN = """
kind: QuarantineRules
ruleSets:
  - name: cards
    match: {all: [{kind: HealthEvent, expression: event.isFatal}]}
    drain: {mode: Immediate, scope: device}
circuitBreaker: {percentage: 100}
"""


async def test_what_if_rules_had_been_in_force(
    run: Run, ledger: JetStreamLedger, migrated_url: str, tmp_path: Path
) -> None:
    await enforce(ledger, migrated_url)
    nodes = [event(labelled(), name, number=number, source="/watchers/nodes") for number, name in enumerate("abc", 1)]
    now, agent = system_clock(), "/nodes/a/agent"
    place = {"node": "a", "namespace": "team", "pod": "train", "container": "main"}
    units = {"resources": [{"resource": "nvidia.com/gpu", "devices": ["GPU-1"]}]}
    held = AllocationObserved.model_validate({**place, **units})
    facts = [
        event(held, "a/team/train/main", source=agent, number=1)._replace(time=now - timedelta(minutes=1)),
        event(reported("0"), "a", source=agent, number=2)._replace(time=now),
        event(reported("0", healthy=True), "a", source=agent, number=3)._replace(time=now + timedelta(seconds=1)),
    ]
    await publish(ledger, [*nodes, *facts])
    before = await ledger.head()
    answer = await run("what-if", "quarantine", "-f", str(EXAMPLE), "--since", "1h", "-o", "json")
    assert answer.code == 0, answer
    (found,) = answer.json()
    assert (found["node"], found["would"], found["pods"], found["was"]) == ("a", GPU_FATAL, 1, None)
    assert found["would_until"] >= found["would_since"]
    assert "2 reports were judged by version " in answer.err
    (other,) = (await run("what-if", "quarantine", "-f", str(EXAMPLE), "--since", "0", "-o", "json")).json()
    assert (other, found["drained"]) == (found, None)
    drains = tmp_path / "drains.yaml"
    drains.write_text(EXAMPLE.read_text().replace("enabled: false", "priority: 200").replace("inference-*", "te*"))
    answered = (await run("what-if", "quarantine", "-f", str(drains), "--since", "1h", "-o", "json")).json()
    assert [one["drained"] for one in answered] == [["team/train (Immediate)"], None]
    assert await ledger.head() == before, "it records nothing"


async def test_what_if_cards_were_drained_names_who_has_an_instance_or_a_claim_of_them(
    run: Run, ledger: JetStreamLedger, migrated_url: str, tmp_path: Path
) -> None:
    await enforce(ledger, migrated_url)
    card, now, agent = "GPU-1", system_clock(), "/nodes/a/agent"
    before = now - timedelta(minutes=1)
    survey: dict[str, Any] = {"uuid": card, "pci_address": "0000:17:00.0", "pci_vendor": "10de", "pci_device": "20b5"}
    survey["mig_instances"] = [{"uuid": "MIG-1", "profile": "1g.10gb", "start": 0}]
    pool = {"driver": "gpu.example.com", "pool": "a"}
    offered: dict[str, Any] = {"uid": "s", "pool_generation": 1, "slice_count": 1, **pool}
    offered["devices"] = [{"name": "gpu-0", "attributes": {"uuid": card}}]
    place = {"node": "a", "namespace": "team", "container": "main"}
    found: dict[str, dict[str, Any]] = {
        "whole": {"resources": [{"resource": "nvidia.com/gpu", "devices": [card]}]},
        "part": {"resources": [{"resource": "nvidia.com/mig-1g.10gb", "devices": ["MIG-1"]}]},
        "claim": {"claims": [{"claim": "c", "device": "gpu-0", **pool}]},
        "other": {"resources": [{"resource": "nvidia.com/gpu", "devices": ["GPU-2"]}]},
        "odd": {"resources": [{"resource": "nvidia.com/gpu", "devices": ["MIG-2"]}]},
    }
    held = [AllocationObserved.model_validate({**place, "pod": name, **units}) for name, units in found.items()]
    fault = reported(entities=[{"type": "GPU_UUID", "value": card}], devices=[card])
    facts: list[tuple[Payload, str, datetime]] = [
        (NodeDevicesObserved.model_validate({"cards": [survey]}), "a", before),
        *((one, f"a/team/{one.pod}/main", before) for one in held),
        (fault, "a", now),
    ]
    of_agent = [
        event(data, subject, source=agent, number=number)._replace(time=time)
        for number, (data, subject, time) in enumerate(facts, 1)
    ]
    slices = event(SlicePublished.model_validate(offered), "s1", source="/watchers/resourceslices", number=1)
    nodes = event(labelled(), "a", source="/watchers/nodes", number=1)
    await publish(ledger, [nodes, slices._replace(time=before), *of_agent])
    document = tmp_path / "cards.yaml"
    document.write_text(CARD_DRAIN)
    (row,) = (await run("what-if", "quarantine", "-f", str(document), "--since", "1h", "-o", "json")).json()
    assert row["pods"] == 5
    assert row["drained"] == [
        "team/claim (Immediate)",
        "team/odd (stays: the ledger does not say whether it held the card)",
        "team/part (Immediate)",
        "team/whole (Immediate)",
    ]
