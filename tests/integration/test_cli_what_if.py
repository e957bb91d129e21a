"""`gpuledger what-if pool` on real servers: its answers, and that it changes nothing."""

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.events.envelope import decode
from gpuledger.events.pod import PodObserved
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from support.cli import Cli, Result
from support.ledgers import make_ledger_blocking
from support.pools import PoolsLog, applied, detected, marked, pool, state
from support.projections import execute

POOL = "team-a/a"
UNITS = "gpu.deckhouse.io/a"
MANIFEST = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: a, namespace: team-a}
spec:
  resource: {unit: Card, slicesPerUnit: 2%s}
  nodeSelector: {matchLabels: %s}
  deviceAssignment: {requireAnnotation: false, autoApproveSelector: {matchLabels: {tier: gold}}}
"""
GOLD, NOWHERE, LIMITED = (
    MANIFEST % ("", "{}"),
    MANIFEST % ("", "{zone: a}"),
    MANIFEST % (", maxDevicesPerNode: 1", "{}"),
)

Ask = Callable[..., Awaitable[Result]]


@pytest.fixture
async def ask(
    clean_nats_url: str,
    migrated_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Ask:
    """Asks about a manifest."""
    make_ledger_blocking(clean_nats_url)
    for name, value in {"NATS_URL": clean_nats_url, "DATABASE_URL": migrated_url, "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    cli = Cli(capsys)

    async def what_if(manifest: str, *arguments: str) -> Result:
        path = tmp_path / "new.yaml"
        path.write_text(manifest)
        return await asyncio.to_thread(cli, "what-if", "pool", "-f", str(path), *arguments)

    return what_if


def history() -> PoolsLog:
    """A pool that has w1-0 and w1-1; w1-2 is free and gold."""
    pools = PoolsLog().begin("w1", devices=0)
    for number in range(3):
        pools.record(f"w1-{number}", detected("w1").model_copy(update={"card": f"GPU-{number}"}))
        pools.record(f"w1-{number}", state("Ready"))
    pools.record(POOL, pool(slices_per_unit=2))
    pools.assign("w1-0", POOL)
    pools.assign("w1-1", POOL)
    pools.record("w1-2", marked(tier="gold"))
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={UNITS: 1}))
    pools.record("team-a/waits", PodObserved(uid="u", requests={UNITS: 2}))
    return pools


async def publish(ledger: JetStreamLedger, log: Sequence[Message], *, facts_only: bool = False) -> None:
    """Record what was told, with or without what was decided."""
    recorded = (one for one in log if not (facts_only and one.subject.startswith("ledger.svc.pools.")))
    await ledger.publish_many([Outgoing(one.subject, decode(one.data).id, one.data) for one in recorded])


def everything(url: str) -> dict[str, list[Any]]:
    """All rows of all tables of ours."""
    tables = execute(url, "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname LIKE 'gpuledger%%'")
    return {name: sorted(map(repr, execute(url, f"SELECT * FROM {name}"))) for (name,) in tables}


def section(page: str, title: str) -> list[list[str]]:
    """The words of a section's rows."""
    lines = page.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"{title}:"))
    rows = [line.split() for line in lines[start + 3 :]]
    ends = next(index for index, line in enumerate(lines[start + 3 :]) if not line.startswith(" "))
    return rows[:ends]


async def projected(ledger: JetStreamLedger, url: str) -> None:
    assert await Runner(PoolsProjection(), ledger, url).catch_up(await ledger.head())


async def test_a_page(ask: Ask, ledger: JetStreamLedger, migrated_url: str) -> None:
    await publish(ledger, history().log)
    await projected(ledger, migrated_url)
    page = await ask(GOLD)
    assert page.code == 0, page.err
    assert page.out.splitlines()[0].split() == ["Pool:", "GPUPool", POOL]
    (row,) = section(page.out, "Devices that would change")
    assert (row[:2], row[5:]) == (["w1-2", "w1"], [POOL, "(Assigned)", "ApprovedAutomatically", "<none>"])
    (row,) = section(page.out, "Capacities that would change")
    assert row == [POOL, "4", "→", "6", "1", "3", "→", "5", "<none>"]
    assert page.out.splitlines()[-1] == "Answer:  1 device would join; total 4 → 6"


async def test_nothing_would_differ(ask: Ask, ledger: JetStreamLedger, migrated_url: str) -> None:
    pools = history()
    pools.record("w1-2", marked())
    await publish(ledger, pools.log)
    await projected(ledger, migrated_url)
    page = await ask(GOLD)
    assert (page.code, page.out.splitlines()[-1]) == (0, "Answer:  nothing would differ")
    assert "Devices that would change:  <none>" in page.out


