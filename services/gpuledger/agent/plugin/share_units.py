"""The units by which the kubelet counts shares of devices: a hundred ids per device and resource. Pure.

Bytes cannot be ids, so no unit stands for memory; a container that asks for memory alone has `gpu.shared`, which
admission adds. Ids carry no NUMA node: the scheduler has chosen the devices, and the kubelet shall not choose anew.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuledger.agent.board import BoardState, DeviceUnit
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.plugin.device_list import ListedUnit
from gpuledger.agent.setup.offers import SLICE, unit_base, uuid_base
from gpuledger.api.sharing import GPU, GPU_MEMORY, GPU_SHARED, WHOLE, SharingNames
from gpuledger.events.sharing import SharedDevice


def share_lists(state: BoardState, names: SharingNames) -> Mapping[str, tuple[ListedUnit, ...]]:
    """The units of the shared devices by resource, with its domain; none while the node shares nothing."""
    if state.shared is None or not state.shared.enabled:
        return {}
    units: dict[str, list[ListedUnit]] = {}
    for device in state.shared.devices:
        for resource, unit in _units(device, state):
            units.setdefault(names.resource(resource), []).append(unit)
    return {resource: tuple(listed) for resource, listed in units.items()}


def type_of(resource: str, types: Iterable[str]) -> str:
    """The type of device that a resource without its domain belongs to: the one of its name, else GPUs."""
    return resource if resource in types and resource != GPU else GPU


def preferred_shares(
    devices: Iterable[str], available: Iterable[str], must_include: Iterable[str], size: int
) -> tuple[str, ...]:
    """`size` ids of the available ones, the same number of each of these devices; fewer where there are not so many.

    `devices` are ids of devices. Where they have too few ids left, others fill up: what the container gets does not
    depend on the ids.
    """
    bases = list(dict.fromkeys(map(uuid_base, devices)))
    chosen = sorted(set(must_include), key=_order)[: max(size, 0)]
    free = sorted(set(available).difference(chosen), key=_order)
    for place, base in enumerate(bases):
        quota = size * (place + 1) // len(bases) - size * place // len(bases)
        quota -= sum(unit_base(each) == base for each in chosen)
        chosen += [each for each in free if unit_base(each) == base][: max(quota, 0)]
    rest = (each for each in free if each not in set(chosen))
    for each in rest:
        if len(chosen) >= size:
            break
        chosen.append(each)
    return tuple(chosen[: max(size, 0)])


def _order(unit: str) -> tuple[str, int, str]:
    base, _, number = unit.partition(SLICE)
    return base, int(number) if number.isdecimal() else 0, unit


def _units(device: SharedDevice, state: BoardState) -> Iterator[tuple[str, ListedUnit]]:
    if device.id is None:
        return  # no container could be confined to it
    card = _card(device.id, state) if device.type == GPU else None
    healthy = device.healthy and (device.type != GPU or _is_fit(card, state))
    address = card.address if card is not None else _address(device)
    for resource, number in _counts(device):
        for place in range(number):
            unit = DeviceUnit(f"{uuid_base(device.id)}{SLICE}{place}", device.id, address)
            yield resource, ListedUnit(unit, healthy, None)


def _counts(device: SharedDevice) -> Iterator[tuple[str, int]]:
    """How many units a device has of each resource."""
    for resource, amount in device.resources.items():
        if resource != GPU_MEMORY and 0 < amount <= WHOLE:
            yield resource, amount
    if device.type == GPU:
        yield GPU_SHARED, WHOLE


def _card(uuid: str, state: BoardState) -> CardFacts | None:
    cards = state.survey.cards if state.survey is not None else ()
    return next((card for card in cards if card.uuid == uuid), None)


def _is_fit(card: CardFacts | None, state: BoardState) -> bool:
    """Whether the agent itself finds the card and nothing wrong with it; not before it has looked."""
    return card is not None and state.unfit is not None and card.address not in state.unfit


def _address(device: SharedDevice) -> str:
    return device.topology.bus_id or "" if device.topology is not None else ""
