"""The devices that files on a node declare, so that a new type of device needs no code (seed 002, 4.2.1)."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import DropClass, by_agents
from gpuledger.events.registry import registry
from gpuledger.events.sharing import SharedDevice

DECLARED_DEVICES_MAX = 512
DECLARING_FILES_MAX = 64


class LeftOutFile(Payload):
    """A file none of whose devices count, and why."""

    file: Name
    reason: Text


@registry.event("node", "declared-devices-observed", by_agents(DropClass.REPEATED), introduced=True)
class NodeDeclaredDevicesObserved(Payload):
    """Every device that files on the node declare, of types other than `gpu` and `rdma`. Replaces the previous event.

    A device's only resource is the one of its type, in percent. `left_out` are the files that cannot be read.
    """

    devices: Annotated[tuple[SharedDevice, ...], Field(max_length=DECLARED_DEVICES_MAX)] = ()
    left_out: Annotated[tuple[LeftOutFile, ...], Field(max_length=DECLARING_FILES_MAX)] = ()
