"""The events of a story of faults, drawn by its seed: of a fleet, and of a cluster that services decide about. Pure.

Nothing here is a true story of any card: what matters is that the deciders have something to decide at every moment.
"""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.inventory.device_names import device_name
from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.node import NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolGone
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slot import SlotDeclared
from gpuledger.ledger.api import Outgoing
from support.bootstrap import all_ready, heartbeat
from support.events import AGENT, IMPORT, START, event, outgoing
from support.inventory import card, cards_seen, observed
from support.pools import marked, pool

FLEET = (IMPORT, AGENT, "/nodes/n2/agent")
UNFIT_EVERY = 40
UNFIT = DeviceFailed(kind="?")

NODES, POOLS = ("w2", "w3"), ("p1", "p2")
CLUSTER = (
    *(f"/watchers/{name}" for name in ("moduleconfig", "nodes", "components", "gpudevices", "clustergpupools")),
    *(f"/nodes/{node}/agent" for node in NODES),
)

OF_CLUSTER = 0.4
"""How much of the events is about the cluster."""

SILENT_MAX = 40
"""After so many events a source speaks, so that a story's last events show what each of them has lost before."""

CARDS_MAX = 3
MODEL = "20b5"
READY = 0.8


class Drawn(NamedTuple):
    """An event to publish: by whom, about what."""

    source: str
    subject: str
    data: Payload


def events(chance: random.Random, began: datetime) -> Iterator[Outgoing]:
    """Events without end, from this moment on; now and then one that will be turned down."""
    began_at = (began - START) / timedelta(hours=1)
    numbers, spoke = Counter[str](), dict.fromkeys((*CLUSTER, *FLEET), 0)
    for index, _ in enumerate(iter(int, 1), 1):
        overdue = (source for source, last in spoke.items() if index - last > SILENT_MAX or not last)
        one = _drawn(chance, next(overdue, None) or _source(chance), index)
        numbers[one.source] += 1
        spoke[one.source] = index
        at = began_at + index / 1e6
        ready = outgoing(event(one.data, one.subject, number=numbers[one.source], at=at, source=one.source))
        yield ready._replace(data=ready.data.replace(b'"kind":"?"', b'"kind":""'))


def _source(chance: random.Random) -> str:
    return chance.choice(CLUSTER if chance.random() < OF_CLUSTER else FLEET)


def _drawn(chance: random.Random, source: str, index: int) -> Drawn:
    if source in CLUSTER:
        return _of_cluster(chance, source)
    if index % UNFIT_EVERY == 0:
        return Drawn(source, "d1", UNFIT)
    return _of_fleet(chance, source, index)


def _of_fleet(chance: random.Random, source: str, index: int) -> Drawn:
    """One event; a node comes once, because the toy decider's rows follow the order of a node's facts."""
    device, slot = f"d{chance.randint(1, 30)}", f"s{chance.randint(1, 30)}"
    data, subject = chance.choice(
        [
            (DeviceInserted(slot=slot, serial=device), device),
            (DeviceRemoved(slot=slot, retired=chance.random() < 0.1), device),
            (DeviceFailed(kind="DBE", slot=slot), device),
            (SlotDeclared(node="n0"), slot),
            (NodeRegistered(gpu_count=chance.randint(1, 8)), f"n{index}"),
        ]
    )
    return Drawn(source, subject, data)


def _of_cluster(chance: random.Random, source: str) -> Drawn:
    """One fact of a watcher or an agent, of the kinds that inventory, preparation and pools decide by."""
    node, pool_name, cards = chance.choice(NODES), chance.choice(POOLS), chance.randint(1, CARDS_MAX)
    is_ready = chance.random() < READY
    match source:
        case "/watchers/moduleconfig":
            return Drawn(source, MODULE_CONFIG, SettingsChanged(enabled=True))
        case "/watchers/nodes":
            return Drawn(source, node, observed(*[MODEL] * cards))
        case "/watchers/components":
            return Drawn(source, node, all_ready() if is_ready else all_ready(validator="failing:driver"))
        case "/watchers/gpudevices":
            device = device_name(node, index=chance.randrange(CARDS_MAX), vendor="10de", device=MODEL)
            return Drawn(source, device, marked(cluster=pool_name if is_ready else None))
        case "/watchers/clustergpupools":
            return Drawn(source, pool_name, pool() if is_ready else PoolGone())
    own = source.split("/")[2]
    seen = (card(f"GPU-{own}-{slot}", slot, MODEL, product="NVIDIA A100-PCIE-40GB") for slot in range(cards))
    return Drawn(source, own, chance.choice([cards_seen(*seen), heartbeat(fresh=is_ready)]))
