"""The events about one name on real servers: what the index finds is what a scan of the log finds."""

import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.cli.log.tail import filter_of, last_about
from gpuledger.domain.event_index import IndexedName
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import parse
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.position import ORIGIN, Offset, number_of, order
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.subjects import SHARED, aggregate_filter, parse_subject, shared_subject
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.errors import LogRestoredError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import EventIndexProjection
from gpuledger.tools.queries import named_events
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.named_events import messages_about, messages_about_each, shared_messages_about
from gpuledger.tools.queries.pools import assignments_of, requesting_pods
from support.events import event, hour, outgoing
from support.ledgers import everything
from support.projections import QUICK, assert_true, execute, table
from support.runners import failures

NEWEST = RULE_VERSIONS[Rule.SHARED_SUBJECTS]
RULE = outgoing(event(RuleEnforced(version=NEWEST), Rule.SHARED_SUBJECTS, source="/services/sources"))
CARD = "d1"
NAMES = ["team/a", "team/b", "team/c.d~"]
REQUESTS = {"gpu.deckhouse.io/p": 1}


def pods(count: int, seed: int, *, first: int = 1, shared: bool = True) -> list[Outgoing]:
    """Changes of pods, and releases of claims of their names; from the rule on about half have the shared form."""
    choose, found = random.Random(seed), []
    for number in range(first, first + count):
        name = choose.choice(NAMES)
        data = choose.choice([PodObserved(uid="u", node=f"w{number}", requests=REQUESTS), PodGone(uid="u")])
        one = outgoing(event(data, name, number=number, at=number / 100, source="/watchers/pods"))
        found.append(in_form(one) if shared and choose.random() < 0.5 else one)
        claim = outgoing(event(ClaimReleased(uid="u"), name, number=number, source="/watchers/claims"))
        found.append(in_form(claim) if shared else claim)
    return found


def in_form(one: Outgoing) -> Outgoing:
    return one._replace(subject=shared_subject(one.subject, NEWEST))


async def scanned(ledger: JetStreamLedger, aggregate: str, name: str) -> list[Message]:
    """What a reader of the whole kind finds."""
    kind = await everything(ledger, subject_filter=aggregate_filter(aggregate))
    return [in_microseconds(one) for one in kind if parse(one.data).subject == name]


async def looked_up(backend: Backend, aggregate: str, name: str, event_name: str = "") -> list[Message]:
    found = messages_about(backend, aggregate, name, event_name)
    return [in_microseconds(one) async for messages in found for one in messages]


