"""A later build, which introduces a type of event that this one does not know: `device.melted`."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuledger.domain.devices import fold as devices
from gpuledger.domain.fact import Fact
from gpuledger.events.catalogue import registry
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import DropClass, by_agents
from gpuledger.events.registry import Registry
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, event


class DeviceMelted(Payload):
    """The device melted."""


Registry().event("device", "melted", by_agents(DropClass.ONCE), introduced=True)(DeviceMelted)


def _melted(state: devices.Devices, fact: Fact, _data: DeviceMelted) -> None:
    """What a failure of this kind does."""
    devices.HANDLERS[DeviceFailed](state, fact, DeviceFailed(kind="melted"))


class LaterDevices(DevicesProjection):
    """The devices projection of the later build: the same version, as no row of an earlier log changes."""

    handlers = {**DevicesProjection.handlers, DeviceMelted: _melted}


def melted(number: int) -> Decoded:
    """An agent that is newer than the services reports that a device melted."""
    return event(DeviceMelted(), f"d{number}", number=number, source=AGENT)


@contextmanager
def later_build() -> Iterator[None]:
    """Within this block the code knows what the later build knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._models, ("device", "melted"), DeviceMelted)
        patch.setattr(registry, "_introduced", {DeviceMelted.TYPE})
        try:
            yield
        finally:
            registry._decoders.pop(DeviceMelted.TYPE, None)
