"""The stream as data: what a ledger's stream may not be."""

from dataclasses import replace

import pytest
from nats.js.api import PersistMode, StreamConfig

from gpuledger.ledger.errors import StreamConfigError
from gpuledger.ledger.stream import check_config, stream_config


def test_the_config_that_we_make_is_a_ledgers() -> None:
    check_config(stream_config(1), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deny_delete": False}, "deny_delete"),
        ({"deny_purge": False}, "deny_purge"),
        ({"max_age": 3600.0}, "max_age"),
        ({"persist_mode": PersistMode.ASYNC}, "before they are on disk"),
        ({"allow_msg_ttl": True}, "deleted"),
    ],
)
def test_a_stream_that_could_lose_events_is_refused(change: dict[str, object], message: str) -> None:
    wrong: StreamConfig = replace(stream_config(1), **change)  # type: ignore[arg-type]
    with pytest.raises(StreamConfigError, match=message):
        check_config(wrong, 1)
