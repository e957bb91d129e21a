"""The agent around its observers: what is recorded of what they find, whatever becomes of the ledger meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.exporter import SCRAPE_PERIOD_S, ExporterObserver
from gpuledger.agent.main import LOOKS_MISSED_MAX, Agent
from gpuledger.agent.monitoring import HEARTBEATS_TOLD, METRIC
from gpuledger.agent.observing import WAITING_MAX, Fact
from gpuledger.agent.recorder import RETRY_MAX_S, Recorder
from gpuledger.agent.settings import AgentSettings, read_agent_settings
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.ledger.api import Ledger, Outgoing, Receipt
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.settings import SettingsError
from support.ledgers import DEADLINE_S, everything
from support.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def scrape_nothing() -> str:
    raise MonitoringError("nothing is there")


def observer_of(scrape: Any = scrape_nothing) -> ExporterObserver:
    return ExporterObserver("w1", scrape, clock=lambda: NOON)


def fact(fresh: bool, second: int = 0) -> Fact:
    return Fact("w1", NodeMonitoringObserved(fresh=fresh), NOON + timedelta(seconds=second))


def looks(facts: Sequence[Fact]) -> list[bool]:
    return [one.data.fresh for one in facts if isinstance(one.data, NodeMonitoringObserved)]


class Shaky(MemoryLedger):
    """A ledger that is away sometimes, and sometimes records without saying so."""

    def __init__(self) -> None:
        super().__init__()
        self.away = asyncio.Event()
        self.deaf = self.refusals = 0

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        if self.away.is_set():
            raise LedgerUnavailableError("it is away")
        if self.refusals:
            self.refusals -= 1
            raise PublishError("nobody took it")
        receipts = await super().publish_many(messages)
        if self.deaf:
            self.deaf -= 1
            raise PublishError("nobody acknowledged it")
        return receipts

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Ledger]:
        if self.away.is_set():
            raise LedgerUnavailableError("it is away")
        yield self


class Waits:
    """Waits for nothing, and keeps how long it was asked to."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


async def events_of(ledger: MemoryLedger) -> list[Decoded]:
    return [decode(message.data) for message in await everything(ledger)]


async def drained(recorder: Recorder) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await recorder.drained()


async def test_facts_are_recorded_as_the_agents_in_order_without_gaps() -> None:
    ledger, recorder, observer = Shaky(), Recorder("w1", "e", sleep=Waits()), observer_of()
    recording = asyncio.create_task(recorder.run(ledger.connect))
    for second in range(3):
        recorder.add(observer, [fact(True, second)])
        await drained(recorder)
    recording.cancel()
    events = await events_of(ledger)
    assert [(event.source, event.epoch, event.number, event.subject) for event in events] == [
        ("/nodes/w1/agent", "e", number, "w1") for number in (1, 2, 3)
    ]
    assert [event.time for event in events] == [fact(True, second).time for second in range(3)]
    assert (recorder.recorded, recorder.waiting) == (3, 0)


@pytest.mark.parametrize(("deaf", "refusals"), [(2, 0), (0, 2), (1, 1)])
async def test_what_was_not_acknowledged_is_sent_again_as_it_was(deaf: int, refusals: int) -> None:
    ledger, recorder = Shaky(), Recorder("w1", "e", sleep=Waits())
    ledger.deaf, ledger.refusals = deaf, refusals
    recorder.add(observer_of(), [fact(True, 0), fact(True, 1)])
    recording = asyncio.create_task(recorder.run(ledger.connect))
    await drained(recorder)
    recording.cancel()
    assert [event.number for event in await events_of(ledger)] == [1, 2]


async def test_a_ledger_that_is_away_is_waited_for_and_only_what_matters_is_kept() -> None:
    ledger, waits = Shaky(), Waits()
    recorder, observer = Recorder("w1", "e", sleep=waits), observer_of()
    ledger.away.set()
    recording = asyncio.create_task(recorder.run(ledger.connect))
    for number in range(1_000):
        recorder.add(observer, [fact(number % 7 != 0, number)])
        assert recorder.waiting <= HEARTBEATS_TOLD + 1
        await asyncio.sleep(0)
    assert recorder.trouble == "it is away"
    assert max(waits.pauses) == RETRY_MAX_S
    ledger.away.clear()
    await drained(recorder)
    recording.cancel()
    events = await events_of(ledger)
    assert [event.number for event in events] == [1, 2, 3, 4, 5, 6], "what was left out leaves no gap"
    assert [event.time for event in events] == [fact(True, number).time for number in range(994, 1_000)]
    assert recorder.trouble is None


