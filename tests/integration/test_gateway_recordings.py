"""What NVSentinel's monitors were recorded to send, sent over TCP by a reporter for the whole cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuledger.ledger.jetstream import JetStreamLedger
from support.gateway import Gateways, gateways
from support.health_monitor import Answer
from support.paths import ROOT
from support.tool_outputs import health_requests

FOLDER = ROOT.parent / "shared" / "recordings"


@pytest.fixture
async def here(root: Path, ledger: JetStreamLedger) -> AsyncIterator[Gateways]:
    async with gateways(root, ledger) as here:
        yield here


@pytest.mark.shared
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no outputs of tools in {FOLDER}")
async def test_every_recorded_event_is_taken(here: Gateways) -> None:
    requests = health_requests(FOLDER)
    assert requests
    token = await here.token("n1", account="cluster")
    async with here.serving() as ports, here.monitor(ports.tokens, token=token) as monitor:
        for name, request in requests.items():
            assert await monitor.send(request) == Answer("OK"), name
    events, reports = await here.events(), await here.reports()
    sent = [event for request in requests.values() for event in request.events]
    assert {event.subject for event in events} == {event.nodeName for event in sent}
    assert sum(one.count for one in reports) == len({event.SerializeToString() for event in sent})
    assert {code for one in reports for code in one.codes} == {code for event in sent for code in event.errorCode}
