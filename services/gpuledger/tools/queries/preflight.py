"""The preflight checks of a pod as the ledger has them, now or at a time in the past."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.histories import PREFLIGHT_CHECKS
from gpuledger.domain.preflight.pod_checks import PodChecks
from gpuledger.domain.preflight.results_rows import CHECK, GANG, PreflightAttempt, PreflightGang
from gpuledger.domain.table import TableSpec
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.rows import check_kept

ATTEMPTS_MAX: Final = 256
"""Attempts of a pod that are read, the latest of them."""

PEER_ATTEMPTS_MAX: Final = 4096
"""Attempts of other pods of its gang that are read, by the names of pods."""

_NOW: Final = ("gpuledger_live.preflight_check", "gpuledger_live.preflight_gang")
_THEN: Final = ("report.preflight_checks_at(%(at)s)", "report.preflight_gangs_at(%(at)s)")

_ATTEMPTS: Final = """
WHERE uid = (SELECT uid FROM {checks} WHERE pod = %(pod)s ORDER BY first_at DESC LIMIT 1)
ORDER BY first_at DESC LIMIT {limit}
"""
_GANG: Final = """
WHERE gang = %(gang)s AND (dissolved_at IS NULL OR dissolved_at >= %(since)s)
AND began_at <= coalesce(%(until)s::timestamptz, 'infinity') ORDER BY began_at DESC LIMIT 1
"""
_PEERS: Final = """
WHERE gang = %(gang)s AND over_at IS NULL AND uid <> %(uid)s ORDER BY pod, uid, number LIMIT {limit}
"""


async def pod_checks(backend: Backend, pod: str, at: datetime | None = None) -> PodChecks | None:
    """The checks of the latest pod of a name, NAMESPACE/NAME, by then; None where none with checks was seen.

    Raises:
        RequestError: the time is not kept.
    """
    await bring_current(backend, named_projections(["preflight"]))

    async def ask(connection: AsyncConnection) -> PodChecks | None:
        if at is not None:
            await check_kept(connection, "preflight", PREFLIGHT_CHECKS, at)
        return await read_checks(connection, pod, at)

    return await read(backend, ask, application_name="gpuledger why")


async def read_checks(connection: AsyncConnection, pod: str, at: datetime | None = None) -> PodChecks | None:
    """As `pod_checks`, of rows that are current."""
    checks, gangs = _NOW if at is None else _THEN
    values: dict[str, Any] = {"pod": pod, "at": at}
    found = await _rows(connection, CHECK, checks, _ATTEMPTS.format(checks=checks, limit=ATTEMPTS_MAX), values)
    attempts = tuple(map(PreflightAttempt._make, found))
    if not attempts or attempts[0].gang is None:
        return PodChecks(attempts) if attempts else None
    values |= {"gang": attempts[0].gang, "uid": attempts[0].uid, "since": attempts[-1].first_at}
    of_gang = await _rows(connection, GANG, gangs, _GANG, values | {"until": _over_at(attempts)})
    gang = next(map(PreflightGang._make, of_gang), None)
    if gang is not None and gang.dissolved_at is not None:
        return PodChecks(attempts, gang)
    peers = await _rows(connection, CHECK, checks, _PEERS.format(limit=PEER_ATTEMPTS_MAX), values)
    return PodChecks(attempts, gang, tuple(map(PreflightAttempt._make, peers)))


def _over_at(attempts: tuple[PreflightAttempt, ...]) -> datetime | None:
    """When the pod's checks were over, after which a gang of the same id is another one; None while they go on."""
    ends = [one.over_at for one in attempts]
    return None if None in ends else max(filter(None, ends))


async def _rows(
    connection: AsyncConnection, spec: TableSpec[Any], source: str, which: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    query = f"SELECT {', '.join(spec.columns)} FROM {source} {which}"  # noqa: S608 - names of columns and tables
    cursor = await connection.execute(query.encode(), values)
    return list(await cursor.fetchall())
