"""Which card a claim's device is: what its driver says in a slice, and nothing that is only likely."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.edge.statuswriter.metrics.claimed_cards import ClaimedCards, SliceCards, claimed_cards
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.slice import SliceDevice, SliceWithdrawn
from support.dra_facts import DRIVER, allocated, published
from support.gpu_states import desired_state


def gpu(name: str, uuid: str | None, attribute: str = "uuid") -> SliceDevice:
    return SliceDevice(name=name, attributes={} if uuid is None else {attribute: uuid, "type": "gpu"})


def found(*facts: Any) -> dict[tuple[str, str, str], str]:
    return dict(claimed_cards(desired_state(*facts).slices, SliceCards()))


SLICE = ("s1", published("w1", [gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-b"), gpu("gpu-2", None)], node="w1"))
CLAIM = ("ml/c", allocated(("w1", "gpu-0", None), ("w1", "gpu-2", None), ("w1", "gone", None)))


def test_a_device_that_a_claim_has_is_the_card_that_its_driver_says() -> None:
    assert found(SLICE, CLAIM) == {(DRIVER, "w1", "gpu-0"): "GPU-a"}
    assert found(SLICE) == {}
    assert found(SLICE, CLAIM, ("ml/c", ClaimReleased())) == {}
    assert found(SLICE, CLAIM, ("s1", SliceWithdrawn(uid="u"))) == {}


@pytest.mark.parametrize("attribute", ["uuid", f"{DRIVER}/uuid"])
def test_the_attribute_may_name_its_domain(attribute: str) -> None:
    slice_ = ("s1", published("w1", [gpu("gpu-0", "GPU-a", attribute)]))
    assert found(slice_, CLAIM) == {(DRIVER, "w1", "gpu-0"): "GPU-a"}


def test_the_pool_and_the_driver_count_as_well_as_the_name() -> None:
    others = [
        ("s2", published("w2", [gpu("gpu-0", "GPU-x")], node="w2")),
        ("s3", published("w1", [gpu("gpu-0", "GPU-y")], node="w1", driver="other.example")),
    ]
    assert found(SLICE, *others, CLAIM) == {(DRIVER, "w1", "gpu-0"): "GPU-a"}


@pytest.mark.parametrize("uuid", ["MIG-a", "", "0000:17:00.0"])
def test_what_is_no_card_has_no_series(uuid: str) -> None:
    assert found(("s1", published("w1", [gpu("gpu-0", uuid)])), CLAIM) == {}


def test_a_device_that_two_slices_describe_differently_is_left_out() -> None:
    other = ("s2", published("w1", [gpu("gpu-0", "GPU-z")], node="w1"))
    assert found(SLICE, other, CLAIM) == {}


def test_what_a_slice_says_later_counts() -> None:
    cards = SliceCards()
    key, (_, claim) = (DRIVER, "w1", "gpu-0"), CLAIM
    for uuid in ("GPU-a", "GPU-b"):
        state = desired_state(("s1", published("w1", [gpu("gpu-0", uuid)])), ("ml/c", claim))
        for _ in range(3):
            assert dict(claimed_cards(state.slices, cards)) == {key: uuid}


def test_it_is_served_while_the_module_is_enabled() -> None:
    (family,) = ClaimedCards(lambda: desired_state(SLICE, CLAIM)).collect()
    (sample,) = family.samples
    labels = {"driver": DRIVER, "pool": "w1", "device": "gpu-0", "UUID": "GPU-a"}
    assert (sample.name, sample.labels, sample.value) == ("gpuledger_dra_device_card", labels, 1.0)
    off = desired_state(SLICE, CLAIM, (MODULE_CONFIG, SettingsChanged(enabled=False)))
    (family,) = ClaimedCards(lambda: off).collect()
    assert family.samples == []
