"""Fills a log fast: events of a few kinds from templates, about a fleet that stays the same however long the log is.

First the inventory detects devices, one a node. Then, over and over, a namespace opens or closes, a node has other
labels, a device's preparation changes, and a pod comes or goes. Nobody waits for each acknowledgement: only the last
message of each thousand is acknowledged, and the log is counted at the end.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from gpuledger.events.device import DeviceDetected, DeviceStateChanged, Hardware
from gpuledger.events.envelope import encode, nats_subject_of
from gpuledger.events.namespace import NamespaceObserved
from gpuledger.events.node import Condition, NodeInventoryChanged, NodeLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.position import events_up_to
from gpuledger.ledger.jetstream import JetStreamLedger
from support.events import event, hour

WATCHERS: Final = "/watchers/bench"
BOOTSTRAP: Final = "/services/bootstrap"
INVENTORY: Final = "/services/inventory"
PER_ACKNOWLEDGEMENT: Final = 1_000
SECONDS_PER_HOUR: Final = 3_600
NUMBER: Final = 987_654_321
"""What stands in a template where each event has its own number."""

TEMPLATES_MAX: Final = 65_536
KINDS: Final = 4
"""One of as many events is the bootstrap's, the others are the watchers'."""


class _Template(NamedTuple):
    """The subject of an event, and its text before, between and behind id, time and number."""

    subject: str
    parts: tuple[bytes, ...]


@dataclass(frozen=True)
class LongLog:
    """A log about so many devices, as many nodes and as many namespaces."""

    subjects: int

    @property
    def first(self) -> int:
        """The number of the first event after those that begin the log."""
        return 2 * self.subjects + 1

    async def record(self, ledger: JetStreamLedger, first: int, last: int) -> None:
        """Record the events of these numbers; the log ends before them."""
        client = ledger._connection.client
        for start in range(first, last + 1, PER_ACKNOWLEDGEMENT):
            *block, final = map(self._message, range(start, min(last + 1, start + PER_ACKNOWLEDGEMENT)))
            # The protocol's own lines: a thousand calls of `publish` take longer than the server does.
            lines = [b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(data), data) for subject, data in block]
            await client._send_command(b"".join(lines))
            await ledger._connection.jetstream.publish(*final)
        recorded = events_up_to(await ledger.head())
        assert recorded == last, f"the log has {recorded} events, and not {last}"

    def _message(self, number: int) -> tuple[str, bytes]:
        if number < self.first:
            return self._beginning(number)
        place = number - self.first
        bootstrap = place // KINDS
        own = bootstrap + 1 if place % KINDS == 0 else place - bootstrap
        template = _cycle(place % (2 * KINDS * self.subjects), self.subjects)
        before, middle, between, behind = template.parts
        at = hour(number / SECONDS_PER_HOUR).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
        text = b"%d" % own
        return template.subject, b"".join((before, text, middle, at, between, text, behind))

    def _beginning(self, number: int) -> tuple[str, bytes]:
        index = (number - 1) // 2
        data: Payload = NodeInventoryChanged(present=True, conditions=(_COMPLETE,))
        subject = f"n{index}"
        if number % 2:
            hardware = Hardware(uuid=f"GPU-{index}", pci_vendor="10de", pci_device="20b5", product="NVIDIA A100")
            data = DeviceDetected(hardware=hardware, managed=True, node=subject, card=f"GPU-{index}")
            subject = f"d{index}"
        one = event(data, subject, number=number, at=number / SECONDS_PER_HOUR, source=INVENTORY)
        return nats_subject_of(one), encode(one)


_COMPLETE: Final = Condition(type="InventoryComplete", status="True", reason="AllDevicesKnown")


@lru_cache(maxsize=TEMPLATES_MAX)
def _cycle(place: int, subjects: int) -> _Template:
    """The template of the event at a place of the cycle, which goes twice over all subjects."""
    index, is_second = place // KINDS % subjects, place >= KINDS * subjects
    match place % KINDS:
        case 0:
            ready = DeviceStateChanged(state="Ready" if is_second else "Validating", reason="Bench")
            return _template(f"d{index}", ready, BOOTSTRAP)
        case 1:
            return _template(f"team-{index}", NamespaceObserved(uid="u", gpu_enabled=is_second), WATCHERS)
        case 2:
            labels = {"zone": f"z{index % 5}-{is_second}", "kubernetes.io/hostname": f"n{index}"}
            return _template(f"n{index}", NodeLabelled(uid="u", labels=labels), WATCHERS)
        case _:
            requests = {"gpu.deckhouse.io/a": 1}
            pod = PodGone(uid="u") if is_second else PodObserved(uid="u", node=f"n{index}", requests=requests)
            return _template(f"team-{index}/p", pod, WATCHERS)


def _template(subject: str, data: Payload, source: str) -> _Template:
    one = event(data, subject, number=NUMBER, at=0, source=source)
    text, at = encode(one), hour(0).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    before, middle, behind = text.split(b"%d" % NUMBER)
    middle, between = middle.split(at)
    return _Template(nats_subject_of(one), (before, middle, between, behind))
