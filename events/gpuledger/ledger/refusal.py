"""Why the server did not record a message, as its answer says."""

from typing import Final, NamedTuple

import orjson
from nats.aio.msg import Msg

_IN_PROCESS_CODES: Final = frozenset({10158, 10164})
"""This message is on its way through the cluster, or another one that it has to stand behind."""

_LEADERLESS_CODES: Final = frozenset({0, 10008})
"""No server takes the subject; the cluster is temporarily unavailable."""

_TRANSIENT_STATUS: Final = 500
_TOO_MANY_REQUESTS: Final = 429
_SERVICE_UNAVAILABLE: Final = 503


class PublishRefusal(NamedTuple):
    """Why the server did not record a message; `status` follows HTTP."""

    status: int
    code: int
    reason: str

    @property
    def is_transient(self) -> bool:
        """Whether trying again may help."""
        return self.status >= _TRANSIENT_STATUS or self.status == _TOO_MANY_REQUESTS or self.is_in_process

    @property
    def is_in_process(self) -> bool:
        """Whether the server has this message, or one before it, and has yet to record it."""
        return self.code in _IN_PROCESS_CODES

    @property
    def is_leaderless(self) -> bool:
        """Whether it says that no message of anybody can be recorded for now, as in an election."""
        return self.status == _SERVICE_UNAVAILABLE and self.code in _LEADERLESS_CODES


def refusal_of(answer: Msg) -> PublishRefusal | None:
    """Why the server refused; None for an acknowledgement."""
    if not answer.data:
        return PublishRefusal(_SERVICE_UNAVAILABLE, 0, "no stream takes the subject")
    if b'"error"' not in answer.data:
        return None
    error = orjson.loads(answer.data)["error"]
    return PublishRefusal(
        error["code"], error.get("err_code", 0), f"the server answered {error.get('description', error)!r}"
    )
