"""What a node has to share, as it is observed: the label by which people give its cards to sharing, and its NICs."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gpuledger.events.device import PCI_PATH_MAX, PciAddress
from gpuledger.events.payload import Count, Name, Payload
from gpuledger.events.publishing import BY_WATCHERS, DropClass, SourceKind, by_agents, by_service
from gpuledger.events.registry import registry

NICS_PER_NODE_MAX = 64
FUNCTIONS_PER_NIC_MAX = 256


@registry.event("node", "sharing-labelled", BY_WATCHERS, introduced=True)
class NodeSharingLabelled(Payload):
    """A label of the Node gives its cards to sharing. Replaces the previous event.

    `partition_policy` is that of another label, None without one that can be read.
    """

    uid: Name
    partition_policy: Literal["Honor", "Prefer"] | None = None


@registry.event("node", "sharing-unlabelled", BY_WATCHERS, introduced=True)
class NodeSharingUnlabelled(Payload):
    """The label is gone, or the Node with it."""

    uid: Name | None = None


@registry.event("node", "cards-left", by_service(SourceKind.POOLS), introduced=True)
class NodeCardsLeft(Payload):
    """No pool takes a card of the node from now on, as its label gives them to sharing since `labelled_at`.

    What pools have of them is recorded before this event, and stays theirs until they release it.
    """

    labelled_at: AwareDatetime


class Nic(Payload):
    """A network card with RDMA: its place, whether a port of it is active, and its virtual functions.

    `name` is the kernel's of its RDMA device (`mlx5_0`); `pci_path` as with cards.
    """

    name: Name
    pci_address: PciAddress
    active: bool
    numa_node: Count | None = None
    socket: Count | None = None
    pci_path: Annotated[tuple[Name, ...], Field(max_length=PCI_PATH_MAX)] = ()
    functions: Annotated[tuple[PciAddress, ...], Field(max_length=FUNCTIONS_PER_NIC_MAX)] = ()


@registry.event("node", "nics-observed", by_agents(DropClass.REPEATED), introduced=True)
class NodeNicsObserved(Payload):
    """Every network card with RDMA that the node's agent finds. Replaces the previous event."""

    nics: Annotated[tuple[Nic, ...], Field(max_length=NICS_PER_NODE_MAX)] = ()
