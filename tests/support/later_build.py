"""A later build, which introduces types of events that this one does not know.

Agents record `device.melted`, and the service `pools` decides `device.condemned`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuledger.domain.devices import fold as devices
from gpuledger.domain.fact import Fact
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import DropClass, SourceKind, by_agents, by_service
from gpuledger.events.registry import Registry
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, SERVICE, event


class DeviceMelted(Payload):
    """The device melted."""


class DeviceCondemned(Payload):
    """The device has to leave."""


Registry().event("device", "melted", by_agents(DropClass.ONCE), introduced=True)(DeviceMelted)
Registry().event("device", "condemned", by_service(SourceKind.POOLS), introduced=True)(DeviceCondemned)
TYPES = (DeviceMelted, DeviceCondemned)


def _melted(state: devices.Devices, fact: Fact, _data: DeviceMelted) -> None:
    """What a failure of this kind does."""
    devices.HANDLERS[DeviceFailed](state, fact, DeviceFailed(kind="melted"))


def _condemned(state: devices.Devices, fact: Fact, _data: DeviceCondemned) -> None:
    devices.HANDLERS[DeviceFailed](state, fact, DeviceFailed(kind="condemned"))


class LaterDevices(DevicesProjection):
    """The devices projection of the later build: the same version, as no row of an earlier log changes."""

    handlers = {**DevicesProjection.handlers, DeviceMelted: _melted}


class NewerDevices(LaterDevices):
    """The devices projection of a build after that, which folds a decision of our own: another version."""

    version = LaterDevices.version + 1
    handlers = {**LaterDevices.handlers, DeviceCondemned: _condemned}


def melted(number: int) -> Decoded:
    """An agent that is newer than the services reports that a device melted."""
    return event(DeviceMelted(), f"d{number}", number=number, source=AGENT)


def condemned(number: int, at: float = 0) -> Decoded:
    """The service `pools` of the later build decides that a device has to leave."""
    return event(DeviceCondemned(), f"d{number}", number=number, at=at, source=SERVICE)


@contextmanager
def later_build() -> Iterator[None]:
    """Within this block the code knows what the later build knows."""
    with pytest.MonkeyPatch.context() as patch:
        for model in TYPES:
            patch.setitem(registry._models, (model.AGGREGATE, model.EVENT), model)
        patch.setattr(registry, "_introduced", {*registry.introduced, *(model.TYPE for model in TYPES)})
        try:
            yield
        finally:
            for model in TYPES:
                registry._decoders.pop(model.TYPE, None)
