"""Whether a stream that is there can store a ledger: its configuration beside the one that it must have."""

from nats.js.api import StreamConfig

from gpuledger.ledger.errors import StreamConfigError

_CHECKED = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_age",
    "max_msgs_per_subject",
    "deny_delete",
    "deny_purge",
    "duplicate_window",
    "num_replicas",
)


def refuse_differences(found: StreamConfig, required: StreamConfig) -> None:
    """Accept a stream that loses nothing.

    A limit of size is accepted, because with `discard: new` it refuses the newest and drops nothing.

    Raises:
        StreamConfigError: naming every difference.
    """
    differences = [
        f"{field} is {_plain(getattr(found, field))}, not {_plain(getattr(required, field))}"
        for field in _CHECKED
        if _plain(getattr(found, field)) != _plain(getattr(required, field))
    ]
    if _plain(found.persist_mode) == "async":
        differences.append("persist_mode is async, which acknowledges events before they are on disk")
    if found.allow_msg_ttl:
        differences.append("allow_msg_ttl is on, which lets publishers have their events deleted")
    if differences:
        raise StreamConfigError(
            f"The stream {required.name} cannot store a ledger: {'; '.join(differences)}. "
            f"Correct it with `nats stream edit {required.name}`, or name another NATS server."
        )


def _plain(value: object) -> object:
    return getattr(value, "value", value)
