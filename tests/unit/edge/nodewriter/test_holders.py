"""Who holds a device: what agents, drivers and slices say, and when nobody knows."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuledger.edge.nodewriter.intents import Intents, IntentsProjection
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.node import NodeDevicesObserved, NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, event, message

CARD, OTHER, INSTANCE = "GPU-aaaa", "GPU-bbbb", "MIG-cccc"
AGENT, WATCHERS = "/nodes/n1/agent", "/watchers/resourceslices"
TEXT = {"driver": "gpu.example.com", "pool": "n1"}


class Log:
    """A log in memory, folded as the node writer does."""

    def __init__(self) -> None:
        self.fold = Fold(IntentsProjection(), GENERATION)
        self._numbers: dict[str, int] = {}
        self._place = 0

    @property
    def state(self) -> Intents:
        state = self.fold.state
        assert isinstance(state, Intents)
        return state

    def record(self, subject: str, data: Payload, source: str = AGENT, at_s: float = 0) -> None:
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        self._place += 1
        made = event(data, subject, source=source, number=number)._replace(time=START + timedelta(seconds=at_s))
        self.fold.apply(message(made, self._place))

    def holds(self, *devices: str, pod: dict[str, Any] | None = None) -> bool | None:
        return self.state.holds(pod or gpu_pod(), "n1", devices or (CARD,))


def allocated(*units: str, claims: tuple[str, ...] = (), resource: str = "nvidia.com/gpu") -> AllocationObserved:
    return AllocationObserved.model_validate(
        {
            "node": "n1",
            "namespace": "team",
            "pod": "p",
            "container": "main",
            "resources": [{"resource": resource, "devices": units}] if units else [],
            "claims": [{"claim": "c", "device": device, **TEXT} for device in claims],
        }
    )


def gpu_pod(created_at: datetime | None = START, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    made = {"creationTimestamp": created_at.isoformat()} if created_at else {}
    return {"metadata": {"namespace": "team", "name": "p", **made}, "spec": {"containers": containers, **spec}}


def published(**devices: dict[str, str]) -> SlicePublished:
    listed = [{"name": name, "attributes": attributes} for name, attributes in devices.items()]
    return SlicePublished.model_validate(
        {"uid": "s", "pool_generation": 1, "slice_count": 1, "devices": listed, **TEXT}
    )


def cards(*instances: str) -> NodeDevicesObserved:
    card = {"uuid": CARD, "pci_address": "0000:17:00.0", "pci_vendor": "10de", "pci_device": "20b5"}
    listed = [{"uuid": one, "profile": "1g.10gb", "start": 0} for one in instances]
    return NodeDevicesObserved.model_validate({"cards": [{**card, "mig_instances": listed}]})


HELD = "n1/team/p/main"


@pytest.mark.parametrize(
    ("units", "holds"), [((CARD,), True), ((f"{CARD}::3",), True), ((OTHER,), False), ((OTHER, CARD), True)]
)
def test_a_card_is_held_by_its_units(units: tuple[str, ...], holds: bool) -> None:
    log = Log()
    log.record(HELD, allocated(*units))
    assert log.holds() is holds


def test_a_mig_instance_is_of_the_card_that_its_agent_finds_it_on() -> None:
    log = Log()
    log.record(HELD, allocated(INSTANCE, resource="nvidia.com/mig-1g.10gb"))
    assert log.holds() is None, "nobody knows which card it is on"
    log.record("n1", cards(INSTANCE))
    assert (log.holds(), log.holds(OTHER), log.holds(INSTANCE)) == (True, False, True)


def test_a_claims_device_is_the_card_that_its_slice_says() -> None:
    log = Log()
    log.record(HELD, allocated(claims=("gpu-0",)))
    assert log.holds() is None
    log.record("s", published(**{"gpu-0": {"gpu.example.com/uuid": CARD}}), WATCHERS)
    assert (log.holds(), log.holds(OTHER)) == (True, False)
    log.record("s", published(**{"gpu-0": {"uuid": INSTANCE, "parentUUID": OTHER}}), WATCHERS)
    assert (log.holds(), log.holds(OTHER), log.holds(INSTANCE)) == (False, True, True)
    log.record("s", SliceWithdrawn(), WATCHERS)
    assert log.holds() is None


def test_a_card_that_fails_is_held_though_its_agent_finds_its_instances_no_longer() -> None:
    log = Log()
    log.record("n1", cards(INSTANCE))
    log.record(HELD, allocated(INSTANCE, resource="nvidia.com/mig-1g.10gb"), at_s=1)
    log.record("n1", cards(), at_s=2)
    log.record("n1", cards(), at_s=3)
    assert (log.holds(), log.holds(OTHER)) == (True, False)
    log.record(HELD, allocated(INSTANCE, resource="nvidia.com/mig-1g.10gb"), at_s=4)
    assert log.holds() is True, "an agent that starts anew says it again"
    log.record(HELD, allocated(OTHER), at_s=5)
    assert log.holds() is False


def test_a_claims_device_that_its_driver_withdraws_is_still_held() -> None:
    log = Log()
    log.record("s", published(**{"gpu-0": {"uuid": CARD}}), WATCHERS)
    log.record(HELD, allocated(claims=("gpu-0",)), at_s=1)
    log.record("s", published(), WATCHERS)
    assert (log.holds(), log.holds(OTHER)) == (True, False)
    log.record("s", SliceWithdrawn(), WATCHERS)
    assert (log.holds(), log.holds(OTHER)) == (True, False)
    for name, card in (("s1", CARD), ("s2", OTHER)):
        log.record(name, published(**{"gpu-0": {"uuid": card}}), WATCHERS)
    assert log.holds() is None, "two slices contradict each other"


def test_two_slices_that_contradict_each_other_say_nothing() -> None:
    log = Log()
    log.record(HELD, allocated(claims=("gpu-0",)))
    for name, card in (("s1", CARD), ("s2", OTHER)):
        log.record(name, published(**{"gpu-0": {"uuid": card}}), WATCHERS)
    assert log.holds() is None


def test_of_a_pod_that_requests_devices_and_has_no_report_nobody_knows() -> None:
    log = Log()
    assert log.holds() is None
    assert log.holds(pod=gpu_pod(containers=[{"name": "main"}])) is False
    assert log.holds(pod=gpu_pod(containers=[{"name": "main"}], resourceClaims=[{"name": "c"}])) is None
    log.record(HELD, allocated("card-3"))
    assert log.holds() is None, "what no UUID names"


def test_a_report_that_is_older_than_the_pod_is_about_another_one() -> None:
    log = Log()
    log.record(HELD, allocated(CARD), at_s=1)
    assert log.holds(pod=gpu_pod(START)) is True
    assert log.holds(pod=gpu_pod(START + timedelta(seconds=2))) is None
    log.record(HELD, allocated(OTHER), at_s=0)
    assert log.holds() is True, "a late report turns nothing back"
    log.record(HELD, AllocationEnded(), at_s=3)
    assert log.holds() is None


def test_what_a_node_that_is_gone_had_is_forgotten() -> None:
    log = Log()
    log.record(HELD, allocated(CARD), at_s=1)
    log.record("n1", cards(INSTANCE), at_s=1)
    log.record("n1", NodeGone(), "/watchers/nodes", at_s=2)
    state = log.state
    assert (dict(state.container_units.rows), dict(state.node_cards.rows)) == ({}, {})


def sharing_pod(allocated_ids: tuple[str | None, ...] | None, text: str | None = None) -> dict[str, Any]:
    """A pod that asks for half a card, with these ids in its DeviceAllocations; None: without the annotation."""
    pod = gpu_pod(START)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"kooperator/gpu-core": "50"}}
    if allocated_ids is not None:
        ids: list[dict[str, Any]] = [{} if one is None else {"id": one} for one in allocated_ids]
        text = json.dumps({"gpu": [{"minor": minor, "resources": {}} | one for minor, one in enumerate(ids)]})
    if text is not None:
        pod["metadata"]["annotations"] = {"scheduling.kooperator/device-allocated": text}
    return pod


@pytest.mark.parametrize(
    ("pod", "holds"),
    [
        (sharing_pod((CARD,)), True),
        (sharing_pod((OTHER,)), False),
        (sharing_pod((OTHER, CARD)), True),
        (sharing_pod((None,)), None),
        (sharing_pod(None), None),
        (sharing_pod(None, "{"), None),
    ],
)
def test_a_pod_with_a_share_has_the_cards_of_its_annotation(pod: dict[str, Any], holds: bool | None) -> None:
    assert Log().holds(pod=pod) is holds
