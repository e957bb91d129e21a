"""A message of the log as a row, whatever its bytes are.

Nothing here fails: a message that is no event of ours shows as undecodable, with its bytes escaped.
"""

from collections.abc import Iterable

import orjson

from gpuledger.cli.render import Column, View
from gpuledger.cli.render.values import json_text
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import Generations, generations_of
from gpuledger.events.registry import parse_type
from gpuledger.ledger.api import Message

UNDECODABLE = "undecodable"
DATA_CHARS_MAX = 160
"""Characters of an event's data in a table."""

DEPTH_MAX = 100
"""Data that nests deeper is shown as text."""

Row = dict[str, object]


def _compact(data: object) -> str:
    text = json_text(data)
    return text if len(text) <= DATA_CHARS_MAX else f"{text[:DATA_CHARS_MAX]}…"


COLUMNS = (
    Column("position"),
    Column("time"),
    Column("recorded"),
    Column("source"),
    Column("event"),
    Column("subject"),
    Column("data", wide=True, format=_compact),
    Column("problem", wide=True),
)
VIEW = View("event", COLUMNS, name_key="position")


def row_of(message: Message, generation: int | Generations) -> Row:
    """All attributes of a message by name."""
    row: Row = {"position": str(generations_of(generation).position(message.sequence)), "time": None}
    row |= {"recorded": time_of_ns(message.recorded_ns), "source": None, "event": UNDECODABLE}
    row |= {"subject": None, "data": None, "problem": None, "nats_subject": message.subject}
    try:
        return row | _attributes(parse(message.data), message.data)
    except EventError as error:
        return row | {"subject": message.subject, "problem": str(error), "raw": _text(message.data)}


def event_name(event: Undecoded) -> str:
    """`device.inserted`, or the whole type where it is none of our form."""
    try:
        name = parse_type(event.type)
    except EventError:
        return event.type
    return f"{name.aggregate}.{name.event}"


def _attributes(event: Undecoded, raw: bytes) -> Row:
    attributes: Row = {
        "time": event.time,
        "source": event.source,
        "event": event_name(event),
        "subject": event.subject,
        "data": _shallow(event.data, raw),
        "id": event.id,
        "type": event.type,
        "epoch": event.epoch,
        "number": event.number,
        "causation_id": event.causation_id,
        "correlation_id": event.correlation_id,
        "recorded_at": event.recorded_at,
        "imported": event.imported,
    }
    return attributes


def _shallow(data: object, raw: bytes) -> object:
    """The data, or its text where it nests deeper than what shows it can follow; the whole event's where that fails."""
    level: list[object] = [data]
    for _ in range(DEPTH_MAX):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return data
    try:
        return orjson.dumps(data).decode()
    except orjson.JSONEncodeError:
        return _text(raw)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
