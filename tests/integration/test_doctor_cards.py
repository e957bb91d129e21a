"""`gpuledger doctor` names cards that several agents report, also one that moved before a claim took none."""

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.events.node import NodeDevicesObserved, NodeGone, NodeObserved
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.tools.doctor import Check, DatabaseChecks, FoundLog, Status
from support.device_reports import AWAY, HOME, UUID, card
from support.events import event
from support.projections import QUICK, publish

WATCHER = "/watchers/nodes"
SEEN = NodeDevicesObserved(cards=(card(),))


async def cards_check(ledger: JetStreamLedger, url: str) -> Check:
    await Runner(InventoryProjection(), ledger, url, settings=QUICK).catch_up(await ledger.head())
    found = [check async for check in DatabaseChecks(url, [], FoundLog()).run()]
    (check,) = (check for check in found if check.check == "cards")
    return check


async def test_cards_that_several_agents_report_are_named(ledger: JetStreamLedger, url: str) -> None:
    nodes = [
        event(NodeObserved(uid=node, nfd_version="0.17.0"), node, number=number, source=WATCHER)
        for number, node in enumerate(("n1", "n2"), 1)
    ]
    await publish(ledger, [*nodes, event(SEEN, "n1", number=1, source=HOME)])
    assert (await cards_check(ledger, url)).status is Status.OK
    rule = event(RuleEnforced(version=4), Rule.DEVICE_REPORTS, source="/services/sources")
    stolen = event(SEEN, "n2", number=1, at=23.9, source=AWAY)
    await publish(ledger, [stolen, rule, event(SEEN, "n1", number=2, at=1, source=HOME)])
    check = await cards_check(ledger, url)
    assert (check.status, f"{UUID} by n1 and n2 (n2 has it)" in check.detail) == (Status.WARNING, True)
    await publish(ledger, [event(NodeDevicesObserved(), "n1", number=3, at=2, source=HOME)])
    assert (await cards_check(ledger, url)).status is Status.OK
    await publish(ledger, [event(SEEN, "n1", number=4, at=3, source=HOME)])
    assert (await cards_check(ledger, url)).status is Status.WARNING
    await publish(ledger, [event(NodeGone(), "n2", number=3, at=4, source=WATCHER)])
    assert (await cards_check(ledger, url)).status is Status.OK
