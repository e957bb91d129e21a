"""Explains why a node is set aside, or is not though something on it is unhealthy: reads its events, in order."""

from datetime import datetime
from typing import Final

from gpuledger.domain.fact import counted_as_recorded
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.position import order
from gpuledger.events.quarantine import QuarantineBreakerReset
from gpuledger.events.subjects import ROOT, aggregate_filter, escape
from gpuledger.ledger.api import Message
from gpuledger.tools.errors import RequestError
from gpuledger.tools.explain.node_document import Document, node_document
from gpuledger.tools.explain.node_events import Recorded
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.named_events import messages_about

NO_SUCH: Final = "List them with `gpuledger get nodes`"


async def why_node(backend: Backend, node: str, at: datetime | None, moment: str) -> Document:
    """The explanation of a node, from what had happened up to a time.

    Raises:
        RequestError: the ledger has no events about it.
    """
    about = [one async for messages in messages_about(backend, "node", node) for one in messages]
    if not about:
        raise RequestError(f"The ledger has no events about a node {node!r}", NO_SUCH)
    slot = f"{node}/"
    other = [
        one
        for subject in (
            f"{ROOT}.node.{escape(node)}.{DeviceHealthChanged.AGGREGATE}.*.{DeviceHealthChanged.EVENT}",
            f"{ROOT}.*.*.{DeviceDetached.AGGREGATE}.*.{DeviceDetached.EVENT}",
            aggregate_filter(QuarantineBreakerReset.AGGREGATE),
        )
        async for messages in backend.ledger.history(subject_filter=subject)
        for one in messages
    ]
    found = _recorded(backend, sorted((*about, *other), key=lambda one: order(one.sequence)))
    return node_document(node, moment, [one for one in found if _counts(one, slot, at)])


def _recorded(backend: Backend, messages: list[Message]) -> list[Recorded]:
    found: dict[str, Recorded] = {}
    for message in messages:
        try:
            event = decode(message.data, registry)
        except EventError:
            continue
        position = str(backend.ledger.generations.position(message.sequence))
        recorded = Recorded(event, position, counted_as_recorded(event, message.recorded_ns))
        found.setdefault(event.id, recorded)
    return list(found.values())


def _counts(one: Recorded, slot: str, at: datetime | None) -> bool:
    data = one.event.data
    is_here = not isinstance(data, DeviceDetached) or data.slot.startswith(slot)
    return is_here and (at is None or one.event.time <= at)
