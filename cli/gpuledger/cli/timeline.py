"""`gpuledger timeline`: everything that happened to one device, in the order in which it happened."""

from datetime import datetime
from typing import Annotated

import typer

from gpuledger.cli.backend import Backend, backend, bring_current, named_projections
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.nouns import CONTRADICTIONS, DEVICES, noun_of
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.rows import RowDict, current_rows
from gpuledger.cli.run import run
from gpuledger.db.readonly import read_only
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.errors import EventError
from gpuledger.events.subjects import aggregate_filter

_VIEW = View(
    "event",
    (
        Column("time"),
        Column("event"),
        Column("slot"),
        Column("detail"),
        Column("source"),
        Column("position"),
        Column("recorded", "recorded_at", wide=True),
        Column("id", "event_id", wide=True),
    ),
    "event_id",
)


def timeline(
    kind: Annotated[str, typer.Argument(help="What it is: device.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Serial number or UUID, as `get devices` shows it.", show_default=False)],
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Show a device's whole life: insertions, removals, failures, and where the records contradict each other."""
    if noun_of(kind) is not DEVICES:
        raise CliError(f"There is no timeline of {noun_of(kind).view.kinds}", "Ask for a device", ExitCode.USAGE)
    rows = run(_timeline(name, data_dir))
    if not rows:
        raise CliError(f"device {name!r} was not found", "List them with `gpuledger get devices`")
    render(rows, _VIEW, output, headers=not no_headers)


async def _timeline(name: str, data_dir: DataDir) -> list[RowDict]:
    async with backend(data_dir, "timeline") as place:
        await bring_current(place, named_projections(["devices"]))
        rows = await _events(place, name) + await _contradictions(place, name)
    return sorted(rows, key=_when)


def _when(row: RowDict) -> tuple[datetime, str]:
    time = row["time"]
    assert isinstance(time, datetime)
    return time, str(row["position"] or "")


async def _events(place: Backend, name: str) -> list[RowDict]:
    """The device's events; a repeat, which the folds pass over, is not shown twice."""
    rows: dict[str, RowDict] = {}
    async for messages in place.ledger.history(subject_filter=aggregate_filter("device", name)):
        for message in messages:
            try:
                event = decode(message.data)
            except EventError:
                continue
            position = f"{place.ledger.generation}/{message.sequence}"
            rows.setdefault(event.id, _event_row(event, position, time_of_ns(message.recorded_ns)))
    return list(rows.values())


def _event_row(event: Decoded, position: str, recorded_at: datetime) -> RowDict:
    data = event.data.model_dump(mode="json", exclude_none=True)
    return {
        "time": event.time,
        "event": event.data.EVENT,
        "slot": data.pop("slot", None),
        "detail": {key: value for key, value in data.items() if value is not False},
        "source": event.source,
        "position": position,
        "recorded_at": event.recorded_at or recorded_at,
        "event_id": event.id,
    }


async def _contradictions(place: Backend, name: str) -> list[RowDict]:
    async with read_only(place.database_url, application_name="gpuledger timeline") as connection:
        found = await current_rows(connection, CONTRADICTIONS)
    return [_contradiction_row(row, name) for row in found if name in (row["subject"], row["first"], row["second"])]


def _contradiction_row(row: RowDict, name: str) -> RowDict:
    in_slot = row["kind"] == "two-devices-in-slot"
    other = row["second"] if row["first"] == name else row["first"]
    detail = {"with": other} if in_slot else {"first": row["first"], "second": row["second"]}
    return {
        "time": row["valid_from"],
        "event": row["kind"],
        "slot": row["subject"] if in_slot else None,
        "detail": {key: value for key, value in {**detail, "until": row["valid_to"]}.items() if value},
        "source": None,
        "position": None,
        "recorded_at": None,
        "event_id": None,
    }
