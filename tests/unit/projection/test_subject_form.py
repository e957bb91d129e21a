"""Services and importers record names under a shared subject only where the rule is enforced."""

from gpuledger.edge.watchers.decide import NewFact
from gpuledger.edge.watchers.journal import Journal
from gpuledger.edge.watchers.resources import pods
from gpuledger.events.node import NodeGone
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.position import number_of
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.subject_form import SubjectForm
from support.events import event, hour, outgoing
from support.ledgers import everything

NEWEST = RULE_VERSIONS[Rule.SHARED_SUBJECTS]
NAMED, SHARED = "ledger.svc.watchers.pod.team%2Fa.gone", "ledger.svc.watchers.pod.~.gone"
POD = outgoing(event(PodGone(uid="u"), "team/a", source="/watchers/pods"))
NODE = outgoing(event(NodeGone(uid="u"), "w1", source="/watchers/nodes"))


def rule(version: int = NEWEST) -> Outgoing:
    return outgoing(
        event(RuleEnforced(version=version), Rule.SHARED_SUBJECTS, number=version, source="/services/sources")
    )


class CountedLedger(MemoryLedger):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    async def last_sequence(self, subject_filter: str) -> int:
        self.asked += 1
        return int(await super().last_sequence(subject_filter))


async def test_the_form_follows_the_rule_and_then_asks_no_more() -> None:
    ledger = CountedLedger()
    form = SubjectForm(ledger)
    assert [one.subject for one in await form.of([POD, NODE])] == [NAMED, NODE.subject]
    await ledger.publish(rule())
    assert await form.of([POD, NODE]) == [POD._replace(subject=SHARED), NODE]
    asked = ledger.asked
    assert [one.subject for one in await form.of([POD])] == [SHARED]
    assert ledger.asked == asked


async def test_what_names_nothing_that_shares_asks_nothing() -> None:
    ledger = CountedLedger()
    assert await SubjectForm(ledger).of([NODE]) == [NODE]
    assert ledger.asked == 0


async def test_a_rule_whose_position_operators_skip_is_not_enforced() -> None:
    ledger = MemoryLedger()
    receipt = await ledger.publish(rule())
    skip = SourcePositionSkipped(generation=1, sequence=number_of(receipt.sequence), reason="an older build stops here")
    await ledger.publish(outgoing(event(skip, "log", source="/operators/me")))
    assert [one.subject for one in await SubjectForm(ledger).of([POD])] == [NAMED]


async def test_a_watcher_goes_on_with_what_it_recorded_under_either_form() -> None:
    ledger = MemoryLedger()
    journal = Journal(ledger, pods.KIND, lambda: "e")
    await journal.record([NewFact("team/a", hour(1), PodObserved(uid="u", node="w1"))])
    await ledger.publish(rule())
    await journal.record([NewFact("team/a", hour(2), PodGone(uid="u"))])
    subjects = [one.subject for one in await everything(ledger) if ".pod." in one.subject]
    assert subjects == ["ledger.svc.watchers.pod.team%2Fa.observed", SHARED]
    again = Journal(ledger, pods.KIND, lambda: "other")
    assert await again.catch_up() == {"team/a"}
    assert again.recorded == journal.recorded
    await again.record([NewFact("team/b", hour(3), PodGone(uid="u"))])
    assert [one.subject for one in await everything(ledger)][-1] == SHARED
