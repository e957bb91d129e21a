"""`gpuledger log gaps`: which numbers of a source are missing in the log, were missing, or are only late so far.

The exit code is 0 whatever is found: a gap is something to look at and no failure of the command.
"""

from pathlib import Path

from gpuledger.cli.backend import open_backend
from gpuledger.cli.log.rows import Row
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.run import run
from gpuledger.db.engine import connect
from gpuledger.tools.queries.backend import bring_current, named_projections

VIEW = View(
    "gap",
    (
        Column("state"),
        Column("source"),
        Column("epoch", wide=True),
        Column("first", right=True),
        Column("last", right=True),
        Column("missing", right=True),
        Column("since"),
        Column("closed", key="closed_at"),
    ),
)

_QUERY = """
    SELECT CASE WHEN gap.closed_at IS NOT NULL THEN 'closed' WHEN gap.source IS NULL THEN 'waiting' ELSE 'open' END,
        source, epoch, first, coalesce(gap.last, missing.last),
        CASE WHEN gap.closed_at IS NULL THEN coalesce(missing.left, 0) ELSE 0 END,
        coalesce(gap.detected_at, missing.noticed_at), gap.closed_at
    FROM gpuledger_live.gap AS gap
    FULL JOIN gpuledger_live.missing AS missing USING (source, epoch, first)
    ORDER BY 7, source, epoch, first
"""
_KEYS = ("state", "source", "epoch", "first", "last", "missing", "since", "closed_at")


def gaps(data_dir: DataDir = None, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show what sources numbered and the log does not hold.

    A gap is `waiting` for the first seconds, `open` once its numbers count as lost, and `closed` when they came.
    """
    render(run(_gaps(data_dir)), VIEW, output, headers=not no_headers)


async def _gaps(data_dir: Path | None) -> list[Row]:
    async with open_backend(data_dir, "log gaps") as backend:
        await bring_current(backend, named_projections(["sources"]))
        async with connect(backend.database_url, application_name="gpuledger log gaps") as connection:
            cursor = await connection.execute(_QUERY.encode())
            return [dict(zip(_KEYS, row, strict=True)) for row in await cursor.fetchall()]
