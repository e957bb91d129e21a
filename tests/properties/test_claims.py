"""A hostile agent claims whatever it likes whenever it likes: the cards of a node that reports them stay there."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import time_of_ns
from gpuledger.events.device import Card, DeviceFailed, DeviceHealthChanged, DeviceReportAccepted
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.payload import Payload
from support.device_reports import AWAY, HOME, UUID, Log

PLACE = "n1/0000:17:00.0"
IDS = (UUID, PLACE, "GPU-other", "n2/0000:17:00.0", None)

cards = st.builds(
    Card,
    uuid=st.sampled_from(IDS),
    pci_address=st.sampled_from(["0000:17:00.0", "0000:65:00.0"]),
    pci_vendor=st.just("10de"),
    pci_device=st.just("2335"),
)
surveys = st.builds(NodeDevicesObserved, cards=st.lists(cards, max_size=3).map(tuple))
reports = st.sampled_from([DeviceFailed(kind="XID 79"), DeviceHealthChanged(healthy=False)])
hostile = st.lists(
    st.tuples(st.just("n2"), surveys, st.floats(-100, 23.9)) | st.tuples(st.just(UUID), reports, st.floats(-100, 23.9)),
    max_size=10,
)


def shown(log: Log) -> list[tuple[Any, ...]]:
    return sorted((row.name, row.card, row.missing, row.slot, row.uuid) for row in log.state.device.where("node", "n1"))


@given(claims=hostile, uuid=st.sampled_from([UUID, None]))
def test_no_claim_takes_or_changes_the_card_of_a_node_that_still_reports_it(
    claims: list[tuple[str, Payload, float]], uuid: str | None
) -> None:
    log = Log()
    log.card_on("n1", uuid)
    log.card_on("n2", "GPU-other")
    before = shown(log)
    for number, (subject, data, at) in enumerate(claims):
        decided = log.add(AWAY, subject, data, at)
        heard = [one.subject for one in decided if isinstance(one.data, DeviceReportAccepted)]
        assert uuid is None or UUID not in heard
        log.survey("n1", uuid, at=number / 10)
        assert shown(log) == before
    assert log.state.node.rows["n1"].decided_at <= time_of_ns(log.messages[-1].recorded_ns)
    (verdict,) = log.add(HOME, uuid or PLACE, DeviceFailed(kind="XID 79"), at=1)
    assert isinstance(verdict.data, DeviceReportAccepted)
