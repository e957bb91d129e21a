"""Which card a device of a ResourceClaim is, as its driver publishes it: what joins claims with dcgm-exporter's series.

The kubelet tells an agent the driver, pool and device that a container holds by a claim, but not the card's UUID, which
stands in the ResourceSlice alone. Only what the driver says counts: nothing is guessed from a device's name. A MIG
instance has no series, because a slice does not say by which `GPU_I_ID` the exporter names it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuledger.domain.dra.rows import ResourceSlice
from gpuledger.edge.statuswriter.desired.slices import PresentAvailability
from gpuledger.edge.statuswriter.desired.state import DesiredState

UUID: Final = "uuid"
CARD: Final = "GPU-"
"""How NVML's UUID of a card begins, which is the exporter's as well."""

LABELS: Final = ("driver", "pool", "device", "UUID")

Device = tuple[str, str, str]
"""Driver, pool and name."""


class ClaimedCards(Collector):
    """`gpuledger_dra_device_card`, computed at each scrape; none while the module is disabled."""

    def __init__(self, state: Callable[[], DesiredState]) -> None:
        self._state = state
        self._slices = SliceCards()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The name, for the registry."""
        return [_family()]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One for each device that a claim has and whose driver names the card."""
        state, family = self._state(), _family()
        if state.enabled:
            for device, uuid in claimed_cards(state.slices, self._slices):
                family.add_metric([*device, uuid], 1)
        return [family]


class SliceCards:
    """The cards in slices, which are read once: a scrape remembers those that the one before it read."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._kept: dict[str, tuple[str, Mapping[str, str]]] = {}

    def of(self, row: ResourceSlice) -> Mapping[str, str]:
        """The UUIDs of the cards in a slice, by the device's name."""
        read = self._read.get(row.name) or self._kept.get(row.name)
        if read is None or read[0] is not row.payload:
            read = row.payload, _cards(row.payload)
        self._read[row.name] = read
        return read[1]

    def forget_others(self) -> None:
        """Keep only what was read since the last call."""
        self._read, self._kept = {}, self._read


def claimed_cards(state: PresentAvailability, cards: SliceCards) -> Iterator[tuple[Device, str]]:
    """Each device that a claim has, and its card; a device that slices describe in two ways is left out."""
    held = {(row.driver, row.pool, row.device) for row in list(state.allocation.rows.values()) if row.valid_to is None}
    for driver, pool, device in sorted(held):
        slices = [row for row in state.slice.where("pool", pool) if row.driver == driver]
        found = {uuid for row in slices if (uuid := cards.of(row).get(device)) is not None}
        if len(found) == 1:
            yield (driver, pool, device), found.pop()
    cards.forget_others()


def _cards(payload: str) -> Mapping[str, str]:
    found = ((one["name"], _uuid(one.get("attributes") or {})) for one in orjson.loads(payload).get("devices") or ())
    return {name: uuid for name, uuid in found if uuid is not None}


def _uuid(attributes: Mapping[str, Any]) -> str | None:
    """The attribute `uuid` of the driver's own domain, which a slice may write with or without it."""
    for name, value in attributes.items():
        if name.rpartition("/")[2] == UUID and isinstance(value, str) and value.startswith(CARD):
            return value
    return None


def _family() -> GaugeMetricFamily:
    text = "1 for a device of a ResourceClaim and the card that its driver says it is."
    return GaugeMetricFamily("gpuledger_dra_device_card", text, labels=LABELS)
