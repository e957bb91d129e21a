"""Any order of publishers: their simultaneous facts about a node lead to the same preparation.

Each publisher's own facts keep their order, as the log keeps them; how they interleave is chance.
"""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.device import DeviceHealthChanged, DeviceWithdrawn
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import (
    ALL_READY,
    MODULE,
    NODE,
    Prepared,
    cards,
    components,
    described,
    detected,
    heartbeat,
    inventory,
)
from support.thoroughness import examples


class Report(NamedTuple):
    """A fact: when, its subject, and its data."""

    at: int
    subject: str
    data: Payload


SubjectFact = tuple[str, Payload]
flags = st.sampled_from([True, True, False])
standings = st.sampled_from(["ready", "ready", "ready", "waiting", "failing", "failing:toolkit-validation"])
of_inventory: st.SearchStrategy[SubjectFact] = st.one_of(
    st.builds(lambda managed, complete: (NODE, inventory(managed=managed, complete=complete)), flags, flags),
    st.sampled_from(["d1", "d2"]).map(lambda name: (name, detected(f"GPU-{name}"))),
    st.builds(lambda name, missing: (name, described(missing=missing)), st.sampled_from(["d1", "d2"]), st.booleans()),
    st.just(("d2", DeviceWithdrawn())),
)
of_components: st.SearchStrategy[SubjectFact] = st.dictionaries(
    st.sampled_from([*ALL_READY, "node_agent"]), standings, max_size=5
).map(lambda recorded: (NODE, components(**recorded))) | st.just((NODE, components(**ALL_READY)))
of_agent: st.SearchStrategy[SubjectFact] = st.one_of(
    st.just((NODE, heartbeat())),
    st.just((NODE, heartbeat())),
    st.just((NODE, heartbeat(fresh=False))),
    st.booleans().map(lambda healthy: ("GPU-d1", DeviceHealthChanged(healthy=healthy))),
    flags.map(lambda driver: (NODE, cards(driver=driver))),
)
of_settings: st.SearchStrategy[SubjectFact] = st.builds(
    SettingsChanged, gfd_enabled=flags, validator_enabled=flags, heartbeats=st.just(2), recovery_heartbeats=st.just(2)
).map(lambda data: (MODULE, data))
FIRST: list[SubjectFact] = [("d1", detected("GPU-d1")), (NODE, inventory())]


@st.composite
def publishers(draw: st.DrawFn) -> list[list[Report]]:
    """What each publisher says, at times that are nobody else's."""
    recorded = [
        [*FIRST, *draw(st.lists(of_inventory, max_size=4))],
        draw(st.lists(of_components, max_size=4)),
        draw(st.lists(of_agent, max_size=8)),
        draw(st.lists(of_settings, max_size=1)),
    ]
    order = draw(st.permutations([who for who, reports in enumerate(recorded) for _ in reports]))
    left = [iter(reports) for reports in recorded]
    found: list[list[Report]] = [[] for _ in recorded]
    for at, who in enumerate(order, 1):
        found[who].append(Report(at * 10, *next(left[who])))
    return found


def outcome(reports: list[Report], until: float | None) -> object:
    node = Prepared()
    for report in reports:
        node.record(*report)
    if until is not None:
        node.wait(until)
    devices = {name: node.device(name) for name in node.state.device.rows}
    return node.phase(), node.conditions(), devices


@examples(3)
@given(recorded=publishers(), data=st.data())
def test_any_interleaving_of_publishers_leads_to_the_same_preparation(
    recorded: list[list[Report]], data: st.DataObject
) -> None:
    in_time = sorted((report for reports in recorded for report in reports), key=lambda report: report.at)
    order = data.draw(st.permutations([who for who, reports in enumerate(recorded) for _ in reports]))
    left = [iter(reports) for reports in recorded]
    interleaved = [next(left[who]) for who in order]
    until = data.draw(st.sampled_from([None, 10_000.0]))
    assert outcome(interleaved, until) == outcome(in_time, until)
