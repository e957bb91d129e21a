"""One incident with the reports behind it, and the containers that had its card meanwhile."""

from typing import Any, Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.health.rows import INCIDENT
from gpuledger.domain.workloads.allocations import HISTORY
from gpuledger.tools.bundle.story import HOLDER_COLUMNS, REPORT_COLUMNS
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.found_rows import FoundRows, RowDict
from gpuledger.tools.queries.rows import rows_where

REPORTS_MAX: Final = 1_000
"""Reports of an incident that are read, the first of them; `sql` on `health_report` has all."""

HOLDERS_MAX: Final = 256
"""Containers that are read, the first that had the card."""

_REPORTS_OF: Final = f"""
SELECT {", ".join(REPORT_COLUMNS)} FROM gpuledger_live.health_report
WHERE scope = %(scope)s AND (entity = %(entity)s OR (entity = '' AND healthy))
    AND reported_at >= %(opened_at)s AND (%(ended_at)s::timestamptz IS NULL OR reported_at <= %(ended_at)s)
ORDER BY reported_at LIMIT {REPORTS_MAX}
"""  # noqa: S608 - names of columns, and a number
_HOLDERS_OF: Final = f"""
SELECT {", ".join(HOLDER_COLUMNS)} FROM gpuledger_live.{HISTORY.name}
WHERE device = %(device)s AND (%(ended_at)s::timestamptz IS NULL OR valid_from <= %(ended_at)s)
    AND (valid_to IS NULL OR valid_to > %(opened_at)s)
ORDER BY valid_from, namespace, pod, container, slice LIMIT {HOLDERS_MAX}
"""  # noqa: S608 - names of columns, and a number


class IncidentStory(NamedTuple):
    """An incident, its reports with the healthy one that ended it, and who had the card while it lasted."""

    incident: RowDict
    reports: list[RowDict]
    holders: list[RowDict]

    def document(self) -> dict[str, Any]:
        """The incident as a document, with lists of the others."""
        return {**self.incident, "timeline": self.reports, "holders": self.holders}


async def incident_story(backend: Backend, incident: str) -> IncidentStory | None:
    """The incident with this id; None where there is none."""
    await bring_current(backend, named_projections(["incidents", "allocations"]))

    async def ask(connection: AsyncConnection) -> IncidentStory | None:
        rows = await rows_where(connection, INCIDENT, {"incident": incident}, limit=1)
        if not rows:
            return None
        (found,) = rows
        reports = await _rows(connection, _REPORTS_OF, REPORT_COLUMNS, found)
        holders = await _rows(connection, _HOLDERS_OF, HOLDER_COLUMNS, found) if found["device"] else []
        return IncidentStory(found, reports, holders)

    return await read(backend, ask, application_name="gpuledger incident")


async def _rows(connection: AsyncConnection, query: str, columns: tuple[str, ...], of: RowDict) -> list[RowDict]:
    cursor = await connection.execute(query.encode(), dict(of))
    return list(FoundRows(columns, await cursor.fetchall()))
