"""Who held a card at a moment of the past: whole cards, MIG instances and devices of claims, as drains see them."""

from typing import Any

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import Event
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from gpuledger.tools.whatif.card_holders import HeldUnit, Moment, answered
from support.remediation import at

CARD, INSTANCE, DRIVER = "GPU-a", "MIG-a", "gpu.example.com"
POD = "team", "p"


def unit(device: str, since_s: float = 10, pod: str = "p", driver: str | None = None) -> HeldUnit:
    claim, pool = (None, None) if driver is None else ("c", "n1")
    return HeldUnit("team", pod, f"n1/team/{pod}/main", device, claim, driver, pool, at(since_s))


def moment(*units: HeldUnit, at_s: float = 100) -> Moment:
    return Moment("n1", at(at_s), (CARD,), units)


def surveyed(at_s: float, *instances: str) -> Fact:
    listed = [{"uuid": one, "profile": "1g.10gb", "start": 0} for one in instances]
    card = {"uuid": CARD, "pci_address": "0000:17:00.0", "pci_vendor": "10de", "pci_device": "20b5"}
    data = NodeDevicesObserved.model_validate({"cards": [{**card, "mig_instances": listed}]})
    return fact("n1", data, at_s)


def published(at_s: float, name: str = "gpu-0", **attributes: str) -> Fact:
    fields: dict[str, Any] = {"uid": "s", "pool_generation": 1, "slice_count": 1, "driver": DRIVER, "pool": "n1"}
    fields["devices"] = [{"name": name, "attributes": attributes}]
    return fact("slice-1", SlicePublished.model_validate(fields), at_s)


def fact(subject: str, data: Payload, at_s: float) -> Fact:
    return Fact(Event("e", "/x", data.TYPE, subject, at(at_s), data, "e", 1), ORIGIN, 0)


@pytest.mark.parametrize(
    ("units", "facts", "expected"),
    [
        ([unit(CARD)], [], {POD: True}),
        ([unit("GPU-b")], [], {}),
        ([unit(INSTANCE)], [surveyed(5, INSTANCE)], {POD: True}),
        ([unit(INSTANCE)], [surveyed(50, INSTANCE)], {POD: True}),
        ([unit(INSTANCE)], [surveyed(5, INSTANCE), surveyed(50)], {POD: True}),
        ([unit(INSTANCE, 60)], [surveyed(5, INSTANCE), surveyed(50)], {POD: False}),
        ([unit(INSTANCE)], [surveyed(101, INSTANCE)], {POD: False}),
        ([unit("gpu-0", driver=DRIVER)], [published(5, uuid=CARD)], {POD: True}),
        ([unit("gpu-0", driver=DRIVER)], [published(5, uuid="GPU-b")], {}),
        ([unit("gpu-0", driver=DRIVER)], [published(5, uuid=INSTANCE, parentUUID=CARD)], {POD: True}),
        ([unit("gpu-0", driver=DRIVER)], [published(5, uuid=CARD), fact("slice-1", SliceWithdrawn(), 50)], {POD: True}),
        ([unit("gpu-0", driver=DRIVER)], [], {POD: False}),
        ([unit("GPU-b"), unit(CARD, 20)], [], {POD: True}),
        ([unit("MIG-x", pod="q"), unit(CARD)], [], {("team", "q"): False, POD: True}),
    ],
)
def test_who_held_a_card_follows_from_what_the_ledger_had_by_then(
    units: list[HeldUnit], facts: list[Fact], expected: dict[tuple[str, str], bool]
) -> None:
    assert answered({7: moment(*units)}, facts) == {7: expected}


def test_each_moment_has_its_own_answer() -> None:
    facts = [surveyed(5, INSTANCE), surveyed(50)]
    early, late = moment(unit(INSTANCE), at_s=20), moment(unit(INSTANCE, 60, "q"), at_s=100)
    assert answered({0: early, 1: late, 10: moment()}, facts) == {0: {POD: True}, 1: {("team", "q"): False}, 10: {}}
