"""Decides which events are exported, and what an endpoint's answer means for them. Pure.

A refusal is about an event only where the answer says so. What is about the endpoint, a login or the way there never
gives an event up: it is sent again until the endpoint takes it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, NamedTuple

from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.events.errors import PublisherError
from gpuledger.events.publisher import publisher_of
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.registry import parse_type
from gpuledger.ledger.api import Message
from gpuledger.projection.route import route_of
from gpuledger.runtime.export_settings import Scalar, Selection

LISTS_NESTED_MAX: Final = 16
"""How deep lists within lists are looked into for a field's values; no event of ours has any."""

VALUES_LOOKED_AT_MAX: Final = 4096
"""How many values of a field are compared; no event holds as many in one list."""


class FailureReason(StrEnum):
    """Why a request did not deliver its events."""

    UNREACHABLE = "unreachable"
    """No connection, a connection that broke, or no TLS."""

    TIMEOUT = "timeout"
    TOKEN = "token"  # noqa: S105 - no password
    """The file of the token, or of a certificate, cannot be read."""

    UNAUTHORIZED = "unauthorized"
    """401, 403 or 407."""

    NO_ENDPOINT = "no-endpoint"
    """A redirect, 404, 405 or 410: nothing takes events at this URL."""

    OVERLOADED = "overloaded"
    """408 or 429."""

    SERVER_ERROR = "server-error"
    """5xx, or an answer that HTTP does not have."""

    REFUSED = "refused"
    """Any other 4xx: the endpoint never takes this event."""


class Answer(NamedTuple):
    """What an endpoint answered: the status, its `Retry-After` in seconds, and the beginning of its text."""

    status: int
    retry_after_s: float | None = None
    text: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the endpoint has the events."""
        return 200 <= self.status < 300


_REASONS: Final[Mapping[int, FailureReason]] = {
    HTTPStatus.UNAUTHORIZED: FailureReason.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: FailureReason.UNAUTHORIZED,
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: FailureReason.UNAUTHORIZED,
    HTTPStatus.NOT_FOUND: FailureReason.NO_ENDPOINT,
    HTTPStatus.METHOD_NOT_ALLOWED: FailureReason.NO_ENDPOINT,
    HTTPStatus.GONE: FailureReason.NO_ENDPOINT,
    HTTPStatus.REQUEST_TIMEOUT: FailureReason.OVERLOADED,
    HTTPStatus.TOO_MANY_REQUESTS: FailureReason.OVERLOADED,
}


def failure_of(answer: Answer) -> FailureReason | None:
    """Why the answer delivers nothing; None: it does."""
    if answer.is_success:
        return None
    if answer.status in _REASONS:
        return _REASONS[answer.status]
    if 400 <= answer.status < 500:
        return FailureReason.REFUSED
    return FailureReason.NO_ENDPOINT if 300 <= answer.status < 400 else FailureReason.SERVER_ERROR


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """The seconds of a `Retry-After`, which has a number or a date; None where it has neither."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):  # a date without a zone cannot be compared
        return None


def event_of(message: Message) -> Undecoded:
    """The event of a message, if it stands where its source may record it.

    Whether its number is new is not looked at: a repeat has the id of the first.

    Raises:
        EventError: no projection folds it either.
    """
    event = parse(message.data)
    publisher, route = publisher_of(event.source), route_of(event.type, registry)
    route.check(message.subject, publisher, event, RULE_VERSIONS[Rule.SHARED_SUBJECTS])
    if publisher.is_edge and route.rule is not None:
        reason = publisher.violation(route.rule, route.aggregate, event.subject, event.data)
        if reason is not None:
            raise PublisherError(f"{event.type}: {reason}")
    return event


def is_selected(event: Undecoded, selections: Sequence[Selection]) -> bool:
    """Whether any of the selections selects an event; without selections every event is."""
    if not selections:
        return True
    name = parse_type(event.type)
    types = (f"{name.aggregate}.{name.event}", f"{name.aggregate}.*")
    return any(one.type in types and _fits(event.data, one.where) for one in selections)


def _fits(data: Mapping[str, Any], where: Mapping[str, tuple[Scalar, ...]]) -> bool:
    return all(_has_any(data, path, values) for path, values in where.items())


def _has_any(data: Mapping[str, Any], path: str, values: Iterable[Scalar]) -> bool:
    found = list(islice(_values_at(data, path.split(".")), VALUES_LOOKED_AT_MAX))
    return any(_is_equal(one, value) for one in found or [None] for value in values)


def _values_at(value: object, path: Sequence[str], lists: int = 0) -> Iterator[object]:
    """The values at a path of fields; of a list, those of each of its elements."""
    if isinstance(value, list):
        for one in value if lists < LISTS_NESTED_MAX else ():
            yield from _values_at(one, path, lists + 1)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values_at(value[path[0]], path[1:], lists)


def _is_equal(found: object, value: Scalar) -> bool:
    """As JSON compares: true is not 1."""
    return isinstance(found, bool) == isinstance(value, bool) and found == value
