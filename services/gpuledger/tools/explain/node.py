"""Explains why a node is set aside, or is not though something on it is unhealthy: reads its events, in order."""

from datetime import datetime
from typing import Final

from gpuledger.domain.fact import counted_as_recorded
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged, JudgedReport
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.position import order
from gpuledger.events.quarantine import QuarantineBreakerReset
from gpuledger.events.subjects import ROOT, aggregate_filter, escape, origin_of, parse_subject
from gpuledger.ledger.api import Message
from gpuledger.tools.errors import ToolError
from gpuledger.tools.explain.node_document import Document, node_document
from gpuledger.tools.explain.node_events import Recorded
from gpuledger.tools.explain.node_rollout import node_rollout, with_rollout
from gpuledger.tools.machineconfig.reading import current_state
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.named_events import messages_about, messages_about_each

DEVICES_MAX: Final = 256
"""Cards of a node whose reports are explained, the last that its agent reported."""

NO_SUCH: Final = "List them with `gpuledger get nodes`"


async def why_node(backend: Backend, node: str, at: datetime | None, moment: str) -> Document:
    """The explanation of a node, from what had happened up to a time; of now, with its place in a rollout.

    Raises:
        ToolError: the ledger has no events about it.
    """
    about = [one async for messages in messages_about(backend, "node", node) for one in messages]
    if not about:
        raise ToolError(f"node {node!r} was not found", NO_SUCH)
    reports = f"{ROOT}.node.{escape(node)}.{DeviceHealthChanged.AGGREGATE}.*.{DeviceHealthChanged.EVENT}"
    of_agent = await _read(backend, reports)
    cards = list(dict.fromkeys(parse_subject(one.subject).id or "" for one in of_agent))[-DEVICES_MAX:]
    of_cards = (await messages_about_each(backend, "device", cards)).values()
    rules = await _read(backend, aggregate_filter(QuarantineBreakerReset.AGGREGATE))
    remedies = [one async for found in messages_about(backend, "remediation", node) for one in found]
    messages = {one.sequence: one for found in (about, of_agent, rules, remedies, *of_cards) for one in found}
    found = _recorded(backend, sorted(messages.values(), key=lambda one: order(one.sequence)))
    document = node_document(node, moment, [one for one in found if _counts(one, node, at)])
    return document if at is not None else with_rollout(document, node_rollout(await current_state(backend), node))


async def _read(backend: Backend, subject: str) -> list[Message]:
    return [one async for messages in backend.ledger.history(subject_filter=subject) for one in messages]


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


def _counts(one: Recorded, node: str, at: datetime | None) -> bool:
    """Whether it is about the node, or the quarantine of all, and had happened by then."""
    data = one.event.data
    if isinstance(data, DeviceDetached):
        is_here = data.slot.partition("/")[0] == node
    elif isinstance(data, JudgedReport):
        is_here = data.node == node
    elif data.AGGREGATE == DeviceDetached.AGGREGATE:
        is_here = isinstance(data, DeviceHealthChanged) and origin_of(one.event.source).name == node
    else:
        is_here = True
    return is_here and (at is None or one.event.time <= at)
