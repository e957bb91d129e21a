"""The bounds of the export. Units stand last in names."""

from dataclasses import dataclass, field

from gpuledger.db.locks import LockCheck
from gpuledger.runtime.backoff import Backoff


@dataclass(frozen=True, slots=True)
class ExportBounds:
    """How much is read and sent at once, how long it may take, and how much is kept.

    An endpoint gets `request_timeout_s` for a request. Events wait in the log and nowhere else: of it, at most
    `messages_per_batch` messages are in memory, and a request has `body_bytes_max` at most, or one event. A cursor that
    only passes over events is written once per batch of messages. With `dead_letters_max` dead letters the export
    stops. `tick_s` is how often an idle leader checks its lock, `measure_s` how often the lag is measured, and
    `stopped_retry_s` how often an export that stopped tries again.
    """

    messages_per_batch: int = 128
    body_bytes_max: int = 1024 * 1024
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 15.0
    answer_bytes_max: int = 512
    write_timeout_s: float = 15.0
    dead_letters_max: int = 10_000
    tick_s: float = 1.0
    measure_s: float = 5.0
    stopped_retry_s: float = 60.0
    retries: Backoff = field(default_factory=lambda: Backoff(first_s=0.5, max_s=60.0))
    interruptions: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
    lock_check: LockCheck = field(default_factory=LockCheck)
