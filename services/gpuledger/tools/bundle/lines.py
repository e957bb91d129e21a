"""The lines of a bundle: one JSON object each, in a canonical form, so that a bundle has one spelling. Pure.

`docs/operations.md` documents the format. Whatever a file holds, a line is bounded before it is decoded.
"""

from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gpuledger.tools.errors import ToolError

FORMAT: Final = "gpuledger-incident-bundle"
VERSION: Final = 1

BUNDLE_BYTES_MAX: Final = 64 * 1024 * 1024
"""How large a bundle may be, to be written and to be opened."""

LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""How long a line may be; an event's body has at most 1 MiB, and JSON escapes some of it."""

EVENTS_MAX: Final = 10_000
"""How many events a bundle may have, with those that are withheld."""

EVENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""How large the bodies of a bundle's events may be together: they are what is kept in memory."""

SEALS_MAX: Final = 10_000
"""How many seals a bundle may have."""

DIGESTS_PER_LINE_MAX: Final = 256
"""How many digests of messages that are no part of the incident stand in one line."""

COMMITMENTS_MAX: Final = 25_000
"""How many redacted values a bundle may have, all of which fit in one line."""

GENERATIONS_MAX: Final = 1_000
"""How many generations the log of a bundle may have."""

NUMBER_MAX: Final = 2**63 - 1

Hex32 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Hex64 = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Number = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
Word = Annotated[str, Field(max_length=256)]


class BundleError(ToolError):
    """A bundle cannot be opened, or is not what was exported."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Head(_Line):
    """The first line: which ledger and incident it is about, and which kinds of values are redacted.

    `generations` are those of the log, each with the place behind which it begins.
    """

    kind: Literal["bundle"] = "bundle"
    format: Literal["gpuledger-incident-bundle"] = FORMAT
    version: Annotated[int, Field(ge=1)] = VERSION
    ledger: Word
    generations: Annotated[list[tuple[Number, Number]], Field(min_length=1, max_length=GENERATIONS_MAX)]
    incident: Word
    redacted: Annotated[list[Word], Field(max_length=16)] = []


class Segment(_Line):
    """A seal over the messages from `first` to `last`, all of which follow; `link` is the chain's link before them."""

    kind: Literal["segment"] = "segment"
    first: Number
    last: Number
    link: Hex32
    digest: Hex32
    previous: Hex32 | None


class Seal(_Line):
    """A seal between two segments, which names the one before it; what it covers is not in the bundle."""

    kind: Literal["seal"] = "seal"
    first: Number
    last: Number
    digest: Hex32
    previous: Hex32 | None


class Digests(_Line):
    """Digests of the next messages of a segment, which are no part of the incident."""

    kind: Literal["digests"] = "digests"
    digests: Annotated[list[Hex32], Field(min_length=1, max_length=DIGESTS_PER_LINE_MAX)]


class Recorded(_Line):
    """An event as it was recorded: the message's subject and body."""

    kind: Literal["event"] = "event"
    at: Number
    recorded_ns: Number
    subject: str
    data: str


class Redacted(_Line):
    """An event some of whose values are replaced; `digest` is that of the message as it was recorded."""

    kind: Literal["redacted"] = "redacted"
    at: Number
    recorded_ns: Number
    digest: Hex32
    data: str


class Withheld(_Line):
    """An event of which only the digest and the type are there."""

    kind: Literal["withheld"] = "withheld"
    at: Number
    digest: Hex32
    type: Word


class Tail(_Line):
    """The events behind this line stand in no seal yet."""

    kind: Literal["unsealed"] = "unsealed"


class Commitments(_Line):
    """The commitments to redacted values, by the pseudonyms that stand for them."""

    kind: Literal["commitments"] = "commitments"
    of: Annotated[dict[Word, Hex32], Field(max_length=COMMITMENTS_MAX)]


class End(_Line):
    """The last line: how many events there are, the SHA-256 of all lines before it, and its signature."""

    kind: Literal["end"] = "end"
    events: Number
    digest: Hex32
    key: Hex32 | None = None
    signature: Hex64 | None = None


EventLine = Recorded | Redacted | Withheld
Line = Head | Segment | Seal | Digests | Recorded | Redacted | Withheld | Tail | Commitments | End

_LINES: Final[TypeAdapter[Line]] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def encoded(line: Line) -> bytes:
    """The line as it is written, with its end."""
    return _canonical(line) + b"\n"


def decoded(raw: bytes, number: int) -> Line:
    """The line that these bytes are.

    Raises:
        BundleError: they are none, or not in the one form in which it is written.
    """
    try:
        line = _LINES.validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = ": ".join(filter(None, [".".join(map(str, first["loc"][1:])), first["msg"]]))
        raise BundleError(f"Line {number} of the bundle is not valid: {problem}", DAMAGED) from error
    if _canonical(line) + b"\n" != raw:
        raise BundleError(f"Line {number} of the bundle is not in its canonical form", DAMAGED)
    return line


def _canonical(line: Line) -> bytes:
    return orjson.dumps(line.model_dump(exclude_none=False), option=orjson.OPT_SORT_KEYS)


DAMAGED: Final = "Get the file again from whoever exported it; somebody or something has changed it"
