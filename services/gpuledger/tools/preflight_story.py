"""What a pod's preflight checks are about: its attempts, its gang, and what is open on its node because of them."""

from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import MONITOR, ExitCode
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.health.rows import INCIDENT
from gpuledger.domain.preflight.results_rows import CHECK, GANG, POD, GangState, Outcome, State
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.found_rows import FoundRows, RowDict

ATTEMPTS_MAX: Final = 256
"""Attempts of a pod that are read, the latest of them; `sql` on `preflight_check` has all."""

INCIDENTS_MAX: Final = 64

_POD: Final = f"""
SELECT {", ".join(POD.columns)} FROM gpuledger_live.preflight_pod WHERE uid = (
    SELECT uid FROM gpuledger_live.preflight_check WHERE pod = %(pod)s ORDER BY first_at DESC LIMIT 1
)
"""  # noqa: S608 - names of columns
_ATTEMPTS: Final = f"""
SELECT {", ".join(CHECK.columns)} FROM (
    SELECT * FROM gpuledger_live.preflight_check WHERE uid = %(uid)s ORDER BY first_at DESC LIMIT {ATTEMPTS_MAX}
) AS latest ORDER BY number, attempt
"""  # noqa: S608 - names of columns, and a number
_GANG: Final = f"""
SELECT {", ".join(GANG.columns)} FROM gpuledger_live.preflight_gang
WHERE gang = %(gang)s AND began_at <= coalesce(%(over_at)s::timestamptz, 'infinity') ORDER BY began_at DESC LIMIT 1
"""  # noqa: S608 - names of columns
_INCIDENTS: Final = f"""
SELECT {", ".join(INCIDENT.columns)} FROM gpuledger_live.incident
WHERE node = %(node)s AND monitor = '{MONITOR}' AND ended_at IS NULL ORDER BY opened_at LIMIT {INCIDENTS_MAX}
"""  # noqa: S608 - names of columns, and a number
_PEERS: Final = """
SELECT DISTINCT pod FROM gpuledger_live.preflight_check
WHERE gang = %(gang)s AND over_at IS NULL ORDER BY pod
"""

_ADVICE: Final = {
    Outcome.FAILED: "The check blames the hardware of the node: `gpuledger why node {node}` says what came of it.",
    Outcome.CONFIG_ERROR: "A setting of the check is wrong: its message names it.",
    Outcome.GANG_TIMEOUT: "Its gang was not complete in time: start the pods that are missing, or delete this one.",
    Outcome.NOT_REPORTED: "The check could not run or report: its message and its container's logs say why.",
}


class PreflightStory(NamedTuple):
    """The latest pod of a name, its attempts in order, its gang with the pods that still go through checks."""

    pod: RowDict
    attempts: list[RowDict]
    gang: RowDict | None
    peers: list[str]
    incidents: list[RowDict]

    def document(self) -> dict[str, Any]:
        """The pod as a document."""
        return {
            **self.pod,
            "situation": self.situation(),
            "checks": self.attempts,
            "gangState": self.gang,
            "peers": self.peers,
            "incidents": self.incidents,
        }

    def situation(self) -> str:
        """What the pod waits for or failed at, and what to do next."""
        latest = {one["check_name"]: one for one in self.attempts}.values()
        failed = [one for one in latest if one["outcome"] in _ADVICE and one["exit_code"] != ExitCode.PASSED]
        if failed:
            return f"{failed[0]['check_name']}: {failed[0]['outcome']}. {self._advice(failed[0])}"
        running = next((one for one in latest if one["state"] == State.RUNNING and one["over_at"] is None), None)
        if running is not None and self.gang is not None and self.gang["state"] != GangState.COMPLETE:
            return f"{running['check_name']} runs; its gang is {self.gang['state']}. {self.gang['message']}".rstrip()
        if running is not None:
            return f"{running['check_name']} runs."
        if self.pod["over_at"] is not None:
            return "Its checks are over."
        return "It waits for its first check: `kubectl describe pod` says why it does not start."

    def _advice(self, failed: RowDict) -> str:
        """What to do next about a check that failed."""
        if failed["outcome"] == Outcome.GANG_TIMEOUT and self.gang is not None and self.gang["message"]:
            return f"Its gang was not configured. {self.gang['message']}"
        return _ADVICE[Outcome(str(failed["outcome"]))].format(node=failed["node"])


async def preflight_story(backend: Backend, pod: str) -> PreflightStory | None:
    """The latest pod of this name, as NAMESPACE/NAME; None where none with checks was seen."""
    await bring_current(backend, named_projections(["preflight", "incidents"]))

    async def ask(connection: AsyncConnection) -> PreflightStory | None:
        found = await _rows(connection, _POD, POD.columns, {"pod": pod})
        if not found:
            return None
        attempts = await _rows(connection, _ATTEMPTS, CHECK.columns, {"uid": found[0]["uid"]})
        names = {"gang": attempts[0]["gang"], "node": found[0]["node"], "over_at": found[0]["over_at"]}
        gang = next(iter(await _rows(connection, _GANG, GANG.columns, names)), None)
        is_over = gang is not None and gang["dissolved_at"] is not None
        peers = [] if is_over else await _rows(connection, _PEERS, ("pod",), names)
        incidents = await _rows(connection, _INCIDENTS, INCIDENT.columns, names)
        return PreflightStory(
            found[0],
            attempts,
            gang,
            [str(one["pod"]) for one in peers if one["pod"] != pod],
            incidents,
        )

    return await read(backend, ask, application_name="gpuledger preflight")


async def _rows(
    connection: AsyncConnection, query: str, columns: tuple[str, ...], values: dict[str, Any]
) -> list[RowDict]:
    cursor = await connection.execute(query.encode(), values)
    return list(FoundRows(columns, await cursor.fetchall()))
