"""The supervisor of the agent: what ends it, its health, and what it waits for at the end; the agent's settings."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.exporter import SURVEY_WAIT_S, SURVEY_WAITS_MAX, ExporterMonitor
from gpuledger.agent.hardware.factory import open_hardware
from gpuledger.agent.heartbeat import HEARTBEATS_REPORTED
from gpuledger.agent.outbox.outbox import Connect
from gpuledger.agent.part import AgentFact, Part, Recorder
from gpuledger.agent.settings import read_agent_settings
from gpuledger.agent.supervisor import Supervisor
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.settings import SettingsError
from support.exporter import exporter_text
from support.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
GIVEN = {"NODE_NAME": "w1", "NATS_URL": "nats://a"}


class Outbox:
    """Keeps what it is told; `lets_go` says whether it brings it away."""

    def __init__(self, *, lets_go: bool = True) -> None:
        self.stored: list[AgentFact] = []
        self.sent: list[AgentFact] = []
        self._lets_go = lets_go

    async def record(self, facts: Sequence[AgentFact]) -> None:
        self.stored += facts

    async def run(self, connect: Connect) -> None:
        async with connect():
            while True:
                if self._lets_go:
                    self.sent, self.stored = [*self.sent, *self.stored], []
                await asyncio.sleep(0)

    async def drained(self) -> None:
        while self.stored:  # noqa: ASYNC110 - it is over within some turns of the loop
            await asyncio.sleep(0)

    def describe(self) -> dict[str, object]:
        return {"waiting": len(self.stored)}


class Worker:
    """A part that does what it is given to do."""

    stuck_after_s = 60.0

    def __init__(self, name: str, work: Callable[[Recorder], object]) -> None:
        self.name = name
        self.alive_at: float | None = None
        self.trouble: str | None = None
        self._work = work

    async def run(self, record: Recorder) -> None:
        acknowledged = self._work(record)
        if asyncio.iscoroutine(acknowledged):
            await acknowledged
        await asyncio.Event().wait()


@asynccontextmanager
async def connect() -> AsyncIterator[MemoryLedger]:
    yield MemoryLedger()


@asynccontextmanager
async def running(*parts: Part, outbox: Outbox | None = None) -> AsyncIterator[Supervisor]:
    agent = Supervisor("w1", parts, outbox or Outbox())
    task = asyncio.create_task(agent.run(connect))
    await asyncio.sleep(0)
    try:
        yield agent
    finally:
        task.cancel()
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await task


def beat(second: int = 0) -> AgentFact:
    return AgentFact("w1", NodeMonitoringObserved(fresh=True), NOON.replace(second=second))


async def test_what_parts_report_is_stored_and_brought_away() -> None:
    outbox = Outbox()
    async with running(Worker("one", lambda record: record([beat(1)])), outbox=outbox):

        async def is_sent() -> bool:
            return outbox.sent == [beat(1)]

        await eventually(is_sent)


async def test_an_agent_ends_with_what_it_found_recorded() -> None:
    outbox, began = Outbox(), asyncio.Event()

    async def late(record: Recorder) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await record([beat(2)])

    async with running(Worker("late", late), outbox=outbox):
        await began.wait()
    assert outbox.sent == [beat(2)]


async def test_a_part_that_fails_ends_the_agent() -> None:
    def fail(_record: Recorder) -> None:
        raise RuntimeError("a mistake of ours")

    agent = Supervisor("w1", [Worker("bad", fail), Worker("good", lambda _record: None)], Outbox())
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await agent.run(connect)


async def test_a_part_that_does_nothing_any_more_is_an_illness_and_one_that_waits_for_the_ledger_is_none() -> None:
    stuck, well = Worker("stuck", lambda _record: None), Worker("well", lambda _record: None)
    async with running(stuck, well, outbox=Outbox(lets_go=False)) as agent:
        assert agent.health().ok
        now = asyncio.get_running_loop().time()
        stuck.alive_at, well.alive_at = now - stuck.stuck_after_s - 1, now
        health = agent.health()
        assert not health.ok
        assert health.document["reason"] == "No progress lately in: stuck."
        stuck.alive_at = now
        assert agent.health().ok


def exporter(service: Sequence[str | None], has_cards: Callable[[], bool | None] = lambda: True) -> ExporterMonitor:
    left = iter(service)

    async def scrape() -> str:
        answer = next(left)
        if answer is None:
            raise MonitoringError("connection refused")
        return answer

    return ExporterMonitor("w1", scrape, clock=lambda: NOON, has_cards=has_cards)


async def test_trouble_of_the_exporter_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    watch = exporter([None, None, "", "", exporter_text(NOON), exporter_text(NOON + timedelta(seconds=15)), None])
    recorded = [await watch.poll() for _ in range(7)]
    assert [one and one.fresh for one in recorded] == [False, False, False, False, None, True, False]
    logged = capsys.readouterr().out
    assert logged.count("connection refused") == 2
    assert logged.count("have no sample of DCGM") == 1
    assert logged.count("a part works again") == 1


async def test_no_exporter_is_expected_where_no_card_was_ever_found(capsys: pytest.CaptureFixture[str]) -> None:
    found = iter([False, False, None, True, False])
    watch = exporter([None] * 3, lambda: next(found))
    assert [await watch.poll() for _ in range(2)] == [None, None]
    assert (watch.trouble, capsys.readouterr().out) == (None, "")
    recorded = [await watch.poll() for _ in range(3)]
    assert [one and one.fresh for one in recorded] == [False, False, False], "and where all cards are lost it still is"


async def test_a_survey_that_never_comes_does_not_keep_it_from_scraping() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def record(facts: Sequence[AgentFact]) -> None:
        raise MonitoringError(f"it scraped, and recorded {len(facts)}")

    async def scrape() -> str:
        raise MonitoringError("connection refused")

    watch = ExporterMonitor("w1", scrape, clock=lambda: NOON, sleep=sleep, has_cards=lambda: None)
    with pytest.raises(MonitoringError, match="it scraped, and recorded 1"):
        await watch.run(record)
    assert pauses == [SURVEY_WAIT_S] * SURVEY_WAITS_MAX


async def test_polls_are_reported_anew_once_somebody_counts_them() -> None:
    looks = 2 * HEARTBEATS_REPORTED
    watch = exporter([exporter_text(NOON + timedelta(seconds=second)) for second in range(2 * looks + 1)])
    assert await watch.poll() is None, "the first scrape does not show that anybody renews the samples"
    recorded = [await watch.poll() for _ in range(looks)]
    assert [one is not None for one in recorded] == [True] * HEARTBEATS_REPORTED + [False] * HEARTBEATS_REPORTED
    watch.restart_streak()
    recorded = [await watch.poll() for _ in range(looks)]
    assert [one is not None for one in recorded] == [True] * HEARTBEATS_REPORTED + [False] * HEARTBEATS_REPORTED


def test_settings_have_defaults() -> None:
    settings = read_agent_settings(GIVEN)
    assert (settings.node, settings.nats.url, settings.hardware) == ("w1", "nats://a", "nvml")
    assert settings.exporter_url == "http://127.0.0.1:9400/metrics"
    assert settings.kubelet.directory == Path("/var/lib/kubelet")
    assert settings.kubelet.allocate == "env"
    assert settings.spool.events_max == 100_000


def test_settings_are_the_environments(tmp_path: Path) -> None:
    creds = tmp_path / "w1.creds"
    creds.write_text("a seed")
    environ = {
        **GIVEN,
        "GPULEDGER_NATS_CREDENTIALS": str(creds),
        "GPULEDGER_EXPORTER_URL": "http://exporter/metrics",
        "GPULEDGER_AGENT_STATE_DIR": "/state",
        "GPULEDGER_ALLOCATE": "both",
        "GPULEDGER_CDI_DIRS": "/a:/b",
        "GPULEDGER_SPOOL_EVENTS": "7",
        "GPULEDGER_SPOOL_MIB": "2",
    }
    settings = read_agent_settings(environ)
    assert settings.nats.identity.credentials == creds
    assert settings.exporter_url == "http://exporter/metrics"
    assert settings.state_dir == Path("/state")
    assert (settings.kubelet.allocate, settings.kubelet.cdi_dirs) == ("both", (Path("/a"), Path("/b")))
    assert (settings.spool.events_max, settings.spool.bytes_max) == (7, 2 * 1024 * 1024)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"NATS_URL": "nats://a"}, "give --node, or set NODE_NAME"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "a/b"}, "'a/b' is not the name of a node"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "w*"}, r"'w\*' is not the name of a node; give it as"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "W1"}, "'W1' is not the name of a node"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "a..b"}, "'a..b' is not the name of a node"),
        ({"NATS_URL": "nats://a", "NODE_NAME": "a" * 254}, "is not the name of a node"),
        ({"NODE_NAME": "w1"}, "give --nats-url, or set NATS_URL"),
        ({"NODE_NAME": "w1", "NATS_URL": "foo"}, "not a URL such as nats://127.0.0.1:4222"),
        ({"NODE_NAME": "w1", "NATS_URL": "nats://a,http://u:secret@b"}, "NATS_URL, is not a URL such as"),
        ({**GIVEN, "GPULEDGER_EXPORTER_URL": "127.0.0.1:9400"}, "is not a URL such as"),
        ({**GIVEN, "GPULEDGER_EXPORTER_URL": "http://[::1"}, "is not a URL such as"),
        ({**GIVEN, "GPULEDGER_EXPORTER_URL": "ftp://a/m"}, "is not a URL such as"),
        ({**GIVEN, "GPULEDGER_NATS_CREDENTIALS": "/nowhere"}, "/nowhere, which is not a file"),
        ({**GIVEN, "GPULEDGER_NATS_CERTIFICATE": __file__}, "belong together"),
        ({**GIVEN, "GPULEDGER_ALLOCATE": "mounts"}, "one of env, cdi, both"),
        ({**GIVEN, "GPULEDGER_SPOOL_EVENTS": "0"}, "a whole number above 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_agent_settings(environ)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda", "none of nvml, simulated:8xH100 and recorded:FILE"),
        ("simulated:8xT1000", "--hardware: "),
        ("recorded:/nowhere", "/nowhere cannot be read: No such file"),
        (f"recorded:{__file__}", "no recording of version"),
    ],
)
def test_hardware_that_there_is_not_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_hardware(text, "w1")