def in_microseconds(one: Message) -> Message:
    """A message that is read alone has its time to the microsecond, as all times in rows have."""
    return one._replace(recorded_ns=one.recorded_ns // 1000 * 1000)


@pytest.fixture
async def backend(ledger: JetStreamLedger, url: str, clean_nats_url: str) -> Backend:
    """A log with both forms; the index has it but for the last events."""
    await ledger.publish_many(pods(20, 1, shared=False))
    await ledger.publish(RULE)
    await ledger.publish_many(pods(60, 2, first=21))
    await index_all(ledger, url)
    await ledger.publish_many(pods(10, 3, first=81))
    return Backend(ledger, url, clean_nats_url, None)


async def index_all(ledger: JetStreamLedger, url: str) -> None:
    await Runner(EventIndexProjection(), ledger, url, settings=QUICK).catch_up(await ledger.head())


@pytest.mark.parametrize("aggregate", ["pod", "claim"])
@pytest.mark.parametrize("name", [*NAMES, "team/nobody"])
async def test_a_look_up_finds_what_a_scan_finds(backend: Backend, aggregate: str, name: str) -> None:
    expected = await scanned(backend.ledger, aggregate, name)
    assert bool(expected) == (name in NAMES)
    assert await looked_up(backend, aggregate, name) == expected
    gone = [one for one in expected if one.subject.endswith(".gone")]
    assert await looked_up(backend, aggregate, name, "gone") == gone


@pytest.fixture
async def cards(ledger: JetStreamLedger, url: str, clean_nats_url: str) -> Backend:
    """A log of some cards; the index has it but for the last events."""
    await ledger.publish_many(list(map(outgoing, failures(range(1, 41)))))
    await index_all(ledger, url)
    await ledger.publish_many(list(map(outgoing, failures(range(41, 51)))))
    return Backend(ledger, url, clean_nats_url, None)


@pytest.mark.parametrize("event_name", ["", "failed", "inserted"])
async def test_the_events_about_a_device_are_read_where_the_index_has_them(
    cards: Backend, event_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [one for one in await scanned(cards.ledger, "device", CARD) if event_name in one.subject]
    head, history, asked = await cards.ledger.head(), cards.ledger.history, []

    def history_behind(after: Offset = ORIGIN, *options: Any, **others: Any) -> AsyncIterator[list[Message]]:
        asked.append(number_of(after))
        return history(after, *options, **others)

    monkeypatch.setattr(cards.ledger, "history", history_behind)
    assert await looked_up(cards, "device", CARD, event_name) == expected
    assert asked == [number_of(head) - 10]


@pytest.mark.parametrize("event_name", ["", "failed"])
@pytest.mark.parametrize("names", [["d1"], ["d1", "d2", "nobody"], []])
async def test_the_events_about_several_devices_are_found_by_one_look_up(
    cards: Backend, names: list[str], event_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = [one for one in await everything(cards.ledger) if event_name in one.subject.split(".")[-1]]
    asked = list[int]()
    indexed = named_events._indexed

    async def counted(*options: Any, **others: Any) -> named_events.Indexed:
        found = await indexed(*options, **others)
        asked.append(len(found.positions))
        return found

    monkeypatch.setattr(named_events, "_indexed", counted)
    found = await messages_about_each(cards, "device", names, event_name)
    assert {name: [in_microseconds(one) for one in messages] for name, messages in found.items()} == {
        name: [in_microseconds(one) for one in everyone if parse(one.data).subject == name] for name in names
    }
    assert len(asked) == (1 if names else 0)


@pytest.mark.parametrize("change", ["version = 1", "ledger_id = 'another'"])
async def test_an_index_that_lacks_devices_is_not_asked_for_one(cards: Backend, change: str) -> None:
    execute(cards.database_url, f"UPDATE gpuledger.projection SET {change}")
    execute(cards.database_url, "DELETE FROM gpuledger_live.indexed_event")
    expected = await scanned(cards.ledger, "device", CARD)
    assert expected
    assert await looked_up(cards, "device", CARD) == expected


@pytest.mark.parametrize("event_name", ["", "failed", "inserted"])
async def test_the_log_is_not_read_for_events_that_the_index_keeps(
    cards: Backend, event_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await index_all(cards.ledger, cards.database_url)
    expected = [one for one in await scanned(cards.ledger, "device", CARD) if event_name in one.subject]
    asked = list[Sequence[Offset]]()

    async def messages_at(sequences: Sequence[Offset]) -> list[Message | None]:
        asked.append(sequences)
        return []

    monkeypatch.setattr(cards.ledger, "messages_at", messages_at)
    assert await looked_up(cards, "device", CARD, event_name) == expected
    assert not asked


@pytest.mark.parametrize(
    "damage",
    [
        "event = NULL, recorded_at = NULL",  # as the build before left it
        "event = replace(event, 'io.gpuledger.device', 'io.gpuledger.slot')",
        "event = '{'",
    ],
)
async def test_events_that_the_index_does_not_have_are_read_from_the_log(cards: Backend, damage: str) -> None:
    expected = await scanned(cards.ledger, "device", CARD)
    execute(cards.database_url, f"UPDATE gpuledger_live.indexed_event SET {damage}")
    assert await looked_up(cards, "device", CARD) == expected


async def test_the_decisions_about_a_pool_are_those_of_devices_while_they_were_in_it(
    ledger: JetStreamLedger, url: str, clean_nats_url: str
) -> None:
    choose = random.Random(7)
    decisions = [
        event(
            DeviceAssignmentChanged(pool=choose.choice([None, "a", "b"]), reason="Assigned"),
            f"g{choose.randint(1, 5)}",
            number=number,
            at=number,
            source="/services/pools",
        )
        for number in range(1, 61)
    ]
    await ledger.publish_many(list(map(outgoing, decisions)))
    backend = Backend(ledger, url, clean_nats_url, None)
    scan = [one.event for one in await assignments_of(backend, "a")]
    inside = set[str]()
    expected = []
    for one in decisions:
        assert isinstance(one.data, DeviceAssignmentChanged)
        if one.data.pool == "a" or one.subject in inside:
            expected.append(one)
        (inside.add if one.data.pool == "a" else inside.discard)(one.subject)
    assert scan == expected
    await index_all(ledger, url)
    assert [one.event for one in await assignments_of(backend, "a")] == expected


async def test_an_event_that_the_index_has_and_the_log_lacks_is_an_error(cards: Backend) -> None:
    position = number_of(await cards.ledger.head()) + 1
    digest = IndexedName("device", CARD).digest
    execute(
        cards.database_url,
        f"INSERT INTO gpuledger_live.indexed_event (digest, position) VALUES ({digest}, {position})",
    )
    with pytest.raises(LogRestoredError, match=f"has no event at 1/{position}, where one was read"):
        await looked_up(cards, "device", CARD)


async def test_an_index_that_is_far_behind_is_brought_to_the_head_first(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_events, "COMPARED_MAX", 5)
    expected = await scanned(backend.ledger, "pod", NAMES[0])
    assert await looked_up(backend, "pod", NAMES[0]) == expected
    ((position,),) = execute(backend.database_url, "SELECT position FROM gpuledger.projection")
    assert position == number_of(await backend.ledger.head())


async def test_the_index_of_another_log_is_not_asked(backend: Backend) -> None:
    execute(backend.database_url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
    expected = await scanned(backend.ledger, "pod", NAMES[0])
    assert await looked_up(backend, "pod", NAMES[0]) == expected


@pytest.mark.parametrize("newest", [0, 1, 3, 20, 1_000])
@pytest.mark.parametrize("back", [0, 1, 30])
async def test_the_newest_ones_are_the_end_of_all(backend: Backend, newest: int, back: int) -> None:
    until = number_of(await backend.ledger.head()) - back
    everyone = await shared_messages_about(backend, ["pod", "claim", "device"], NAMES[0], until=until)
    assert everyone == sorted(everyone, key=lambda one: order(one.sequence))
    assert {parse_subject(one.subject).aggregate for one in everyone} == {"pod", "claim"}
    found = await shared_messages_about(backend, ["pod", "claim"], NAMES[0], until=until, newest=newest)
    assert found == (everyone[-newest:] if newest else [])


@pytest.mark.parametrize(
    "options",
    [
        ("pod", "team/a", None, None),
        ("pod", "team/a", None, "pod.gone"),
        ("pod", "team/a", None, "io.gpuledger.pod.observed.v1"),
        ("claim", "team/b", "/watchers/claims", None),
        ("claim", "team/b", "/watchers/pods", None),
        (None, "team/c.d~", None, None),
        (None, "team/c.d~", "/watchers/pods", "gone"),
        (None, "team/nobody", None, None),
        ("rule", str(Rule.SHARED_SUBJECTS), None, None),
    ],
)
@pytest.mark.parametrize("lines", [0, 2, 1_000])
async def test_tail_shows_what_is_about_a_name(
    backend: Backend, options: tuple[str | None, str, str | None, str | None], lines: int
) -> None:
    aggregate, name, source, event_type = options
    everyone = []
    for one in await everything(backend.ledger):
        parsed = parse(one.data)
        kind, word = one.subject.split(".")[3], one.subject.split(".")[5]
        if (
            parsed.subject == name
            and aggregate in (None, kind)
            and source in (None, parsed.source)
            and event_type in (None, parsed.type, word, f"{kind}.{word}")
        ):
            everyone.append(in_microseconds(one))
    found = await last_about(backend, filter_of(*options), lines)
    assert [in_microseconds(one) for one in found] == (everyone[-lines:] if lines else [])


async def test_the_index_is_proved_and_rebuilt_like_every_projection(backend: Backend) -> None:
    ledger, url = backend.ledger, backend.database_url
    await index_all(ledger, url)
    rows = table(url, "indexed_event", "digest, position")
    rule = await ledger.last_sequence(RULE.subject)
    shared = [one for one in await everything(ledger) if f".{SHARED}." in one.subject]
    assert sorted(position for _, position in rows) == [one.sequence for one in shared]
    assert min(position for _, position in rows) > number_of(rule)
    await assert_true(ledger, url, [EventIndexProjection()])
    await rebuild(EventIndexProjection(), ledger, url)
    assert table(url, "indexed_event", "digest, position") == rows
    await assert_true(ledger, url, [EventIndexProjection()])


async def test_the_past_of_a_pod_does_not_depend_on_the_form_of_its_subjects(backend: Backend) -> None:
    for name in NAMES:
        for at in (0.1, 0.3, 0.5, 0.8):
            everyone = await requesting_pods(backend, hour(at))
            assert await requesting_pods(backend, hour(at), name) == {
                pod: row for pod, row in everyone.items() if pod == name
            }


@given(seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=3))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_random_logs(backend: Backend, seeds: list[int]) -> None:
    for seed in seeds:
        first = number_of(await backend.ledger.head()) + 1_000
        again = [one._replace(id=f"{seed}-{first}-{one.id}") for one in pods(15, seed, first=first)]
        await backend.ledger.publish_many(again)
        for name in NAMES:
            found = await looked_up(backend, "pod", name)
            assert found == await scanned(backend.ledger, "pod", name)
            assert found == sorted(found, key=lambda one: order(one.sequence))


async def test_before_the_rule_nobody_asks_the_index(ledger: JetStreamLedger) -> None:
    await ledger.publish_many(pods(10, 4, shared=False))
    without = Backend(ledger, "postgresql://nobody@127.0.0.1:1/nothing", "", None)
    assert await looked_up(without, "pod", NAMES[0]) == await scanned(ledger, "pod", NAMES[0])
    assert not [one for one in await everything(ledger) if SHARED in one.subject.split(".")]
