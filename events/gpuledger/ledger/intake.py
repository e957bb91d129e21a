"""By which subjects a stream takes the events that it stores.

A stream stores every event under its own subject, which begins with `ledger.`. What it takes from begins otherwise in a
ledger of several partitions, and while one command alone fills a generation, so that everybody else finds no ledger.
"""

from typing import Final, NamedTuple

from nats.js.api import StreamConfig, SubjectTransform

from gpuledger.events.subjects import ALL, ROOT
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.partitions import ORDER_ROOT, prefix_of
from gpuledger.ledger.permissions import CLOSING_ROOT, RESTORE_ROOT

SUBJECT_BYTES_MAX: Final = 4_000
"""Of the 4,096 that a NATS server takes in a line; the rest is for sizes, and for the subject of its answer."""

_PREFIX: Final = f"{ROOT}."
_FILLING: Final = (CLOSING_ROOT, RESTORE_ROOT)


class Intake(NamedTuple):
    """What stands in place of `ledger.` in the subjects by which a stream takes events."""

    prefix: str

    @property
    def subject(self) -> str:
        """The subject that the stream's configuration names."""
        return f"{self.prefix}>"

    @property
    def transform(self) -> SubjectTransform | None:
        """What makes the subjects of events of these; None where they are the same."""
        return None if self.subject == ALL else SubjectTransform(src=self.subject, dest=ALL)

    def configured(self, config: StreamConfig) -> StreamConfig:
        """The configuration of a stream that takes events by this."""
        return config.evolve(subjects=[self.subject], subject_transform=self.transform)

    def sent(self, message: Outgoing) -> Outgoing:
        """The message under the subject by which the stream takes it.

        An agent can record a subject that leaves no room for the rest of the line when it is copied. It is cut: no
        event has one so long, so every reader passes over such a message, and it must not keep those behind it from
        being restored.
        """
        subject = message.subject
        if self.prefix == _PREFIX or not subject.startswith(_PREFIX):
            return message
        taken = self.prefix + subject.removeprefix(_PREFIX)
        if self.prefix.partition(".")[0] in _FILLING:
            taken = taken.encode()[:SUBJECT_BYTES_MAX].decode(errors="ignore").rstrip(".")
        return message._replace(subject=taken)


def stream_intake(generation: int, root: str = "", partition: int | None = None) -> Intake:
    """That of a generation's stream, or of one of its several partitions; `root` while one command alone fills it."""
    if root:
        return Intake(f"{root}.{generation}." if partition is None else f"{root}.{generation}.{partition}.")
    return Intake(_PREFIX if partition is None else f"{prefix_of(partition)}{_PREFIX}")


def filled_order_subject(generation: int) -> str:
    """The subject by which the order of a generation of several partitions takes what a restore appends."""
    return f"{RESTORE_ROOT}.{generation}.{ORDER_ROOT}"
