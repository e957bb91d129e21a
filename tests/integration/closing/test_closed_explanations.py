"""`why` and `what-if` of a past that lies in a closed generation, whose stream is gone: the answers stay the same."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.events.envelope import decode
from gpuledger.events.pod import PodObserved
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.settings import Servers
from support.cli import Run
from support.closing import close_at, opened
from support.pools import PoolsLog, detected, marked, pool, state

POOL, UNITS = "team-a/a", "gpu.deckhouse.io/a"
MANIFEST = """
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: a, namespace: team-a}
spec:
  resource: {unit: Card, slicesPerUnit: 2}
  deviceAssignment: {requireAnnotation: false, autoApproveSelector: {matchLabels: {tier: gold}}}
"""


def history() -> PoolsLog:
    """A pool that has w1-0 and a pod that uses it; another pod waits, and w1-1 is free and gold."""
    pools = PoolsLog().begin("w1", devices=0)
    for number in range(2):
        pools.record(f"w1-{number}", detected("w1").model_copy(update={"card": f"GPU-{number}"}))
        pools.record(f"w1-{number}", state("Ready"))
    pools.record(POOL, pool(slices_per_unit=2))
    pools.assign("w1-0", POOL)
    pools.record("w1-1", marked(tier="gold"))
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={UNITS: 1}))
    pools.record("team-a/waits", PodObserved(uid="v", requests={UNITS: 2}))
    return pools


async def record(ledger: JetStreamLedger, servers: Servers, log: list[Message]) -> None:
    await ledger.publish_many([Outgoing(one.subject, decode(one.data).id, one.data) for one in log])
    assert await Runner(PoolsProjection(), ledger, servers.database_url).catch_up(await ledger.head())


JOINS = {"answer": "1 device would join; total 2 → 4", "devices": ["w1-1"]}
IN_USE = {"answer": f"2 units of {UNITS} requested, and 1 of 2 is free: 1 pod has the others"}


async def answered(cli: Run, *command: str) -> dict[str, Any]:
    """The answer of a command, and the devices that would change."""
    found = await cli(*command, "-o", "json")
    assert found.code == 0, found.err
    document = found.json()
    devices = {"devices": [one["name"] for one in document["devices"]]} if "devices" in document else {}
    return {"answer": document["answer"], **devices}


@pytest.mark.parametrize("part", [None, 0.5, 1.0], ids=["never", "in the middle", "at the end"])
async def test_a_log_that_was_closed_gives_the_answers_of_one_that_was_not(
    servers: Servers, location: str, cli: Run, tmp_path: Path, part: float | None
) -> None:
    manifest = tmp_path / "new.yaml"
    manifest.write_text(MANIFEST)
    log = history().log
    end = round((part or 0) * len(log))
    async with opened(servers) as ledger:
        if part is not None:
            await record(ledger, servers, log[:end])
            await close_at(servers, location)
            await ledger.go_on()
            deleted = await cli("log", "archive", "delete-stream", location, "1", "--yes")
            assert deleted.code == 0, deleted.err
        await record(ledger, servers, log[end:])
        assert ledger.generation == (1 if part is None else 2)
    for since in ((), ("--since", "0"), ("--since", "5")):
        assert await answered(cli, "what-if", "pool", "-f", str(manifest), *since) == JOINS
    assert await answered(cli, "why", "pod", "team-a/waits", "--no-kube") == IN_USE
