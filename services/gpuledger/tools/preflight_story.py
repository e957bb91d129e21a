"""What a pod's preflight checks are about: its attempts, its gang, and what is open on its node because of them."""

from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import MONITOR
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.health.rows import INCIDENT
from gpuledger.domain.preflight.pod_checks import PodChecks, Stage
from gpuledger.domain.preflight.results_rows import POD
from gpuledger.tools.explain.preflight_wording import checks_words
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.found_rows import FoundRows, RowDict
from gpuledger.tools.queries.preflight import read_checks

INCIDENTS_MAX: Final = 64

_POD: Final = f"SELECT {', '.join(POD.columns)} FROM gpuledger_live.preflight_pod WHERE uid = %(uid)s"  # noqa: S608 - names of columns
_INCIDENTS: Final = f"""
SELECT {", ".join(INCIDENT.columns)} FROM gpuledger_live.incident
WHERE node = %(node)s AND monitor = '{MONITOR}' AND ended_at IS NULL ORDER BY opened_at LIMIT {INCIDENTS_MAX}
"""  # noqa: S608 - names of columns, and a number

_ADVICE: Final = {
    Stage.NOT_PLACED: "It waits for a node: `gpuledger why pod` and `kubectl describe pod` say why it has none.",
    Stage.MISCONFIGURED: "The check's message names the setting.",
    Stage.GANG_TIMED_OUT: "Start the pods that are missing, or delete this one.",
    Stage.NOT_REPORTED: "Its message and its container's logs say why.",
}
"""What to do next, where the sentence about the checks does not say it."""


class PreflightStory(NamedTuple):
    """The latest pod of a name, its checks with those of its gang, and the open incidents of checks on its node."""

    pod: RowDict
    checks: PodChecks
    incidents: list[RowDict]

    def document(self) -> dict[str, Any]:
        """The pod as a document: its attempts in order, its gang, and the pods that still go through checks there."""
        gang = self.checks.gang
        attempts = sorted(self.checks.attempts, key=lambda one: (one.number, one.attempt))
        return {
            **self.pod,
            "situation": self.situation(),
            "checks": [one._asdict() for one in attempts],
            "gangState": None if gang is None else gang._asdict(),
            "peers": sorted({one.pod for one in self.checks.peers}),
            "incidents": self.incidents,
        }

    def situation(self) -> str:
        """What the pod waits for or failed at, and what to do next."""
        words = checks_words(self.checks)
        sentence = f"{words[0].upper()}{words[1:]}." if words else ""
        return " ".join(filter(None, (sentence, _ADVICE.get(self.checks.stage))))


async def preflight_story(backend: Backend, pod: str) -> PreflightStory | None:
    """The latest pod of this name, as NAMESPACE/NAME; None where none with checks was seen."""
    await bring_current(backend, named_projections(["preflight", "incidents"]))

    async def ask(connection: AsyncConnection) -> PreflightStory | None:
        checks = await read_checks(connection, pod)
        if checks is None:
            return None
        found = await _rows(connection, _POD, POD.columns, {"uid": checks.uid})
        if not found:
            return None
        incidents = await _rows(connection, _INCIDENTS, INCIDENT.columns, {"node": found[0]["node"]})
        return PreflightStory(found[0], checks, incidents)

    return await read(backend, ask, application_name="gpuledger preflight")


async def _rows(
    connection: AsyncConnection, query: str, columns: tuple[str, ...], values: dict[str, Any]
) -> list[RowDict]:
    cursor = await connection.execute(query.encode(), values)
    return list(FoundRows(columns, await cursor.fetchall()))
