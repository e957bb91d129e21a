"""An agent that is upgraded in place reads what an earlier build stored on the node's disk."""

from datetime import UTC, datetime
from typing import Any

import orjson

from gpuledger.agent.gateway import stored as reports_state
from gpuledger.agent.health import state as health_state
from gpuledger.agent.health.card import CardFault, FaultHistory
from gpuledger.agent.setup import state as setup_state
from gpuledger.agent.setup.state import HeldDevice, Outcome
from gpuledger.agent.survey_history import CardIdentity, load
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import WantedDevice
from gpuledger.healthreports.coalescing import CountedReports, RepeatWindow
from gpuledger.runtime.clock import Instant

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOW = Instant(1_000.0, NOON)
MINUTE_AGO = Instant(940.0, datetime(2026, 1, 2, 11, 59, tzinfo=UTC))

HEALTH: dict[str, Any] = {
    "version": 1,
    "cards": [
        {
            "address": "0000:17:00.0",
            "uuid": "GPU-17",
            "told": "GPU-17",
            "away": False,
            "ecc": [0, 1],
            "faults": [
                {
                    "kind": "XID 95",
                    "message": "Uncontained memory error",
                    "standing": False,
                    "last": "2026-01-02T11:59:00+00:00",
                    "quiet_s": 300.0,
                    "clear_looks": 1,
                    "was_reset": False,
                }
            ],
            "past": [{"kind": "XID 95", "times": 2, "last": "2026-01-02T11:59:00+00:00"}],
        }
    ],
}


DESIRED = WantedDevice(
    device="gpu-0", uuid="GPU-17", pool="p", resource="gpu.deckhouse.io/p", unit="Card", asked_at=NOON
)
SETUP = {
    "version": 1,
    "held": {
        "gpu-0": {
            "wish": DESIRED.model_dump(mode="json"),
            "address": "0000:17:00.0",
            "card": "GPU-17",
            "uuids": ["GPU-17"],
            "offered": True,
        }
    },
    "told": {
        "gpu-0": {
            "pool": "p",
            "asked_at": "2026-01-02T12:00:00+00:00",
            "word": "applied",
            "partitions": None,
            "reason": "",
        }
    },
}


REPORTS = {
    "version": 1,
    "windows": [
        {"key": "5d41402abc4b2a76b9719d911017c592", "last": None, "ends": 1767355210},
        {
            "key": "7d793037a0760186574b0282f2f435e7",
            "last": 1767355140000000,
            "ends": 1767355230,
            "repeats": {
                "data": {"monitor": "m", "check": "c", "healthy": False, "fatal": True},
                "count": 3,
                "first": 1767355140000000,
                "at": 1767355200000000,
            },
        },
    ],
}


def test_health_reports() -> None:
    data = NodeHealthReported(monitor="m", check="c", healthy=False, fatal=True)
    repeats = CountedReports(data, 3, MINUTE_AGO.at, NOON, 0)
    windows = reports_state.load(orjson.dumps(REPORTS), NOW)
    assert windows == {
        "5d41402abc4b2a76b9719d911017c592": RepeatWindow(None, None, 1_010.0),
        "7d793037a0760186574b0282f2f435e7": RepeatWindow(None, MINUTE_AGO.at, 1_030.0, repeats),
    }
    assert orjson.loads(reports_state.dump(windows, NOW)) == REPORTS


def test_setup() -> None:
    state = setup_state.load(orjson.dumps(SETUP))
    assert state.held == {"gpu-0": HeldDevice(DESIRED, "0000:17:00.0", "GPU-17", ("GPU-17",), offered=True)}
    assert state.outcomes == {"gpu-0": Outcome("p", NOON, "applied")}
    assert orjson.loads(setup_state.dump(state)) == SETUP


def test_health() -> None:
    (card,) = health_state.load(orjson.dumps(HEALTH), NOW).gone
    fault = CardFault("XID 95", "Uncontained memory error", False, MINUTE_AGO, 300.0, 1, False)
    assert (card.unfit_subject, card.faults, card.was_absent) == ("GPU-17", (fault,), False)
    assert card.history == (FaultHistory("XID 95", 2, MINUTE_AGO),)
    assert orjson.loads(health_state.dump(health_state.load(orjson.dumps(HEALTH), NOW))) == HEALTH


def test_health_with_recommended_actions_has_no_field_more_of_a_fault() -> None:
    (before,) = HEALTH["cards"]
    stored = {"version": 1, "cards": [{**before, "actions": ["COMPONENT_RESET"]}]}
    found = health_state.load(orjson.dumps(stored), NOW)
    assert [fault.action for card in found.gone for fault in card.faults] == ["COMPONENT_RESET"]
    assert orjson.loads(health_state.dump(found)) == stored, "an older agent takes no further field of a fault"


def test_discovery() -> None:
    stored = {
        "pci_vendor": "10de",
        "pci_device": "2330",
        "uuid": "GPU-17",
        "serial": "1650",
        "product": "NVIDIA H100",
        "memory_mib": 81_559,
        "compute": [9, 0],
        "profiles": [],
    }
    identity = CardIdentity("10de", "2330", "GPU-17", "1650", "NVIDIA H100", 81_559, (9, 0))
    assert load(orjson.dumps({"0000:17:00.0": stored})) == {"0000:17:00.0": identity}