@pytest.mark.parametrize("facts_only", [False, True], ids=["all was decided", "the service is behind"])
@pytest.mark.parametrize("rows", ["none", "some", "all"])
async def test_nothing_is_touched_wherever_the_service_is(
    ask: Ask, ledger: JetStreamLedger, migrated_url: str, rows: str, facts_only: bool
) -> None:
    log = history().log
    projected_first = {"none": 0, "some": len(log) - 4, "all": len(log)}[rows]
    await publish(ledger, log[:projected_first], facts_only=facts_only and rows == "all")
    if projected_first:
        await projected(ledger, migrated_url)
    await publish(ledger, log[projected_first:], facts_only=facts_only)
    before = everything(migrated_url), await ledger.head()
    for since in ((), ("--since", "0")):
        answer = await ask(GOLD, "-o", "json", *since)
        assert answer.code == 0, answer.err
        document = answer.json()
        assert [(one["name"], one["would"]["pool"]) for one in document["devices"]] == [("w1-2", POOL)]
        assert document["answer"] == "1 device would join; total 4 → 6"
    assert (everything(migrated_url), await ledger.head()) == before


async def test_what_the_log_has_behind_the_rows_counts(ask: Ask, ledger: JetStreamLedger, migrated_url: str) -> None:
    pools = history()
    await publish(ledger, pools.log)
    await projected(ledger, migrated_url)
    already = len(pools.log)
    pools.record("w1-2", marked("a"))
    pools.record("w1-2", applied(POOL))
    pools.record(POOL, pool(slices_per_unit=2, generation=2))
    await publish(ledger, pools.log[already:])
    answer = (await ask(NOWHERE, "-o", "json")).json()
    assert not any("recorded since" in note for note in answer["notes"])
    assert {one["name"]: one["was"]["phase"] for one in answer["devices"]} == dict.fromkeys(
        ("w1-0", "w1-1", "w1-2"), "Assigned"
    )
    assert answer["answer"] == "3 devices would leave; total 6 → 0"


async def test_a_new_pool_is_the_youngest(ask: Ask, ledger: JetStreamLedger) -> None:
    """Also where the last thing in the log is a pool of the same name."""
    pools = history()
    pools.record("z/new", pool())
    await publish(ledger, pools.log, facts_only=True)
    answer = (await ask(GOLD.replace("name: a,", "name: new,"), "-o", "json")).json()
    (found,) = [one for one in answer["pools"] if one["pool"] == "team-a/new"]
    reasons = {one["type"]: one["reason"] for one in found["would"]["conditions"]}
    assert reasons["Configured"] == "NameCollision"
    assert any("PoolNameTaken: There is the GPUPool z/new already" in note for note in answer["notes"])


async def test_since_a_position(ask: Ask, ledger: JetStreamLedger) -> None:
    await publish(ledger, history().log)
    now = (await ask(LIMITED, "-o", "json")).json()
    assert (now["since"], [one["name"] for one in now["devices"]]) == ("now", [])
    refused = "The API server would refuse this: PoolImmutable: spec.resource cannot change once the pool exists."
    assert any(note.startswith(refused) for note in now["notes"])
    begun = (await ask(LIMITED, "--since", "0", "-o", "json")).json()
    assert begun["since"] == "1/0"
    assert {one["name"]: one["would"]["pool"] for one in begun["devices"]} == {"w1-1": None}
    assert begun["pools"][0]["was"]["capacity"] == {"total": 4, "used": 1, "available": 3}
    assert begun["pools"][0]["would"]["capacity"] == {"total": 2, "used": 1, "available": 1}
    assert "w1-1" in (await ask(LIMITED, "--since", "1/0", "-o", "yaml")).out
    later = await ask(LIMITED, "--since", "99999")
    assert (later.code, "The log ends at position" in later.err) == (2, True)


async def test_from_stdin_with_a_namespace_of_its_own(
    ask: Ask, ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await publish(ledger, history().log)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOLD.replace(", namespace: team-a", "").encode())))
    arguments: Sequence[str] = ("what-if", "pool", "-f", "-", "-n", "team-a", "-o", "json")
    answer = await asyncio.to_thread(Cli(capsys), *arguments)
    assert answer.json()["pool"] == POOL


@pytest.mark.parametrize(
    ("manifest", "code", "why"),
    [
        (f"{GOLD}\n---\n{GOLD}", 2, "has 2 objects. Give the manifest of one GPUPool or ClusterGPUPool."),
        ("kind: Pod\napiVersion: v1", 2, "is Pod of v1, and what-if is about pools."),
        (GOLD.replace("Card", "Slot"), 2, "spec.resource.unit"),
        (GOLD, 0, ""),
    ],
)
async def test_a_wrong_manifest_is_refused_before_any_query(ask: Ask, manifest: str, code: int, why: str) -> None:
    answer = await ask(manifest)
    assert (answer.code, why in answer.err) == (code, True), answer.err
