"""The systemd of a simulated node: the states of its units in a file of the host, and a journal of what was done."""

from collections.abc import Collection
from typing import Final

import orjson

from gpuledger.api.conditions import rfc3339
from gpuledger.configagent.errors import UnitError
from gpuledger.configagent.host import UnitStatus
from gpuledger.runtime.clock import Clock
from gpuledger.tools.simulation.machineconfig.hosts import MachineFolder
from gpuledger.tools.simulation.machineconfig.units import ACTIONS, UnitState, after, booted, status_of

UNITS: Final = "var/lib/systemd/units.json"
JOURNAL: Final = "var/log/journal.log"
JOURNAL_LINES_MAX: Final = 1_000
"""The journal keeps its last lines, at least so many and at most twice as many."""


class SimulatedSystemd:
    """The units of a host. Its files are written at once, so that a restarted simulation goes on with them."""

    def __init__(self, host: MachineFolder, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def observe(self, names: Collection[str]) -> dict[str, UnitStatus]:
        """The status of each unit."""
        states = self._read()
        return {unit: status_of(unit, states.get(unit, UnitState()), self._host.unit_file(unit)) for unit in names}

    def run(self, verb: str, unit: str | None = None) -> None:
        """What `systemctl VERB UNIT` does.

        Raises:
            UnitError: systemd refuses it, or the unit fails; the journal has it too.
        """
        action, *_ = verb.split()
        if unit is None or action not in ACTIONS:
            self._log(f"{verb} {unit or ''}".rstrip())
            return
        states = self._read()
        try:
            state = after(action, unit, states.get(unit, UnitState()), self._host.unit_file(unit))
            self._write(states | {unit: state})
            if state.active == "failed" and action in ("start", "restart"):
                raise UnitError(f"Job for {unit} failed because the control process exited with error code.")
        except UnitError as error:
            self._log(str(error))
            raise
        self._log(f"{action} {unit}: {_text(state)}")

    def boot(self) -> None:
        """The units after a boot of the host."""
        before = self._read()
        states = {unit: booted(unit, state, self._host.unit_file(unit)) for unit, state in before.items()}
        self._write(states)
        self._log("boot")
        for unit, state in states.items():
            if state.enabled:
                self._log(f"start {unit}: {_text(state)}")

    def _read(self) -> dict[str, UnitState]:
        try:
            found = orjson.loads((self._host.root / UNITS).read_bytes())
        except FileNotFoundError:
            return {}
        return {unit: UnitState(**state) for unit, state in found.items()}

    def _write(self, states: dict[str, UnitState]) -> None:
        path = self._host.root / UNITS
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        document = {unit: state._asdict() for unit, state in sorted(states.items())}
        part.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        part.replace(path)

    def _log(self, text: str) -> None:
        path = self._host.root / JOURNAL
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        kept = lines[-JOURNAL_LINES_MAX:] if len(lines) >= 2 * JOURNAL_LINES_MAX else None
        line = f"{rfc3339(self._clock())} systemd[1]: {text}\n"
        if kept is None:
            with path.open("a") as file:
                file.write(line)
        else:
            path.write_text("".join(f"{one}\n" for one in kept) + line)


def _text(state: UnitState) -> str:
    enabled = "masked" if state.masked else "enabled" if state.enabled else "disabled"
    return f"{state.active}, {enabled}"
