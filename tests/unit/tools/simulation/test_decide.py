"""The simulated fleet's plan: what happens follows from the seed, at the rates that are set, and makes sense."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from random import Random
from statistics import fmean, median

import pytest

from gpuledger.tools.simulation.allocation import FleetAllocation, RunningPod, Share, SimulatedPod, Start
from gpuledger.tools.simulation.decide import (
    DELETED,
    PENDING_MAX,
    CardFailed,
    CardInserted,
    CardRemoved,
    CardReturned,
    FleetPlan,
    Happening,
    PodArrived,
    PodDeleted,
    PodEnded,
    PodScheduled,
)
from gpuledger.tools.simulation.failures import HOT_RESETS_MAX, HOT_SHARE, XIDS, Failures, Remedy
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec, SlotId
from gpuledger.tools.simulation.hardware import GPU_RESOURCE, PROFILES, WHOLE_MILLI
from gpuledger.tools.simulation.schedule import LAG_MAX_S, Pace, SpeedError
from gpuledger.tools.simulation.workload import DAY_S, FAILED, SUCCEEDED, Arrivals, Rates, demands_of
from support.simulating import happenings, new_fleet

EVENTFUL = Rates(failures_per_1000_node_days=100_000, duration_median_s=600, removal_mean_s=1_800)
QUIET = Rates(load=1e-9, failures_per_1000_node_days=0)
START = datetime(2026, 1, 1, tzinfo=UTC)


def plan_of(spec: str, seed: int = 1, rates: Rates = EVENTFUL, start: Start | None = None) -> FleetPlan:
    """A plan without the preparation of nodes, which has tests of its own."""
    fleet = Fleet(FleetSpec.parse(spec), seed)
    return FleetPlan(fleet, Random(seed), rates, start or replace(new_fleet(fleet), prepared={}))


def days(plan: FleetPlan, number: float) -> Iterator[Happening]:
    return takewhile(lambda happening: happening.at_s < number * DAY_S, happenings(plan))


def pod(name: str, units: int = 1, duration_s: float = 100) -> SimulatedPod:
    return SimulatedPod(name, "team", GPU_RESOURCE, units, units * WHOLE_MILLI, duration_s, SUCCEEDED)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_happenings(profile: str) -> None:
    spec = f"nodes=4,profile={profile}"
    one, same, other = (list(islice(happenings(plan_of(spec, seed)), 1500)) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", [1, 2])
def test_everything_fits_together(profile: str, seed: int) -> None:
    plan = plan_of(f"nodes=4,gpus=4,profile={profile}", seed)
    world = World(plan)
    kinds = Counter(type(world.take(happening)) for happening in islice(happenings(plan), 4000))
    assert set(kinds) >= {PodArrived, PodScheduled, PodEnded, PodDeleted, CardFailed, CardRemoved, CardInserted}


class World:
    """What a witness of the happenings knows; it protests against whatever cannot be."""

    def __init__(self, plan: FleetPlan) -> None:
        self.cards = {str(slot.card.uuid): slot_id for slot_id, slot in plan.allocation.slots.items() if slot.card}
        self.broken: set[str] = set()
        self.used: Counter[str] = Counter()
        self.seen: set[str] = set(self.cards)
        self.pods: dict[str, str] = {}
        self.last_s = 0.0

    def take(self, happening: Happening) -> Happening:
        assert happening.at_s >= self.last_s
        self.last_s = happening.at_s
        match happening:
            case PodArrived(_, pod):
                assert self.pods.setdefault(pod.name, "arrived") == "arrived"
            case PodScheduled(_, running_pod):
                self._schedule(running_pod)
            case PodEnded(_, running_pod):
                assert self.pods[running_pod.pod.name] == "running"
                self.pods[running_pod.pod.name] = "ended"
                self.used.subtract({share.card: share.gpu_milli for share in running_pod.shares})
            case PodDeleted(_, pod):
                assert self.pods.pop(pod.name) == "ended"
            case CardFailed(_, slot_id, card):
                assert self.cards[str(card.uuid)] == slot_id
                assert card.uuid not in self.broken
                self.broken |= {str(card.uuid)} if happening.out_of_service else set()
            case CardReturned(_, _, card):
                self.broken.remove(str(card.uuid))
            case CardRemoved(_, slot_id, card):
                assert self.used[str(card.uuid)] == 0
                assert self.cards.pop(str(card.uuid)) == slot_id
            case CardInserted(_, slot_id, card):
                assert slot_id not in self.cards.values(), "a slot holds one card"
                assert card.uuid not in self.seen, "a card that was taken out does not come back"
                self.cards[str(card.uuid)] = slot_id
                self.seen.add(str(card.uuid))
        return happening

    def _schedule(self, running_pod: RunningPod) -> None:
        assert self.pods[running_pod.pod.name] == "arrived"
        self.pods[running_pod.pod.name] = "running"
        assert sum(share.gpu_milli for share in running_pod.shares) == running_pod.pod.gpu_milli
        for card, gpu_milli in running_pod.shares:
            assert self.cards[card].node == running_pod.node
            assert card not in self.broken
            self.used[card] += gpu_milli
            assert self.used[card] <= WHOLE_MILLI


def test_failures_have_the_published_rate() -> None:
    """6.5 in 1,000 node-days; a Poisson count of 1,300 lies within 4 standard deviations."""
    plan = plan_of("nodes=1000,gpus=1", rates=Rates(load=1e-9))
    failures = sum(isinstance(happening, CardFailed) for happening in days(plan, 200))
    assert abs(failures - 1300) < 4 * 1300**0.5


def test_failures_have_the_published_mix() -> None:
    fleet = Fleet(FleetSpec(25, 8), 1)
    hot = fleet.hot_slots()
    allocation, failures = FleetAllocation(fleet, new_fleet(fleet)), Failures(Random(1), hot)
    drawn = [failure for _ in range(20_000) if (failure := failures.next(allocation))]
    total = sum(xid.weight for xid in XIDS)
    kinds = Counter(failure.xid for failure in drawn)
    for xid in XIDS:
        expected = len(drawn) * xid.weight / total
        assert abs(kinds[xid] - expected) < 4 * expected**0.5 + 1
    of_hot_kind = [failure.slot_id in hot for failure in drawn if failure.xid.number == 95]
    assert len(hot) == 1
    assert abs(fmean(of_hot_kind) - HOT_SHARE) < 0.02


def test_a_hot_card_is_reset_until_that_helps_no_more() -> None:
    fleet = Fleet(FleetSpec(1, 1), 1)
    (slot_id,) = fleet.hot_slots()
    allocation, failures = FleetAllocation(fleet, new_fleet(fleet)), Failures(Random(1), [slot_id])
    remedies = [
        failure.remedy for _ in range(100) if (failure := failures.next(allocation)) and failure.xid.number == 95
    ]
    assert remedies[:HOT_RESETS_MAX] == [Remedy.RESET] * HOT_RESETS_MAX
    assert set(remedies[HOT_RESETS_MAX:]) == {Remedy.REPLACEMENT}


def test_where_no_card_is_in_service_none_fails() -> None:
    fleet = Fleet(FleetSpec(1, 1), 1)
    allocation = FleetAllocation(fleet, new_fleet(fleet))
    allocation.set_service(fleet.slot_ids()[0], in_service=False)
    assert Failures(Random(1), fleet.hot_slots()).next(allocation) is None


@pytest.mark.parametrize("profile", PROFILES)
def test_pods_request_the_load_that_is_set(profile: str) -> None:
    fleet, rates = Fleet(FleetSpec(8, 8, profile), 1), Rates(load=0.5)
    offered = sum(unit.gpu_milli for node in fleet.nodes.values() for slot in range(8) for unit in node.units(slot))
    arrivals = Arrivals(fleet, rates, Random(1), 1)
    pods = [arrivals.pod() for _ in range(6_000)]
    requested_per_s = fmean(pod.gpu_milli * pod.duration_s for pod in pods) * arrivals.pods_per_s
    assert requested_per_s == pytest.approx(0.5 * offered, rel=0.1)
    assert median(pod.duration_s for pod in pods) == pytest.approx(rates.duration_median_s, rel=0.1)
    assert fmean(pod.outcome == FAILED for pod in pods) == pytest.approx(rates.failed_share, abs=0.02)
    pauses = [arrivals.pause_s() for _ in range(6_000)]
    assert fmean(pauses) == pytest.approx(1 / arrivals.pods_per_s, rel=0.06)
    shares = Counter(pod.resource for pod in pods)
    assert set(shares) == {demand.resource for demand in demands_of(fleet, rates)}


def test_no_pod_requests_more_than_a_node_has() -> None:
    fleet = Fleet(FleetSpec(2, 3), 1)
    assert [demand.counts for demand in demands_of(fleet, Rates())] == [((1, 50), (2, 20))]


def test_waiting_pods_are_bounded_and_served_in_their_order() -> None:
    plan = plan_of("nodes=1,gpus=1", rates=Rates(load=100, duration_sigma=0.1, failures_per_1000_node_days=0))
    seen = list(islice(happenings(plan), 3 * PENDING_MAX))
    assert len(plan.pods()) <= PENDING_MAX + 1
    scheduled = [one.running_pod.pod.name for one in seen if isinstance(one, PodScheduled)]
    arrived = [one.pod.name for one in seen if isinstance(one, PodArrived)]
    assert scheduled == arrived[: len(scheduled)]


def test_a_fatal_failure_ends_the_pods_of_its_card_and_of_no_other() -> None:
    plan = plan_of("nodes=2,gpus=2")
    holding: dict[str, set[str]] = {}
    for happening in islice(happenings(plan), 3000):
        if isinstance(happening, PodScheduled):
            holding[happening.running_pod.pod.name] = {share.card for share in happening.running_pod.shares}
        elif isinstance(happening, PodEnded):
            holding.pop(happening.running_pod.pod.name)
        elif isinstance(happening, CardRemoved):
            assert all(happening.card.uuid not in cards for cards in holding.values())


def test_a_pod_of_a_user_waits_runs_and_stays() -> None:
    plan = plan_of("nodes=1,gpus=2", rates=QUIET)
    assert [type(one) for one in plan.submitted(pod("a", 2)._replace(of_user=True))] == [PodScheduled]
    assert plan.submitted(pod("a", 2)) == []
    assert plan.submitted(pod("b")) == []
    assert plan.submitted(pod("c")._replace(resource="nvidia.com/mig-9g.1gb")) == []
    assert plan.pods() == ["b", "a"]
    assert [type(one) for one in plan.advance(150, 100)] == [PodEnded, PodScheduled]
    assert [type(one) for one in plan.advance(2000, 100)] == [PodEnded, PodDeleted], "a user's own pod stays"


def test_a_pod_that_somebody_deletes_gives_back_what_it_held() -> None:
    plan = plan_of("nodes=1,gpus=1", rates=QUIET)
    plan.submitted(pod("a"))
    plan.submitted(pod("b"))
    plan.submitted(pod("c"))
    assert plan.vanished("c") == []
    ended, scheduled = plan.vanished("a")
    assert isinstance(ended, PodEnded)
    assert isinstance(scheduled, PodScheduled)
    assert (ended.outcome, scheduled.running_pod.pod.name) == (DELETED, "b")
    assert plan.vanished("a") == []


def test_a_card_that_is_withdrawn_keeps_its_pods_and_gets_no_more() -> None:
    plan = plan_of("nodes=1,gpus=1", rates=QUIET)
    slot_id = next(iter(plan.allocation.slots))
    plan.submitted(pod("a"))
    plan.withdraw(slot_id)
    assert plan.submitted(pod("b")) == []
    assert plan.allocation.holders(slot_id) == ["a"]
    assert [type(one) for one in plan.advance(150, 100)] == [PodEnded]
    assert plan.allocation.holders(slot_id) == []
    assert [type(one) for one in plan.offer(slot_id)] == [PodScheduled]


def test_a_cordoned_node_keeps_its_pods_and_gets_no_more() -> None:
    plan = plan_of("nodes=1,gpus=2", rates=QUIET)
    (node,) = {slot_id.node for slot_id in plan.allocation.slots}
    plan.submitted(pod("a"))
    plan.cordon(node)
    assert plan.submitted(pod("b")) == []
    assert list(plan.allocation.running) == ["a"]
    assert [type(one) for one in plan.advance(150, 100)] == [PodEnded]
    (scheduled,) = plan.uncordon(node)
    assert isinstance(scheduled, PodScheduled)
    assert scheduled.running_pod.pod.name == "b"


def test_the_next_card_in_the_slot_of_a_withdrawn_one_is_offered() -> None:
    fleet = Fleet(FleetSpec(1, 1), 1)
    allocation, (slot_id,) = FleetAllocation(fleet, new_fleet(fleet)), fleet.slot_ids()
    allocation.set_offered(slot_id, offered=False)
    assert allocation.schedule(pod("a")) is None
    allocation.remove(slot_id)
    allocation.insert(slot_id)
    assert allocation.schedule(pod("a")) is not None


def test_a_plan_takes_over_what_it_finds() -> None:
    fleet = Fleet(FleetSpec(1, 4), 1)
    slot_ids, fresh = fleet.slot_ids(), new_fleet(fleet)
    node = slot_ids[0].node
    card = fleet.card(slot_ids[0], 0)
    start = Start(
        {slot_id: card for slot_id, card in fresh.cards.items() if slot_id != slot_ids[3]},
        fresh.lives,
        failed=frozenset({slot_ids[2]}),
        running=(
            RunningPod(pod("runs"), node, (Share(str(card.uuid), WHOLE_MILLI),)),
            RunningPod(pod("lost"), node, (Share("GPU-0", WHOLE_MILLI),)),
        ),
        pending=(pod("waits"),),
        finished=(pod("over"),),
    )
    plan = FleetPlan(fleet, Random(1), QUIET, start)
    assert [running_pod.pod.name for running_pod in plan.lost] == ["lost"]
    happened = {type(one): one for one in plan.advance(1e6, 100)}
    assert {CardInserted, CardRemoved, PodScheduled, PodEnded, PodDeleted} == set(happened)
    inserted = [slot.card for slot_id, slot in plan.allocation.slots.items() if slot_id in slot_ids[2:]]
    assert inserted == [fleet.card(slot_ids[2], 1), fleet.card(slot_ids[3], 1)]


def test_units_are_held_once() -> None:
    fleet = Fleet(FleetSpec(1, 1, "mig-a100"), 1)
    allocation = FleetAllocation(fleet, new_fleet(fleet))
    small = SimulatedPod("p", "", "nvidia.com/mig-1g.10gb", 1, 142, 1, SUCCEEDED)
    running_pod = [allocation.schedule(small._replace(name=str(number))) for number in range(8)]
    assert [one is not None for one in running_pod] == [True] * 7 + [False]
    assert allocation.holders(SlotId(next(iter(fleet.nodes)), 0)) == [str(number) for number in range(7)]
    assert running_pod[0] is not None
    assert not allocation.take_over(running_pod[0]), "it is held already"
    assert allocation.release("0") == running_pod[0]
    assert allocation.release("0") is None
    assert allocation.take_over(running_pod[0])


def test_simulated_time_passes_at_its_speed() -> None:
    pace = Pace(START, 60)
    assert pace.tick(START + timedelta(seconds=1), 1e9) == 60
    assert pace.wait_s(120) == 1
    assert pace.wait_s(30) == 0
    assert pace.wait_s(60 + 1e-9) > 0


def test_a_clock_that_jumps_moves_little() -> None:
    pace = Pace(START, 2)
    assert pace.tick(START - timedelta(hours=1), 1e9) == 0
    assert pace.tick(START + timedelta(days=1), 1e9) == 2 * LAG_MAX_S


def test_a_late_simulation_does_not_run_away() -> None:
    pace = Pace(START, 1)
    ticks = [pace.tick(START + timedelta(seconds=4 * number), 0) for number in range(1, 10)]
    assert max(ticks) == LAG_MAX_S


@pytest.mark.parametrize("speed", [0, -1, 1e9, float("nan"), float("inf")])
def test_a_speed_out_of_bounds_is_refused(speed: float) -> None:
    with pytest.raises(SpeedError, match="--speed"):
        Pace(START, speed)
