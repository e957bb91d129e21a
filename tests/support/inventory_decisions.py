"""Decisions of the inventory, recorded in a ledger, and a status writer that writes them to an API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from gpuledger.api.kinds import EVENT_REPORTER, EVENTS, GPU_DEVICES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.events.device import DeviceDetected, Hardware
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.node import Condition, NodeInventoryChanged
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.events import outgoing
from support.gpu_states import COMPLETE
from support.kube_proxy import KubeProxy
from support.statuswriting import QUICK, all_written, status_writer
from support.waiting import eventually

INVENTORY, WATCHER = "/services/inventory", "/watchers/settings"
MANAGED = Condition(type="ManagedDisabled", status="False", reason="Enabled")


class Decided:
    """Records decisions as the inventory does."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.ledger = ledger
        self._numbers: dict[str, int] = {}

    async def record(self, *facts: tuple[str, Payload], at: datetime | None = None, **more: Any) -> None:
        made = [self.event(subject, data, at, **more) for subject, data in facts]
        await self.ledger.publish_many([outgoing(one) for one in made])

    def event(self, subject: str, data: Payload, at: datetime | None = None, **more: Any) -> Decoded:
        source = WATCHER if isinstance(data, SettingsChanged) else INVENTORY
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return Event(f"{source}#{number}", source, data.TYPE, subject, at or system_clock(), data, "e1", number, **more)

    async def node(self, name: str, devices: int = 2, **more: Any) -> None:
        """A node with devices is detected."""
        found = [(f"{name}-{index}", device(name, index)) for index in range(devices)]
        conditions = NodeInventoryChanged(present=True, conditions=(COMPLETE, MANAGED))
        await self.record(*found, (name, conditions), **more)


def hardware(index: int, **more: Any) -> Hardware:
    """An A100 of a slot; `more` replaces its fields."""
    facts: dict[str, Any] = {
        "uuid": f"GPU-{index}", "pci_address": f"0000:{index:02x}:00.0", "pci_vendor": "10de", "pci_device": "20b5",
        "pci_class": "0302", "product": "NVIDIA A100-PCIE-40GB", "memory_mib": 40960, "precision": ("fp32", "bf16"),
    }  # fmt: skip
    return Hardware(**(facts | more))


def device(node: str, index: int) -> DeviceDetected:
    """That the inventory detected a node's device."""
    return DeviceDetected(hardware=hardware(index), managed=True, node=node, card=f"GPU-{node}-{index}")


@asynccontextmanager
async def writing(
    decided: Decided, database_url: str, client: KubeClient, settings: StatusWriterSettings = QUICK
) -> AsyncIterator[StatusWriter]:
    """A status writer that runs until the block ends."""
    async with status_writer(decided.ledger, database_url, client, settings) as writer:
        yield writer


async def settled(writer: StatusWriter, decided: Decided) -> None:
    """Return when everything that was decided is written."""
    await all_written(writer, decided.ledger)


async def names(client: KubeClient) -> list[str]:
    """The GPUDevices that there are."""
    return [one["metadata"]["name"] for one in (await client.list(GPU_DEVICES)).items]


async def own_events(client: KubeClient) -> list[dict[str, Any]]:
    """The Events that gpuledger reported; a cluster has others too."""
    found = (await client.list(EVENTS)).items
    return [one for one in found if one.get("reportingController") == EVENT_REPORTER]


async def events(client: KubeClient, reason: str) -> list[dict[str, Any]]:
    """The own Events of a reason."""
    return [one for one in await own_events(client) if one["reason"] == reason]


async def has_event(client: KubeClient, reason: str) -> dict[str, Any]:
    """Return the first Event of a reason when there is one."""

    async def there() -> bool:
        return bool(await events(client, reason))

    await eventually(there)
    return (await events(client, reason))[0]


async def events_number(client: KubeClient, number: int) -> bool:
    """Whether there are so many own Events."""
    return len(await own_events(client)) == number


async def has_requests(proxy: KubeProxy, number: int, part: str = "") -> bool:
    """Whether the server got so many requests with this in their paths."""
    return sum(part in one.path for one in proxy.requests) >= number
