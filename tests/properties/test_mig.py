"""A MIG plan makes as many instances as possible, by steps that the card allows, and touches nothing in use."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpuledger.domain.mig.geometry import Instance, Place, Profile
from gpuledger.domain.mig.models import A30, A100_80GB, GEOMETRIES
from gpuledger.domain.mig.plan import (
    WHOLE,
    Create,
    Destroy,
    Disable,
    Done,
    Enable,
    MigState,
    Plan,
    Refusal,
    Step,
    plan,
    rollback,
)


class Model:
    """A card that does what it is told, and complains where no real one would do it."""

    def __init__(self, state: MigState) -> None:
        self.state = state
        self.made = 0

    def do(self, step: Step) -> Done:
        made = None
        match step:
            case Enable() | Disable():
                assert not self.state.busy
                assert not self.state.instances
                self.state = self.state._replace(enabled=isinstance(step, Enable))
            case Destroy(uuid, profile, start):
                assert uuid not in self.state.busy
                assert (profile, start) in {(each.profile, each.start) for each in self.state.instances}
                self._stand(each for each in self.state.instances if each.uuid != uuid)
            case Create(name, start):
                assert self.state.enabled
                self.made += 1
                made = Instance(f"made-{self.made}", name, start, _profile(self.state.profiles, name).size)
                self._stand([*self.state.instances, made])
        return Done(step, made)

    def _stand(self, instances: Iterable[Instance]) -> None:
        self.state = self.state._replace(instances=tuple(instances))
        assert _legal(self.state.profiles, self.state.instances)


def _legal(profiles: Sequence[Profile], instances: Sequence[Instance]) -> bool:
    """The rules once more, in other words than the code under test has for them."""
    by_name = {profile.name: profile for profile in profiles}
    slices = Counter(chain.from_iterable(range(each.start, each.start + each.size) for each in instances))
    numbers = Counter(each.profile for each in instances)
    return (
        all(number == 1 for number in slices.values())
        and sum(by_name[each.profile].compute for each in instances) <= max(each.compute for each in profiles)
        and all(number <= by_name[name].instances_max for name, number in numbers.items())
        and sum("+me" in each.profile for each in instances) <= 1
        and all(each.start in by_name[each.profile].starts for each in instances)
    )


def _profile(profiles: Sequence[Profile], name: str) -> Profile:
    (found,) = [profile for profile in profiles if profile.name == name]
    return found


def _places(instances: Iterable[Instance]) -> list[Place]:
    return sorted(Place(each.start, each.profile) for each in instances)


class Best(NamedTuple):
    """The most instances that any choice of places gives, and how many may stay where they are then."""

    number: int
    kept: int


def _best(card: MigState, profile_name: str) -> Best:
    profile = _profile(card.profiles, profile_name)
    busy = [each for each in card.instances if each.uuid in card.busy]
    idle = {each.start for each in card.instances if each.uuid not in card.busy and each.profile == profile_name}
    best = Best(0, 0)
    for number in range(len(profile.starts) + 1):
        for starts in combinations(profile.starts, number):
            beside = [Instance("new", profile_name, start, profile.size) for start in starts]
            if _legal(card.profiles, [*busy, *beside]):
                best = max(best, Best(number, len(idle & set(starts))))
    return best


@st.composite
def odd_profiles(draw: st.DrawFn) -> tuple[Profile, ...]:
    """Profiles as no card has them; one is the whole card."""
    slices = draw(st.integers(1, 8))
    whole = draw(st.integers(1, 8))
    found = [Profile("whole", whole, slices, (0,), 1, 8192)]
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, slices))
        starts = draw(st.sets(st.integers(0, slices - size), min_size=1))
        compute, instances_max = draw(st.integers(1, min(whole, 3))), draw(st.integers(1, 4))
        suffix = draw(st.sampled_from(["", "", "+me"]))
        found.append(Profile(f"{number}{suffix}", compute, size, tuple(sorted(starts)), instances_max, 1024))
    return tuple(found)


@st.composite
def cards(draw: st.DrawFn) -> MigState:
    """A card that is divided somehow, some of it in use; or one that is not divided and perhaps in use."""
    profiles = draw(st.sampled_from([geometry.profiles for geometry in GEOMETRIES]) | odd_profiles())
    if not draw(st.integers(0, 4)):
        return MigState(enabled=False, profiles=profiles, busy=draw(st.sampled_from([frozenset(), frozenset({WHOLE})])))
    standing: list[Instance] = []
    everywhere = [(profile, start) for profile in profiles for start in profile.starts]
    for profile, start in draw(st.lists(st.sampled_from(everywhere), max_size=12)):
        more = [*standing, Instance(f"{profile.name}@{start}", profile.name, start, profile.size)]
        standing = more if _legal(profiles, more) else standing
    busy = draw(st.sets(st.sampled_from([each.uuid for each in standing]))) if standing else set()
    return MigState(enabled=True, profiles=profiles, instances=tuple(standing), busy=frozenset(busy))


FEW = (Profile("whole", 8, 4, (0,), 1, 4096), Profile("few", 1, 1, (0, 1, 2, 3), 2, 1024))
"""A profile with fewer instances than places."""


@st.composite
def wishes(draw: st.DrawFn) -> tuple[MigState, str | None]:
    card = draw(cards())
    return card, draw(st.none() | st.sampled_from([profile.name for profile in card.profiles]))


def _card(profiles: Sequence[Profile], *standing: tuple[str, int], busy: Iterable[int] = ()) -> MigState:
    instances = tuple(Instance(f"{name}@{at}", name, at, _profile(profiles, name).size) for name, at in standing)
    uses = frozenset(instances[number].uuid for number in busy)
    return MigState(enabled=True, profiles=tuple(profiles), instances=instances, busy=uses)


@given(wishes())
@example((_card(A100_80GB.profiles, ("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb+me", 5), busy=[1]), "2g.20gb"))
@example((_card(A30.profiles, ("1g.6gb+me", 0), ("2g.12gb", 2), busy=[0]), "2g.12gb+me"))
def test_a_plan_reaches_its_target_by_steps_that_the_card_allows(wish: tuple[MigState, str | None]) -> None:
    card, profile_name = wish
    found = plan(card, profile_name)
    assume(isinstance(found, Plan))
    assert isinstance(found, Plan)
    model = Model(card)
    for step in found.steps:
        model.do(step)
    after = model.state
    assert _places(after.instances) == list(found.target)
    assert after.enabled is (profile_name is not None)
    assert {each for each in card.instances if each.uuid in card.busy} <= set(after.instances)
    assert plan(after, profile_name) == Plan((), found.target)


@given(wishes())
@example((_card(FEW), "few"))
@example((_card(FEW, ("few", 2), busy=[0]), "few"))
@example((_card(A100_80GB.profiles, ("2g.20gb", 2), ("1g.10gb", 6), busy=[1]), "2g.20gb"))
@example((_card(A100_80GB.profiles, ("1g.20gb", 0), ("1g.20gb", 6)), "2g.20gb"))
def test_no_choice_of_places_gives_more_and_none_that_gives_as_many_keeps_more(
    wish: tuple[MigState, str | None],
) -> None:
    card, profile_name = wish
    assume(profile_name is not None and not (card.busy and not card.enabled))
    assert profile_name is not None
    found, best = plan(card, profile_name), _best(card, profile_name)
    busy = {each for each in card.instances if each.uuid in card.busy}
    already = sum(each.profile == profile_name for each in busy)
    if isinstance(found, Refusal):
        assert best.number + already == 0
        return
    assert len(found.target) == best.number + len(busy)
    gone = {step.uuid for step in found.steps if isinstance(step, Destroy)}
    kept = {each for each in card.instances if each.uuid not in gone} - busy
    assert {each.profile for each in kept} <= {profile_name}
    assert len(kept) == best.kept


@given(wishes())
def test_what_is_refused_is_in_the_way_of_something_in_use(wish: tuple[MigState, str | None]) -> None:
    card, profile_name = wish
    found = plan(card, profile_name)
    if isinstance(found, Refusal):
        assert found.reason == "DeviceInUse"
        assert card.busy
        assert isinstance(plan(card._replace(busy=frozenset()), profile_name), Plan)


@given(wishes(), st.data())
def test_a_plan_that_fails_in_the_middle_is_taken_back(wish: tuple[MigState, str | None], data: st.DataObject) -> None:
    card, profile_name = wish
    found = plan(card, profile_name)
    assume(isinstance(found, Plan))
    assert isinstance(found, Plan)
    model = Model(card)
    done = [model.do(step) for step in found.steps[: data.draw(st.integers(0, len(found.steps)))]]
    for step in rollback(done, card):
        model.do(step)
    assert _places(model.state.instances) == _places(card.instances)
    assert model.state.enabled == card.enabled
    assert {each for each in card.instances if each.uuid in card.busy} <= set(model.state.instances)
