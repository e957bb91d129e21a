"""The real webhooks before an API server, which calls them over HTTPS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from gpuledger.api.kinds import NAMESPACE, NAMESPACES
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.admission.service import AdmissionService
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import AlreadyExistsError, UnavailableError
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.events.position import is_at_or_after, number_of
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.admission import SOURCES, RecordedFact
from support.events import event, outgoing
from support.waiting import eventually

CHECK_S = 0.05


class Now:
    """A clock that stands where it is put."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def __call__(self) -> datetime:
        return self.time


class NobodyThere(KubeClient):
    """A client whose API server is away: certificates cannot be kept, and reviews are none of its business."""

    def __init__(self) -> None:
        self.url = "https://nowhere.invalid"

    async def get(self, *_: Any, **__: Any) -> Any:
        raise UnavailableError("Nobody answers.")


class Webhooks:
    """Running webhooks, and the ledger that they follow."""

    def __init__(self, admission: AdmissionService, ledger: Ledger) -> None:
        self.admission = admission
        self._ledger = ledger
        self._numbers: dict[str, int] = {}

    async def record(self, *facts: RecordedFact) -> None:
        """Record facts and decisions, and wait until the webhooks know them."""
        for subject, data in facts:
            source = SOURCES[data.PUBLISH_RULE.publishers[0]]
            number = self._numbers[source] = self._numbers.get(source, 0) + 1
            new_event = event(data, subject, number=number, at=number_of(await self._ledger.head()), source=source)
            await self._ledger.publish(outgoing(new_event))
        head = await self._ledger.head()

        async def has_read() -> bool:
            return is_at_or_after(self.admission.health().position, head)

        await eventually(has_read)


@asynccontextmanager
async def webhooks(
    client: KubeClient, ledger: Ledger | None = None, sharing: SharingNames | None = None, **more: Any
) -> AsyncIterator[Webhooks]:
    """Webhooks that are configured in an API server of their ledger; `more` are arguments of the service."""
    with suppress(AlreadyExistsError):
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    ledger = ledger or MemoryLedger()
    await claim(client, owner(ledger.identity.ledger_id, system_clock()), "of the test")
    names = sharing or SharingNames()
    settings = AdmissionSettings(listen="127.0.0.1:0", address=None, certificates_check_s=CHECK_S, sharing=names)
    admission = AdmissionService(ledger, client, settings, **more)
    running = asyncio.create_task(admission.run())
    try:

        async def is_kept() -> bool:
            if running.done():
                await running
            return admission.is_configured and admission.health().is_ready

        await eventually(is_kept)
        yield Webhooks(admission, ledger)
    finally:
        await end([running])
