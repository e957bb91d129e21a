"""What every payload has in common: frozen, tolerant of unknown fields, and bounded.

The bounds are those of PostgreSQL's bigint and text, where payloads end up. Decoding rejects a hostile agent's event
here, so no fold and no table ever meets it.
"""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpuledger.events.publishing import PublishRule

NAME_LENGTH_MAX = 253
TEXT_LENGTH_MAX = 4096
BIGINT_MAX = 2**63 - 1
DATA_BYTES_MAX = 900 * 1024
"""How much data an event can hold. The ledger's servers take 1 MiB a message, headers included."""

CUT = "…"
"""How a text ends that was too long."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH_MAX)]
Text = Annotated[str, StringConstraints(max_length=TEXT_LENGTH_MAX)]
Count = Annotated[int, Field(ge=0, le=BIGINT_MAX)]
Number = Annotated[int, Field(ge=1, le=BIGINT_MAX)]


def truncated(text: str) -> str:
    """A text that fits `Text`, whatever others wrote into it: what does not fit is left out, and `CUT` ends it.

    So are NUL characters, which Kubernetes takes in any message, and which make an event unreadable.
    """
    text = text.replace("\0", "")
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - len(CUT)] + CUT


class Payload(BaseModel):
    """The data of an event. Unknown fields are ignored, so that an older build reads a newer event.

    What validates and serializes a type is built when the first event of it comes: no process meets all of them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    AGGREGATE: ClassVar[str]
    EVENT: ClassVar[str]
    VERSION: ClassVar[int]
    PUBLISH_RULE: ClassVar[PublishRule]
    TYPE: ClassVar[str]

    def excess(self) -> str | None:
        """What is more than one event of an edge source may hold where `Rule.BOUNDS` is enforced; None if nothing is.

        The bounds of fields hold everywhere and always, this one where it came later.
        """
        return None
