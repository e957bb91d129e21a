"""`gpuledger remediation`: what it records and shows, and what it refuses with the file, the remedy and the place."""

import getpass
from pathlib import Path

import pytest

from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.events.envelope import decode
from gpuledger.events.remediation import REMEDIATION, RemediationRetryRequested, RemediationRulesApplied
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from support.cli import Run
from support.enforcing import enforce
from support.ledgers import everything
from support.paths import ROOT
from support.projections import QUICK_SERVICE, publish, reaches, running
from support.remediation import RemediationLog, fault

EXAMPLE = ROOT / "examples" / "remediation-rules.yaml"


async def test_remedies_are_shown_as_they_were_applied(run: Run, ledger: JetStreamLedger) -> None:
    assert (await run("remediation", "rules", "-o", "json")).json() == []
    dry = await run("remediation", "apply", "-f", str(EXAMPLE), "--dry-run")
    assert (dry.code, "is valid: 3 remedies, version " in dry.err) == (0, True), dry
    applied = await run("remediation", "apply", "-f", str(EXAMPLE))
    assert (applied.code, f"3 remedies of {EXAMPLE} are in force" in applied.err) == (0, True), applied
    first, *_ = (await run("remediation", "rules", "-o", "json")).json()
    assert (first["remedy"], first["group"], first["scope"], first["escalate_to"], first["attempts"]) == (
        "reset-gpu", "restart", "Device", "reboot", "3 in 86400 s",
    )  # fmt: skip
    assert (await run("remediation", "list", "-o", "json")).json() == []
    again = await run("remediation", "apply", "-f", str(EXAMPLE))
    assert (again.code, "nothing was recorded" in again.err) == (0, True), again
    (own,) = [decode(one.data) for one in await everything(ledger) if ".svc.operators." in one.subject]
    assert isinstance(own.data, RemediationRulesApplied)
    assert (own.source, own.subject) == (f"/operators/{getpass.getuser()}", REMEDIATION)


@pytest.mark.usefixtures("ledger")
async def test_what_is_wrong_is_not_recorded(run: Run, ledger: JetStreamLedger, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(EXAMPLE.read_text().replace("${device}", "${gpu}", 1))
    refused = await run("remediation", "apply", "-f", str(file))
    expected = "remedies[0] 'reset-gpu': template.spec.selector.uuids[0]: there is no placeholder ${gpu}"
    assert (refused.code != 0, f"{file}: {expected}" in refused.err) == (True, True), refused
    assert not [one for one in await everything(ledger) if ".svc.operators." in one.subject]


async def test_what_nodes_got_and_wait_for_is_listed(run: Run, ledger: JetStreamLedger, migrated_url: str) -> None:
    await enforce(ledger, migrated_url)
    log = RemediationLog()
    log.record("n1", fault("0"), 10)
    (request,) = log.set_aside("n1", 11)
    log.record("n2", fault("1"), 12)
    facts = [event for event, _ in log.log if event.source != "/services/remediation"]
    own = [event for event, _ in log.log if event.source == "/services/remediation"]
    await publish(ledger, [*facts, *own])
    async with running(Runner(RemediationProjection(), ledger, migrated_url, settings=QUICK_SERVICE)):
        await reaches(migrated_url, "remediation", await ledger.head())
    rows = (await run("remediation", "list", "-o", "json")).json()
    waiting = next(one for one in rows if one["node"] == "n2")
    assert (waiting["state"], waiting["remedy"], waiting["id"]) == ("Waiting", "reboot", None)
    assert "the node is not set aside for it" in waiting["detail"]
    assert any(one["node"] == "n1" for one in rows)
    missing = await run("remediation", "show", request.id[:3])
    assert "There is no remediation" in missing.err


async def test_a_remedy_is_tried_again_by_an_event_of_the_operator(
    run: Run, ledger: JetStreamLedger, migrated_url: str
) -> None:
    await enforce(ledger, migrated_url)
    story = RemediationLog()
    story.record("n1", fault("0"), 10)
    (request,) = story.set_aside("n1", 11)
    story.finish(request, "Refused", 20)
    await publish(ledger, [event for event, _ in story.log])
    nothing = await run("remediation", "retry", "n2", "--reason", "mended", "--yes")
    assert (nothing.code != 0, "No fault of n2 waits for a person" in nothing.err) == (True, True), nothing
    empty = await run("remediation", "retry", "n1", "--reason", " ", "--yes")
    assert "--reason has 1 to " in empty.err
    done = await run("remediation", "retry", request.id[:8], "--reason", "the CRD is there", "--yes")
    assert (done.code, "1 faults of n1 may get their remedy again" in done.err) == (0, True), done
    own = [decode(one.data) for one in await everything(ledger) if ".svc.operators." in one.subject][-1]
    assert isinstance(own.data, RemediationRetryRequested)
    assert (own.source, own.subject) == (f"/operators/{getpass.getuser()}", "n1")
    assert (own.data.remediation, own.data.reason) == (request.id, "the CRD is there")
    shown = (await run("remediation", "show", request.id, "-o", "json")).json()
    assert "Retried" in str(shown)
    rows = (await run("remediation", "list", "-o", "json")).json()
    assert "Attention" not in {one["state"] for one in rows}
    why = (await run("why", "node", "n1", "-o", "json")).json()
    (asked,) = why["requests"]
    hops = [(one["hop"], one["detail"]) for one in asked["hops"]]
    assert ("retry requested", "the CRD is there") in hops
