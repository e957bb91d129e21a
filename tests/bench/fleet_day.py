"""A day of a fleet on Kubernetes, as events: pods that hold cards for a while, by pools and by claims. Always the same.

What is set up once, such as nodes, cards and pools, is a few events a card and not among them.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import NamedTuple

from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.claim import ClaimAllocated, ClaimReleased, ClaimRequested, Request, Result, Wish
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.ledger.api import Outgoing

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CARDS_PER_NODE = 8
EVENTS_PER_POD = 5
"""A pod of a pool is observed twice and gone once, a claim requested, allocated and released; the agent adds two."""

RESOURCE = "cluster.gpu.deckhouse.io/training"
DRIVER = "gpu.nvidia.com"
EPOCH = "bench"


class Happening(NamedTuple):
    """Who tells what about what, when."""

    time: datetime
    source: str
    subject: str
    data: Payload


def day(cards: int, pods_per_card: int) -> Iterator[Outgoing]:
    """The day's events in the order of their times, numbered by source."""
    return numbered(_in_order(cards, pods_per_card))


def numbered(happenings: Iterable[Happening]) -> Iterator[Outgoing]:
    """Events as their sources number them."""
    numbers: dict[str, int] = {}
    for one in happenings:
        number = numbers[one.source] = numbers.get(one.source, 0) + 1
        event_id = derived_id(f"{one.source}#{EPOCH}#{number}", one.data.TYPE, one.subject)
        event = Event(event_id, one.source, one.data.TYPE, one.subject, one.time, one.data, EPOCH, number)
        yield Outgoing(nats_subject_of(event), event_id, encode(event))


def _in_order(cards: int, pods_per_card: int) -> Iterator[Happening]:
    """Pods begin one after the other through the day, in turn on all cards, and each holds its card for a while."""
    pods = cards * pods_per_card
    waiting: list[tuple[datetime, int, Happening]] = []
    entered = 0
    for pod in range(pods):
        begins = BEGIN + DAY * pod / pods
        while waiting and waiting[0][0] <= begins:
            yield heappop(waiting)[2]
        for one in _life(pod, pod % cards, begins, DAY / pods_per_card):
            entered += 1
            heappush(waiting, (one.time, entered, one))
    while waiting:
        yield heappop(waiting)[2]


def _life(pod: int, card: int, begins: datetime, room: timedelta) -> Iterator[Happening]:
    """The five events of a pod that holds the card within its room; every other one by a claim."""
    node = f"node-{card // CARDS_PER_NODE:06}"
    name, agent = f"job-{pod:09}", f"/nodes/{node}/agent"
    uuid = f"GPU-{card:08}-0000-0000-0000-{0:012}"
    scheduled, runs, ended, gone = (begins + room * share for share in (0.01, 0.02, 0.9, 0.91))
    container = f"{node}/team/{name}/main"
    if pod % 2:
        wished = (Request(name="gpu", wishes=(Wish(name="gpu", device_class=DRIVER),)),)
        got = (Result(request="gpu", driver=DRIVER, pool=node, device=f"gpu-{card % CARDS_PER_NODE}"),)
        claim, watcher = f"team/{name}", "/watchers/claims"
        yield Happening(begins, watcher, claim, ClaimRequested(uid=name, requests=wished, owner=name))
        allocated = ClaimAllocated(uid=name, requests=wished, owner=name, results=got)
        yield Happening(scheduled, watcher, claim, allocated)
        held = AllocatedClaim(claim=name, driver=DRIVER, pool=node, device=got[0].device)
        seen = AllocationObserved(node=node, namespace="team", pod=name, container="main", claims=(held,))
        yield Happening(runs, agent, container, seen)
        yield Happening(ended, agent, container, AllocationEnded())
        yield Happening(gone, watcher, claim, ClaimReleased(uid=name))
        return
    subject, watcher = f"team/{name}", "/watchers/pods"
    yield Happening(begins, watcher, subject, PodObserved(uid=name, requests={RESOURCE: 1}))
    yield Happening(scheduled, watcher, subject, PodObserved(uid=name, node=node, requests={RESOURCE: 1}))
    unit = AllocatedDevices(resource=RESOURCE, devices=(uuid,))
    seen = AllocationObserved(node=node, namespace="team", pod=name, container="main", resources=(unit,))
    yield Happening(runs, agent, container, seen)
    yield Happening(ended, agent, container, AllocationEnded())
    yield Happening(gone, watcher, subject, PodGone(uid=name))
