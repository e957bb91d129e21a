"""How admission follows the ledger: nothing before its end, on after an outage, and not past a hole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpuledger.edge.admission.rules.access import BREAK_GLASS
from gpuledger.edge.admission.service import AdmissionService
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.webhooks.serving.review import DELETE, AdmissionResponse, Requester
from gpuledger.events.device import DeviceBreakGlassUsed
from gpuledger.events.envelope import decode
from gpuledger.events.position import number_of
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.tasks import end
from support.admission import TEAM, log, namespace, pod_with, pool, review
from support.admission_serving import NobodyThere
from support.events import event, outgoing
from support.waiting import eventually

SAID = [namespace(), *pool(f"{TEAM}/local-x")]
QUESTION = review("pods", pod_with("gpu.deckhouse.io/local-x"))
SOON = Backoff(first_s=0.01, max_s=0.01)
SETTINGS = AdmissionSettings(listen="127.0.0.1:0", stopped_retry_s=0.01, backoff=SOON)


class Faltering(MemoryLedger):
    """A ledger that can be away, or withhold its history."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.may_be_read = asyncio.Event()
        self.may_be_read.set()

    async def history(self, *given: Any, **named: Any) -> AsyncIterator[list[Message]]:
        async for messages in super().history(*given, **named):
            await self.may_be_read.wait()
            if self.is_away:
                raise LedgerUnavailableError("It is away.")
            yield messages


@pytest.fixture
def ledger() -> Faltering:
    return Faltering()


@asynccontextmanager
async def following(ledger: MemoryLedger) -> AsyncIterator[AdmissionService]:
    admission = AdmissionService(ledger, NobodyThere(), SETTINGS, jitter=lambda: 0.0)
    running = asyncio.create_task(admission.run())
    try:
        yield admission
    finally:
        await end([running])


async def record(ledger: MemoryLedger) -> None:
    for message in log(*SAID):
        await ledger.publish(Outgoing(message.subject, str(message.sequence), message.data))


async def until_answering(admission: AdmissionService) -> AdmissionResponse:
    async def answers() -> bool:
        return admission.decide(QUESTION) is not None

    await eventually(answers)
    verdict = admission.decide(QUESTION)
    assert verdict is not None
    return verdict


async def test_nothing_is_answered_before_the_ledgers_end(ledger: Faltering) -> None:
    await record(ledger)
    ledger.may_be_read.clear()
    async with following(ledger) as admission:

        async def listens() -> bool:
            return admission.health().url is not None

        await eventually(listens)
        assert admission.decide(QUESTION) is None
        assert not admission.health().is_ready
        ledger.may_be_read.set()
        assert (await until_answering(admission)).is_allowed


async def test_the_glass_is_watched_before_the_ledgers_end_and_at_the_end_of_the_service(ledger: Faltering) -> None:
    member = Requester("eva", frozenset({BREAK_GLASS}))
    deletion = review("gpudevices", None, {"metadata": {"name": "d1"}}, operation=DELETE, user=member)
    ledger.may_be_read.clear()
    async with following(ledger) as admission:

        async def listens() -> bool:
            return admission.health().url is not None

        await eventually(listens)
        admission.watch(deletion)
        admission.watch(deletion)
        admission.watch(QUESTION)
    ledger.may_be_read.set()
    (batch,) = [batch async for batch in ledger.history()]
    (found,) = [decode(one.data) for one in batch]
    assert (found.subject, found.data) == ("d1", DeviceBreakGlassUsed(user="eva", operation="DELETE"))


async def test_it_waits_for_a_ledger_that_is_away(ledger: Faltering) -> None:
    await record(ledger)
    ledger.is_away = True
    async with following(ledger) as admission:

        async def is_counted() -> bool:
            return admission.health().reason is not None

        await eventually(is_counted)
        assert admission.decide(QUESTION) is None
        ledger.is_away = False
        assert (await until_answering(admission)).is_allowed


async def test_what_is_recorded_later_counts(ledger: Faltering) -> None:
    async with following(ledger) as admission:
        assert (await until_answering(admission)).reason == "PoolNotFound"
        await record(ledger)

        async def allows() -> bool:
            verdict = admission.decide(QUESTION)
            is_read = admission.health().position == len(SAID)
            return is_read and verdict is not None and verdict.is_allowed

        await eventually(allows)


async def test_an_event_that_does_not_fold_stops_the_answers_until_it_is_skipped(ledger: Faltering) -> None:
    await record(ledger)
    async with following(ledger) as admission:
        await until_answering(admission)
        bad = outgoing(event(namespace()[1], "n", number=99, source="/watchers/all"))
        receipt = await ledger.publish(bad._replace(data=bad.data.replace(b'"uid":"u"', b'"uid":7'), id="bad"))

        async def is_stopped() -> bool:
            return admission.health().state == "stopped"

        await eventually(is_stopped)
        assert admission.decide(QUESTION) is None
        skip = SourcePositionSkipped(generation=1, sequence=number_of(receipt.sequence), reason="A test.")
        await ledger.publish(outgoing(event(skip, "/watchers/all", source="/operators/cli")))
        assert (await until_answering(admission)).is_allowed
        assert admission.health().state != "stopped"
