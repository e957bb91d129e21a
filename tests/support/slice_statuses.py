"""ResourceSliceStatuses for tests: a driver that publishes slices, and reads the statuses that are written."""

from gpuledger.api.kinds import MODULE_CONFIG, RESOURCE_SLICE_STATUSES, RESOURCE_SLICES
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.watchers.resources import slices
from gpuledger.events.device import DeviceDetected
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slice import SliceWithdrawn
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.dra_facts import DRIVER
from support.events import outgoing
from support.statuswriting import CountingClient

PATH = RESOURCE_SLICE_STATUSES.path()
NAMING = (MODULE_CONFIG, SettingsChanged(claim_references="Full"))
"""The setting with which statuses name the claims that hold a device."""


class Driver:
    """Publishes slices, and records them and claims as watchers do."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient) -> None:
        self.ledger = ledger
        self.client = client
        self._numbers: dict[str, int] = {}

    async def record(self, *facts: tuple[str, Payload]) -> None:
        await self.ledger.publish_many([outgoing(self._event(subject, data)) for subject, data in facts])

    def _event(self, subject: str, data: Payload) -> Decoded:
        is_watched = not isinstance(data, DeviceDetected)
        source = f"/watchers/{data.AGGREGATE}" if is_watched else "/services/inventory"
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return Event(f"{source}#{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)

    async def publish(self, name: str, *devices: str, pool: str = "p", memory: str | None = None) -> str:
        """A slice comes; returns its UID."""
        made = await self.client.create(RESOURCE_SLICES, slice_object(name, devices, pool, memory))
        part = slices.read(made)
        await self.record((name, slices.KIND.combine([part.content])))
        return uid_of(made)

    async def withdraw(self, name: str) -> None:
        """A slice goes."""
        await self.client.delete(RESOURCE_SLICES, name)
        await self.record((name, SliceWithdrawn()))


def slice_object(name: str, devices: tuple[str, ...], pool: str, memory: str | None) -> Object:
    """A ResourceSlice of the node `n1`, the only one of its pool."""
    shared = {} if memory is None else {"allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device, **shared} for device in devices],
        },
    }


def uid_of(obj: Object) -> str:
    """The object's UID."""
    uid: str = obj["metadata"]["uid"]
    return uid


def written(ours: CountingClient) -> list[str]:
    """What was written of ResourceSliceStatuses."""
    return [one for one in ours.written if PATH in one]


async def states(client: KubeClient, name: str) -> dict[str, str]:
    """The state of each device, as the API server shows it."""
    status = (await client.get(RESOURCE_SLICE_STATUSES, name))["status"]
    return {one["name"]: one["state"] for one in status["devices"]}


async def names(client: KubeClient) -> list[str]:
    """The ResourceSliceStatuses that there are."""
    return [one["metadata"]["name"] for one in (await client.list(RESOURCE_SLICE_STATUSES)).items]


async def is_right(client: KubeClient, ledger: JetStreamLedger) -> bool:
    """Whether every object is as the ledger says."""
    return (await compare(client, ledger)).differences == 0
