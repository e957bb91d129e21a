"""However facts and deciders interleave, a card never has two owners, and offers follow from the facts."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.offered import totals
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import NodeDevicesShared, PodSharingGone
from support import pools
from support.events import rows_of
from support.offering import (
    POOL,
    UNLABELLED,
    WITHDRAWN,
    OfferingLog,
    card,
    hardware,
    labelled,
    observed,
    published,
    reserved,
    uuid,
)
from support.thoroughness import examples

CARDS = 2
POOLED: tuple[tuple[str, Payload], ...] = tuple(
    (f"n1-{number}", data)
    for number in range(CARDS)
    for data in (pools.marked("whole"), pools.marked(), pools.applied(POOL), pools.released(POOL))
)
LABELS: tuple[tuple[str, Payload], ...] = (("n1", labelled()), ("n1", labelled("Prefer")), ("n1", UNLABELLED))
HARDWARE: tuple[tuple[str, Payload], ...] = (
    ("n1", observed(card(0, minor=1), card(1))),
    ("n1", observed(card(0, mig_enabled=True), card(1, uuid=None))),
    ("n1", NodeGone(uid="u1")),
    ("n1-0", pools.state("Faulted")),
    ("n1-0", pools.state("Ready")),
    ("n1-1", pools.described(hardware(1), ignored=True)),
    ("n1-1", pools.described(hardware(1))),
    ("slice-1", published(uuid(1))),
    ("slice-1", WITHDRAWN),
)
PODS: tuple[tuple[str, Payload], ...] = tuple(
    (f"team/{number}", data)
    for number in range(CARDS)
    for data in (reserved(f"u{number}", number), PodSharingGone(uid=f"u{number}"))
)
FOLD_POOLS, FOLD_SHARING = "pools", "sharing"

facts = st.sampled_from((*POOLED, *LABELS, *LABELS, *HARDWARE, *PODS))
folds = st.sampled_from((FOLD_POOLS, FOLD_SHARING))
steps = st.one_of(facts, folds)
races = st.one_of(st.sampled_from((*POOLED, *LABELS, *LABELS, *PODS)), folds, folds)
"""What label and pools say, each decider hearing of it early or late."""

Story = Sequence[Any]


def play(story: Story) -> OfferingLog:
    """The log of a story, in which each decider folds when the story says so."""
    log = OfferingLog().begin(cards=CARDS)
    log.record(POOL, pools.pool())
    log.record("n1-0", pools.marked("whole"))
    for step in story:
        if isinstance(step, str):
            while log.step(step):
                pass
        else:
            log.append(*step)
    return log


@examples(4)
@given(st.lists(st.one_of(races, races, steps), min_size=8, max_size=40))
def test_a_card_never_has_two_owners(story: Story) -> None:
    log = play(story)
    log.settle()
    for in_pool, shared in log.owners():
        assert not in_pool.keys() & shared.keys()


@given(st.lists(steps, max_size=40))
def test_a_node_without_its_label_ends_with_nothing(story: Story) -> None:
    log = play(story)
    log.settle()
    log.record("n1", labelled())
    for number in range(CARDS):
        log.record(f"team/{number}", PodSharingGone(uid=f"u{number}"))
    log.record("n1", UNLABELLED)
    assert not log.offer().enabled
    assert log.offered() == []


@given(st.lists(steps, max_size=40))
def test_totals_are_of_healthy_devices_and_minors_are_unique(story: Story) -> None:
    log = play(story)
    log.settle()
    for one in log.events:
        if isinstance(one.data, NodeDevicesShared):
            minors = [device.minor for device in one.data.devices if device.type == "gpu"]
            assert len(minors) == len(set(minors))
            assert totals(one.data.devices).get("gpu-core", 0) == 100 * sum(
                device.healthy for device in one.data.devices if device.type == "gpu"
            )


@given(st.lists(facts, max_size=30))
def test_a_fold_of_the_log_gives_the_same_rows(story: Story) -> None:
    """Decisions come back as facts, and are those that the fold made itself."""
    log = play(story)
    log.settle()
    again = OfferingLog()
    again.sharing.apply_all(log.log)
    assert rows_of(again.sharing, positions=False) == rows_of(log.sharing, positions=False)
