"""A status writer that starts at a snapshot has the same objects to write, delete and announce as one from zero."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.tombstones import LATE_MAX
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.desired.young import YOUNG_MAX, YoungOccurrences
from gpuledger.edge.statuswriter.events.series import EVENT_AGE_MAX_S, Occurrence, is_fresh
from gpuledger.edge.statuswriter.objects import DesiredObject, Key
from gpuledger.events.device import DevicePoolApplied, DeviceWithdrawn, MigInstance
from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import (
    MachineConfigPoolGone,
    MachineConfigPoolWithdrawn,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import (
    NodeBootstrapWithdrawn,
    NodeFeaturesGone,
    NodeGone,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
)
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.pool import PoolGone, PoolReleased
from gpuledger.events.settings import SettingNotInForce, SettingsChanged
from gpuledger.ledger.api import Message
from gpuledger.projection.fold import Fold
from support.config_decisions import INTRODUCED, RENDERED, changed, configured, defined, rendered
from support.dra_facts import allocated, device, published, released, withdrawn
from support.events import START, SubjectFact, event, folded, message, rows_of
from support.gpu_states import (
    CARD,
    INCOMPLETE,
    MIG,
    POOL,
    assigned,
    found,
    offers,
    phase,
    prepared,
    ready,
    source_of,
)
from support.inventory import MODULE, card, cards_seen, features, observed
from support.snapshots import reloaded
from support.statuswriter_parts import DEVICE

RULE = node_feature_rule()
IN_VAIN = SettingNotInForce(field="x", problem="x is no setting")
INSTANCES = (MigInstance(uuid="MIG-1", profile="1g.5gb", start=0), MigInstance(uuid="MIG-2", profile="1g.5gb", start=1))
NODE = "w1"
FACTS: list[SubjectFact] = [
    *found("w1-0"), ("w1-0", DeviceWithdrawn(reason="Retired")),
    ("w1-0", prepared("Ready")), ("w1-0", prepared("Faulted")),
    ("w1-0", assigned("Pending")), ("w1-0", assigned("Assigned")),
    ("w1-0", assigned(None, reason="AnnotationMismatch")), ("w1-0", DevicePoolApplied(pool=POOL, partitions=7)),
    (NODE, ready()), (NODE, phase("Validating")), (NODE, phase("ValidatingFailed", ("DriverMissing", "True"))),
    (NODE, NodeBootstrapWithdrawn()), (NODE, NodeInventoryWithdrawn()),
    (NODE, NodeInventoryChanged(present=False, conditions=(INCOMPLETE,))),
    (NODE, observed("20b5")), (NODE, NodeGone(uid="u")), (NODE, features("20b5")), (NODE, NodeFeaturesGone()),
    (NODE, cards_seen(card("GPU-w1-0", mig_instances=INSTANCES))), (NODE, cards_seen()),
    (POOL, CARD), (POOL, MIG), (POOL, offers(8)), (POOL, offers(0, ("Maintenance", "True"))),
    (POOL, PoolReleased()), (POOL, PoolGone(uid="u")), ("team/p", PodGone(uid="u")),
    ("team/p", PodObserved(uid="p", node=NODE, requests={"gpu.deckhouse.io/a": 2})),
    (MODULE, SettingsChanged(generation=4, not_in_force=(IN_VAIN,))), (MODULE, SettingsChanged(generation=5)),
    (MODULE, ModulePrerequisiteChanged(met=True, reason="SurveyedByAgents")),
    (MODULE, ModulePrerequisiteChanged(met=False, reason="NodeFeatureDiscoveryMissing")),
    ("s1", published("p", [device("gpu-0"), device("gpu-1")], node=NODE)), ("s1", withdrawn()),
    ("worker", defined()), ("worker", defined("p2", reboot_strategy="IfRequired")), ("worker", MachineConfigPoolGone()),
    ("worker", RENDERED), ("worker", rendered("other")), ("worker", MachineConfigPoolWithdrawn()),
    ("worker", MachineConfigRenderedWithdrawn(name=RENDERED.name)),
    ("worker", changed(("Updating", "True", "NodesPending"))), ("worker", changed(("Updating", "False", "Done"))),
    (NODE, configured()), (NODE, configured("Failed", reason="ApplyTimeout")), (NODE, NodeConfigChanged(uid="u2")),
    (NODE, NodeConfigReported(state="error", error="disk full")), (NODE, NodeConfigReported(state="done")),
    (NODE, NodeConfigDrainFailed(pool="worker", attempt=1)),
    ("team/c", allocated(("p", "gpu-0", None))), ("team/c", released()),
]  # fmt: skip


class Recorded(NamedTuple):
    """A fact, how long before its recording it happened, and how long after the one before that is; in minutes."""

    fact: SubjectFact
    late: int
    after: int


WEEK = int(LATE_MAX / timedelta(minutes=1)) + 1
RECORDS = st.lists(
    st.builds(Recorded, st.sampled_from(FACTS), st.sampled_from([0, 0, 3, 20]), st.sampled_from([0, 1, 4, 11, WEEK])),
    max_size=40,
)


def log_of(records: Sequence[Recorded]) -> list[Message]:
    numbers: dict[str, int] = {}
    messages, minute = [], 100
    for sequence, ((subject, data), late, after) in enumerate(records, 1):
        minute += after
        source = source_of(data)
        numbers[source] = numbers.get(source, 0) + 1
        messages.append(_message(subject, data, source, numbers[source], sequence, minute, late))
    return messages


def _message(subject: str, data: Payload, source: str, number: int, sequence: int, minute: int, late: int) -> Message:
    one: Decoded = event(data, subject, number=number, at=(minute - late) / 60, source=source)
    recorded = START + timedelta(minutes=minute)
    return message(one, sequence)._replace(recorded_ns=int(recorded.timestamp()) * 1_000_000_000)


def new_fold() -> Fold:
    return folded(DesiredProjection(), [], types=INTRODUCED)


def state_of(fold: Fold) -> DesiredState:
    assert isinstance(fold.state, DesiredState)
    return fold.state


def shown(state: DesiredState) -> dict[Key, DesiredObject | None]:
    return {key: desired_object(state, key, RULE) for key in list(state.keys())}


def fresh(state: DesiredState, now: datetime) -> list[Occurrence]:
    return [one for one in state.take_occurrences() if is_fresh(one, now, EVENT_AGE_MAX_S)]


@given(RECORDS, st.data())
def test_a_snapshot_at_any_position_leads_to_the_same_work(records: list[Recorded], data: st.DataObject) -> None:
    messages = log_of(records)
    whole = new_fold()
    whole.apply_all(messages)
    at = data.draw(st.integers(0, len(messages)), label="position")
    begun = new_fold()
    for one in messages[:at]:
        begun.apply(one)
        state_of(begun).take_occurrences()
        state_of(begun).take_changed()
    resumed = reloaded(begun, messages[at - 1]) if at else begun
    resumed.apply_all(messages[at:])
    assert rows_of(resumed) == rows_of(whole)
    again, first = state_of(resumed), state_of(whole)
    assert shown(again) == shown(first)
    assert again.withdrawn() == first.withdrawn()
    assert dict(again.pool_usage.used) == dict(first.pool_usage.used)
    now = time_of_ns(messages[-1].recorded_ns) if messages else START
    assert fresh(again, now) == fresh(first, now)


@given(RECORDS, st.lists(st.integers(1, 5), max_size=10))
def test_what_is_fresh_is_young_however_it_is_taken(records: list[Recorded], sizes: list[int]) -> None:
    """The occurrences of each batch, as a leader takes them, are those that one finds later who starts there."""
    messages, fold, announced = log_of(records), new_fold(), list[Occurrence]()
    start = 0
    for size in [*sizes, len(messages)]:
        fold.apply_all(messages[start : start + size])
        start += size
        announced += state_of(fold).take_occurrences()
    later = new_fold()
    later.apply_all(messages)
    now = time_of_ns(messages[-1].recorded_ns) if messages else START
    assert [one for one in announced if is_fresh(one, now, EVENT_AGE_MAX_S)] == fresh(state_of(later), now)


def test_there_are_no_more_young_occurrences_than_the_bound() -> None:
    fold = new_fold()
    fold.apply_all(log_of([Recorded(("w1-0", found("w1-0")[0][1]), 0, 0)]))
    (one,) = state_of(fold).take_occurrences()
    young = YoungOccurrences()
    for number in range(YOUNG_MAX + 3):
        young.add(one._replace(about=str(number)))
    assert len(young.young) == YOUNG_MAX
    assert [found.about for found in young.take()][:1] == ["3"]
    assert one.key == DEVICE
