"""A hostile agent claims whatever it likes whenever it likes: the cards of a node that reports them stay there."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.device import Card, DeviceFailed, DeviceHealthChanged, DeviceReportAccepted
from gpuledger.events.node import NodeDevicesObserved, NodeFeaturesObserved, NodeGone, NodeObserved, PciDevice
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.settings import SettingsChanged
from support.device_reports import AWAY, HOME, UUID, Log, card, restarted
from support.events import folded, rows_of
from support.inventory import MODULE, NFD

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


@given(claims=hostile, uuid=st.sampled_from([UUID, None]), loaded=st.lists(st.booleans(), min_size=10, max_size=10))
def test_no_claim_takes_or_changes_the_card_of_a_node_that_still_reports_it(
    claims: list[tuple[str, Payload, float]], uuid: str | None, loaded: list[bool]
) -> None:
    log = Log()
    log.card_on("n1", uuid)
    log.card_on("n2", "GPU-other")
    before = shown(log)
    for number, (subject, data, at) in enumerate(claims):
        decided = log.add(AWAY, subject, data, at)
        heard = [one.subject for one in decided if isinstance(one.data, DeviceReportAccepted)]
        assert uuid is None or UUID not in heard
        log.survey("n1", uuid if loaded[number] else None, at=number / 10)
        assert shown(log) == before
    assert log.state.node.rows["n1"].decided_at <= time_of_ns(log.messages[-1].recorded_ns)
    (verdict,) = log.add(HOME, uuid or PLACE, DeviceFailed(kind="XID 79"), at=1)
    assert isinstance(verdict.data, DeviceReportAccepted)


uuids = st.lists(st.sampled_from([UUID, "GPU-2", None]), max_size=2, unique=True)
found = st.integers(0, 2).map(
    lambda count: NodeFeaturesObserved(
        devices=tuple(PciDevice(index=i, pci_vendor="10de", pci_device="2335", pci_class="0302") for i in range(count)),
        nfd_version=NFD,
    )
)
nodes = st.sampled_from(["n1", "n2"])
facts = st.one_of(
    st.tuples(nodes, uuids),
    st.tuples(nodes, uuids),
    st.tuples(nodes, found),
    st.tuples(nodes, st.sampled_from([NodeGone(), NodeObserved(uid="u", nfd_version=NFD)])),
    st.tuples(st.just(MODULE), st.builds(SettingsChanged, enabled=st.booleans())),
    st.tuples(st.just(Rule.DEVICE_REPORTS), st.just(RuleEnforced(version=4))),
)
stories = st.lists(st.tuples(facts, st.sampled_from([1, 0.1, -0.5, -2])), max_size=14)


def record(log: Log, subject: str, fact: list[str | None] | Payload, at: float) -> None:
    """Record a fact of a story; what an agent finds is in its node's slots, in this order."""
    if isinstance(fact, list):
        places = ("0000:17:00.0", "0000:65:00.0")
        seen = [card(uuid).model_copy(update={"pci_address": at}) for at, uuid in zip(places, fact, strict=False)]
        log.add(f"/nodes/{subject}/agent", subject, NodeDevicesObserved(cards=tuple(seen)), at)
    elif isinstance(fact, RuleEnforced):
        log.add("/services/sources", subject, fact, at)
    else:
        log.add("/watchers/moduleconfig" if subject == MODULE else "/watchers/nodes", subject, fact, at)


@given(story=stories, version=st.sampled_from([3, 4]), restarts=st.sets(st.integers(0, 13)))
def test_a_process_that_restarts_and_one_that_reads_the_log_have_the_rows_of_one_that_lives_on(
    story: list[tuple[tuple[str, Any], float]], version: int, restarts: set[int]
) -> None:
    living, restarting, now = Log(version=version), Log(version=version), 0.0
    for log in (living, restarting):
        for node in ("n1", "n2"):
            record(log, node, NodeObserved(uid="u", nfd_version=NFD), 0)
    for number, ((subject, fact), step) in enumerate(story):
        now += max(step, 0)
        if number in restarts:
            restarting.inventory = restarted(restarting.inventory)
        for log in (living, restarting):
            record(log, subject, fact, max(now + min(step, 0), 0))
    assert rows_of(restarting.inventory) == rows_of(living.inventory)
    assert rows_of(folded(InventoryProjection(), living.messages)) == rows_of(living.inventory)
