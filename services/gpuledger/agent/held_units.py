"""Which containers hold units of which cards, in the labels with which dcgm-exporter names cards and instances. Pure.

The exporter itself names the pods of `nvidia.com/` resources only, so these series are what joins its measurements with
the pods that use pools. A unit of a card that the agent does not see has none. A device of a ResourceClaim is named by
its driver in its own way: it has a series under that name, and the services say which card it is
(`gpuledger_dra_device_card`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.agent.board import BoardState
from gpuledger.agent.setup.offers import unit_base, uuid_base

HOLDER_LABELS: Final = ("UUID", "GPU_I_ID", "namespace", "pod", "container", "resource")


CLAIM_LABELS: Final = ("namespace", "pod", "container", "claim", "driver", "pool", "device")


class ClaimHolder(NamedTuple):
    """A container that holds a device by a ResourceClaim of its namespace; the values of `CLAIM_LABELS`."""

    namespace: str
    pod: str
    container: str
    claim: str
    driver: str
    pool: str
    device: str


class Holder(NamedTuple):
    """A container that holds units of a resource; the values of `HOLDER_LABELS`.

    As in the exporter's samples, `uuid` is the card's own also where the unit is an instance of it.
    """

    uuid: str
    gpu_instance: str
    namespace: str
    pod: str
    container: str
    resource: str


def held_units(state: BoardState) -> Mapping[Holder, int]:
    """How many units of a card, or of an instance, each container holds: slices of one card count one by one."""
    names = dict(_names(state))
    return Counter(
        Holder(*names[base], one.namespace, one.pod, one.container, held.resource)
        for one in state.allocations
        for held in one.resources
        for base in map(unit_base, held.devices)
        if base in names
    )


def held_claim_devices(state: BoardState) -> list[ClaimHolder]:
    """The devices that containers hold by claims."""
    return sorted(
        {
            ClaimHolder(one.namespace, one.pod, one.container, held.claim, held.driver, held.pool, held.device)
            for one in state.allocations
            for held in one.claims
        }
    )


def _names(state: BoardState) -> Iterator[tuple[str, tuple[str, str]]]:
    """How the exporter names each card and instance, by what begins the ids of its units."""
    for card in state.survey.cards if state.survey is not None else ():
        if card.uuid is None:
            continue
        yield uuid_base(card.uuid), (card.uuid, "")
        for instance in card.instances:
            if instance.gpu_instance is not None:
                yield uuid_base(instance.uuid), (card.uuid, str(instance.gpu_instance))
