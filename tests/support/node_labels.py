"""What watchers record of nodes' labels, for tests of who asks for an instance type."""

from typing import Final

import grpc.aio

from gpuledger.events.node import NodeLabelled
from gpuledger.healthreports import node_information
from gpuledger.ledger.api import Outgoing
from gpuledger.runtime.node_label_settings import DEFAULT_INSTANCE_TYPE_LABEL
from support.events import event, outgoing
from support.ledgers import DEADLINE_S

WATCHERS: Final = "/watchers/nodelabels"


def labelled(node: str, instance_type: str = "", *, number: int = 1, source: str = WATCHERS, **more: str) -> Outgoing:
    """The event of a node's labels; without an instance type it has none."""
    labels = {DEFAULT_INSTANCE_TYPE_LABEL: instance_type} if instance_type else {}
    return outgoing(event(NodeLabelled(uid="u", labels=labels | more), node, number=number, source=source))


async def answer(channel: grpc.aio.Channel, node: str = "") -> str:
    """A gateway's answer about a node, or the status of its refusal."""
    try:
        return await node_information.instance_type(channel, DEADLINE_S, node)
    except grpc.aio.AioRpcError as error:
        return error.code().name