@given(st.lists(st.booleans(), max_size=60))
def test_what_is_kept_counts_as_everything_would(said: list[bool]) -> None:
    observer = observer_of()
    kept: Sequence[Fact] = []
    for second, fresh in enumerate(said):
        kept = observer.mattering([*kept, fact(fresh, second)])
    run = 0
    for fresh in looks(kept):
        run = run + 1 if fresh else 0
    true = 0
    for fresh in said:
        true = true + 1 if fresh else 0
    assert min(run, HEARTBEATS_TOLD) == min(true, HEARTBEATS_TOLD)
    assert (False in looks(kept)) == (False in said), "a loss is never forgotten"
    assert len(kept) <= HEARTBEATS_TOLD + 1 <= WAITING_MAX
    assert kept == sorted(kept, key=lambda one: one.time)


async def test_trouble_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter([None, None, "", "", f"{METRIC} {NOON.timestamp()}", None])

    async def scrape() -> str:
        answer = next(answers)
        if answer is None:
            raise MonitoringError("connection refused")
        return answer

    observer = observer_of(scrape)
    told = [looks(await observer.look()) for _ in range(6)]
    assert told == [[False], [False], [False], [False], [True], [False]]
    logged = capsys.readouterr().out
    assert logged.count("connection refused") == 2
    assert logged.count(f"have no {METRIC}") == 1
    assert logged.count("alive again") == 1


async def test_an_agent_ends_with_what_it_found_recorded() -> None:
    ledger, forever = Shaky(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        await forever.wait()

    agent = Agent("w1", [observer_of()], epoch="e", clock=lambda: NOON, sleep=sleep)
    running = asyncio.create_task(agent.run(ledger.connect))
    async with asyncio.timeout(DEADLINE_S), ledger.read() as reader:
        (first,) = await reader.next_batch()
    assert decode(first.data).data == NodeMonitoringObserved(fresh=False)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert agent.health().document["waiting"] == 0


async def test_an_observer_that_does_not_look_any_more_is_an_illness() -> None:
    ledger, now, forever = Shaky(), [NOON], asyncio.Event()
    ledger.away.set()

    async def sleep(_seconds: float) -> None:
        await forever.wait()

    agent = Agent("w1", [observer_of()], epoch="e", clock=lambda: now[0], sleep=sleep)
    running = asyncio.create_task(agent.run(ledger.connect))

    async def is_away() -> bool:
        return agent.health().document["ledger"] != "ok"

    await eventually(is_away)
    health = agent.health()
    assert health.ok, "a ledger that is away is no illness"
    assert (health.document["ledger"], health.document["waiting"]) == ("it is away", 1)
    now[0] += timedelta(seconds=LOOKS_MISSED_MAX * SCRAPE_PERIOD_S + 1)
    assert not agent.health().ok
    assert agent.health().document["reason"] == "Nothing has been looked at lately by: monitoring."
    ledger.away.clear()
    forever.set()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_what_is_given_wins_over_the_environment() -> None:
    environ = {"NODE_NAME": "w1", "NATS_URL": "nats://a", "GPULEDGER_METRICS_LISTEN": ":9101"}
    assert read_agent_settings(environ) == AgentSettings("w1", "nats://a", "http://127.0.0.1:9400/metrics", ":9101")
    environ["GPULEDGER_EXPORTER_URL"] = "http://exporter/metrics"
    given_ = read_agent_settings(environ, node="w2", nats_url="nats://b", listen=":0")
    assert given_ == AgentSettings("w2", "nats://b", "http://exporter/metrics", ":0")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"NATS_URL": "nats://a"}, "give --node, or set NODE_NAME"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "a/b"}, "'a/b' is no name of a node"),
        ({"NODE_NAME": "w1"}, "give --nats-url, or set NATS_URL"),
        ({"NODE_NAME": "w1", "NATS_URL": "a", "GPULEDGER_EXPORTER_URL": "127.0.0.1:9400"}, "is no URL such as"),
        ({"NODE_NAME": "w1", "NATS_URL": "a", "GPULEDGER_EXPORTER_URL": "http://[::1"}, "is no URL such as"),
        ({"NODE_NAME": "w1", "NATS_URL": "a", "GPULEDGER_EXPORTER_URL": "ftp://a/m"}, "is no URL such as"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_agent_settings(environ)
