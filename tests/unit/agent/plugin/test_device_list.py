"""The units that the kubelet gets, from what discovery, health and setup found."""

from collections.abc import Mapping

import pytest

from gpuledger.agent.board import BoardState, DeviceUnit, ResourceOffer
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.plugin.device_list import ListedUnit, device_lists, invalid_ids
from support.kubelet_parts import address, card, slices, whole_cards

POOL = "gpu.deckhouse.io/a"
OFFER = ResourceOffer(POOL, whole_cards(0))
SURVEY = Survey((card(0, numa_node=1),))


@pytest.mark.parametrize(
    ("survey", "unfit", "healthy", "numa_node"),
    [
        (SURVEY, {}, True, 1),
        (SURVEY, {address(0): "XID 79"}, False, 1),
        (SURVEY, {address(1): "XID 79"}, True, 1),
        (SURVEY, None, False, 1),
        (None, {}, True, None),
        (Survey(()), {}, False, None),
        (Survey((card(0, numa_node=-1),)), {}, True, None),
        (Survey((card(0),)), {}, True, None),
    ],
)
def test_health_and_numa_node(
    survey: Survey | None, unfit: Mapping[str, str] | None, healthy: bool, numa_node: int | None
) -> None:
    found = device_lists(BoardState(survey=survey, unfit=unfit, offers=(OFFER,)))
    assert found == {POOL: (ListedUnit(OFFER.units[0], healthy, numa_node),)}


def test_each_id_is_listed_once_in_the_offers_order() -> None:
    offers = (
        ResourceOffer(POOL, slices(0, 2)),
        ResourceOffer("x/y", ()),
        ResourceOffer(POOL, (*slices(0, 1), *whole_cards(1))),
    )
    found = device_lists(BoardState(offers=offers))
    assert [one.unit.id for one in found[POOL]] == ["GPU-0::0", "GPU-0::1", "GPU-1"]
    assert found["x/y"] == ()


def test_ids_that_no_kubelet_takes_are_left_out_and_reported() -> None:
    odd = tuple(DeviceUnit(name, "GPU-0", address(0)) for name in ("", "x" * 63, "y" * 64))
    seen = BoardState(offers=(ResourceOffer(POOL, odd),))
    assert [one.unit.id for one in device_lists(seen)[POOL]] == ["x" * 63]
    assert invalid_ids(seen) == ("", "y" * 64)
