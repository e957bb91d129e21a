"""What a claim's change costs the status writer before anything is sent: decoding, folding, and the slice's document.

Clusters of two sizes take turns. It must not depend on how much else there is.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from uuid import UUID

from bench import fleet
from bench.report import Figure
from bench.rounds import medians
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.fields import digest
from gpuledger.edge.statuswriter.objects import Kind
from gpuledger.events.claim import ClaimAllocated, ClaimReleased, Request, Result, Wish
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.payload import Payload
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import DeviceCapacity, SliceDevice, SlicePublished
from gpuledger.ledger.api import Message
from gpuledger.projection.fold import Fold
from gpuledger.runtime.garbage import seldom_collected

DEVICES_PER_POOL = 8
GENERATION = 1
START = datetime(2026, 1, 1, tzinfo=UTC)
RATIO_MAX = 2.0
RULE = node_feature_rule()


class Folded:
    """A cluster with as many claims as devices, each claim with a share of its device."""

    def __init__(self, devices: int) -> None:
        self._devices = devices
        self._desired = DesiredState()
        self._fold = Fold(DesiredProjection(), GENERATION, state=self._desired)
        self._random = Random(fleet.SEED)
        self._numbers: dict[str, int] = {}
        self._sequence = 0
        with seldom_collected():
            for message in self._there():
                self._fold.apply(message)
        self._desired.take_changed()

    def change_us(self, changes: int) -> float:
        """Microseconds for a change: a claim goes, or comes back."""
        claims = [self._random.randrange(self._devices) for _ in range((changes + 1) // 2)]
        facts = [(_claim_name(claim), data) for claim in claims for data in (ClaimReleased(), _allocated(claim))]
        messages = [self._message("claims", *one) for one in facts]
        began = perf_counter()
        for message in messages:
            self._fold.apply(message)
            for key in self._desired.take_changed():
                assert key.kind is Kind.SLICE
                found = desired_object(self._desired, key, RULE)
                assert found is not None
                digest(found.status)
        return (perf_counter() - began) / len(messages) * 1e6

    def _there(self) -> Iterator[Message]:
        for pool in range(self._devices // DEVICES_PER_POOL):
            yield self._message("slices", _pool_name(pool), _published(pool))
        for claim in range(self._devices):
            yield self._message("claims", _claim_name(claim), _allocated(claim))

    def _message(self, watcher: str, subject: str, data: Payload) -> Message:
        number = self._numbers[watcher] = self._numbers.get(watcher, 0) + 1
        self._sequence += 1
        time = START + timedelta(seconds=self._sequence)
        event = Event(f"{watcher}#{number}", f"/watchers/{watcher}", data.TYPE, subject, time, data, "e1", number)
        return Message(nats_subject_of(event), encode(event), self._sequence, int(time.timestamp() * 1e9))


async def claim_cost(few: int, many: int, changes: int, rounds: int) -> Figure:
    """The cost in a big cluster beside that in a small one."""
    small, big = Folded(few), Folded(many)

    async def of_small(_round: int) -> float:
        return small.change_us(changes)

    async def of_big(_round: int) -> float:
        return big.change_us(changes)

    found = await medians({"small": of_small, "big": of_big}, rounds)
    return Figure(
        f"a claim's change, folded, with its document, {many:,} devices and claims", found["big"], "µs",
        f"the same with {few:,}", found["small"], RATIO_MAX * found["small"], is_ratio=False,
    )  # fmt: skip


def _published(pool: int) -> SlicePublished:
    devices = tuple(
        SliceDevice(name=f"gpu-{device}", shareable=True, capacity={"memory": DeviceCapacity(value="80Gi")})
        for device in range(DEVICES_PER_POOL)
    )
    return SlicePublished(
        uid=f"uid-{pool}", driver="gpu.example.com", pool=_pool_name(pool), pool_generation=1, slice_count=1,
        reach=NodeReach(node=f"worker-{pool:05}"), devices=devices,
    )  # fmt: skip


def _allocated(claim: int) -> ClaimAllocated:
    pool, device = divmod(claim, DEVICES_PER_POOL)
    result = Result(
        request="gpu", driver="gpu.example.com", pool=_pool_name(pool), device=f"gpu-{device}",
        share=str(UUID(int=claim + 1)), consumed={"memory": "10Gi"},
    )  # fmt: skip
    wish = Wish(name="gpu", device_class="gpu")
    return ClaimAllocated(uid=f"uid-{claim}", requests=(Request(name="gpu", wishes=(wish,)),), results=(result,))


def _pool_name(pool: int) -> str:
    return f"pool-{pool:05}"


def _claim_name(claim: int) -> str:
    return f"team/claim-{claim:06}"
