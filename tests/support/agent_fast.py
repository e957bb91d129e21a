"""The agent's process with its pauses cut short, for tests: `python -m support.agent_fast`.

It is the agent in everything else, and the order of its pauses is kept: units are taken back only after the kubelet was
told and asked again, and a call gives up before anybody calls the agent stuck.
"""

import os
import sys
from importlib import import_module
from typing import Any, Final

from gpuledger.agent.footprint import exclude_modules
from gpuledger.runtime.backoff import Backoff

PAUSES: Final[dict[str, dict[str, float]]] = {
    "gpuledger.agent.discovery": {"POLL_PERIOD_S": 0.3},
    "gpuledger.agent.exporter": {"SCRAPE_PERIOD_S": 0.2},
    "gpuledger.agent.gateway.part": {"POLL_PERIOD_S": 0.1},
    "gpuledger.agent.health.part": {"POLL_PERIOD_S": 0.3, "RETRY_S": 0.3},
    "gpuledger.agent.kubelet.pod_resources": {"POLL_PERIOD_S": 0.6, "SOON_S": 0.2, "LIST_TIMEOUT_S": 1.0},
    "gpuledger.agent.supervisor": {"STOP_TIMEOUT_S": 2.0},
    "gpuledger.agent.health.aggregation": {"BURST_S": 1.5},
    "gpuledger.agent.outbox.outbox": {"CHECK_PERIOD_S": 0.2},
    "gpuledger.agent.outbox.store": {"DISK_RETRY_S": 0.5},
    "gpuledger.agent.plugin.part": {"POLL_PERIOD_S": 0.1, "RESTART_AFTER_S": 0.5},
    "gpuledger.agent.plugin.resource": {"POLL_PERIOD_S": 0.1, "WITHDRAW_GRACE_S": 0.3},
    "gpuledger.agent.setup.part": {"RECONCILE_PERIOD_S": 1.0},
    "gpuledger.agent.setup.situation": {"SETTLE_S": 2.0},
}

WITH_BACKOFF: Final = (
    "gpuledger.agent.newest_list",
    "gpuledger.agent.outbox.outbox",
    "gpuledger.agent.setup.timing",
)

FAULT: Final = "GPULEDGER_TEST_FAULT"
"""An environment variable: the fault that the hardware has when the agent begins."""

QUIET: Final = "GPULEDGER_TEST_QUIET_S"
"""An environment variable: for how long a card is unfit after an error that left no trace, where not as ever."""

CALL_TIMEOUTS_S: Final = (1.0, 0.5, 2.0)
"""How long a survey, a reading and a change of simulated hardware may take."""

LOCK_WAIT_S: Final = 0.5
CONNECT_S: Final = 1.0


def shorten_pauses() -> None:
    """Cut the pauses of the agent that this process is going to be."""
    for module, pauses in PAUSES.items():
        loaded = import_module(module)
        for name, seconds in pauses.items():
            assert isinstance(getattr(loaded, name), float), f"{module} has no pause {name}"
            setattr(loaded, name, seconds)
    for module in WITH_BACKOFF:
        assert isinstance(import_module(module).RETRY, Backoff), f"{module} has no backoff"
        vars(import_module(module))["RETRY"] = Backoff(first_s=0.2, max_s=0.5)
    import_module("gpuledger.agent.hardware.calls").CallTimeouts.__init__.__defaults__ = CALL_TIMEOUTS_S
    import_module("gpuledger.agent.outbox.spool").Spool.__init__.__kwdefaults__["lock_wait_s"] = LOCK_WAIT_S
    import_module("gpuledger.ledger.edge").connect_edge.__wrapped__.__kwdefaults__["connect_timeout_s"] = CONNECT_S
    if quiet := os.environ.get(QUIET):
        rules = import_module("gpuledger.agent.health.card").Rules
        rules.__init__.__defaults__ = (rules.__init__.__defaults__[0], float(quiet), float(quiet), float(quiet))


def apply_fault(fault: str) -> None:
    """Have this process's hardware a fault from the start."""
    process: Any = import_module("gpuledger.agent.process")
    open_hardware = process.open_hardware

    def opened(*arguments: object) -> object:
        hardware = open_hardware(*arguments)
        hardware.inject(fault)
        return hardware

    process.open_hardware = opened


if __name__ == "__main__":
    exclude_modules()
    shorten_pauses()
    if fault := os.environ.get(FAULT):
        apply_fault(fault)
    sys.exit(import_module("gpuledger.agent.__main__").main())
