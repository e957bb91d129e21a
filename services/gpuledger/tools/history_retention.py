"""Shortens histories, for good, by an event that every fold follows; and tells since when each is kept."""

from datetime import datetime
from typing import NamedTuple

from gpuledger.db.engine import connect
from gpuledger.domain.histories import HISTORIES, KEPT_MIN, History, latest_beginning
from gpuledger.events.history import HistoryShortened
from gpuledger.events.position import Position
from gpuledger.projection.checkpoint import live_checkpoints
from gpuledger.projection.definition import Projection
from gpuledger.projection.enforced_store import kept_since
from gpuledger.tools.errors import RequestError, ToolBusyError
from gpuledger.tools.operators import record
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current


class KeptHistory(NamedTuple):
    """A history, its projection, and since when it is kept; None: from the first event on."""

    history: History
    projection: str
    since: datetime | None


async def kept_histories(backend: Backend) -> list[KeptHistory]:
    """Every history that can be shortened, by the rows that serve."""
    found = []
    async with connect(backend.database_url, application_name="gpuledger history") as connection:
        for history in HISTORIES.values():
            projection = projection_of(history)
            since = await kept_since(connection, projection.name, history.name)
            found.append(KeptHistory(history, projection.name, since))
    return found


def projection_of(history: History) -> Projection:
    """The projection that keeps a history."""
    (projection,) = (one for one in all_projections() if any(spec.history == history.name for spec in one.specs))
    return projection


async def check_request(backend: Backend, name: str, begins: datetime, now: datetime) -> History:
    """The history of a name, if it may be shortened so that it begins at a time.

    Raises:
        RequestError: there is none, the time is too late, or the history is as short already.
        ToolBusyError: rows of another build serve, which would not follow.
    """
    history = HISTORIES.get(name)
    if history is None:
        raise RequestError(f"There is no history {name!r} to shorten", f"Choose from {', '.join(HISTORIES)}")
    latest = latest_beginning(now)
    if begins > latest:
        hint = f"Name a time up to {latest.isoformat()}"
        what = f"A history keeps its last {KEPT_MIN.days} days, because agents may still report what happened in them"
        raise RequestError(what, hint)
    projection = projection_of(history)
    await bring_current(backend, [projection])
    async with connect(backend.database_url, application_name="gpuledger history") as connection:
        since = await kept_since(connection, projection.name, name)
        checkpoints = await live_checkpoints(connection, all_projections())
    if since is not None and begins <= since:
        hint = "It cannot become longer again; `gpuledger sql --at` asks the log itself"
        raise RequestError(f"{name} is kept since {since.isoformat()} already", hint)
    others = [
        one.name
        for one in all_projections()
        if one.name in checkpoints and checkpoints[one.name].version != one.version
    ]
    if others:
        hint = "Start this build's `gpuledger up`, and try again once its projections are ready"
        raise ToolBusyError(f"The rows of {', '.join(others)} are of another build, which would not follow", hint)
    return history


async def shorten(backend: Backend, history: History, begins: datetime) -> Position:
    """Record that a history is kept since a time; returns the position of the event."""
    return await record(backend.ledger, history.name, HistoryShortened(before=begins))
