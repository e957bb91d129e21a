"""Following a kind of object through everything that streams and servers do: nothing lost, nothing twice."""

from contextlib import aclosing
from typing import Any

import pytest

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import Object, Selection
from gpuledger.edge.kube.errors import ForbiddenError, GoneError, TooManyRequestsError, UnavailableError
from gpuledger.edge.kube.reflector import ChangeBatch, Interrupted, Listed, Reflector
from support.scripted_api import OVER, Answer, ScriptedApi, answer, event, failure, listing, node, refuse, stream

BOOKMARK = event("BOOKMARK", {"metadata": {"resourceVersion": "8"}})


def name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


class Followed:
    """What a reflector yielded until the script was over, in words; and how long it waited."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.errors: list[type[Exception]] = []
        self.pauses_s: list[float] = []

    def take(self, one: Listed[str] | ChangeBatch[str] | Interrupted) -> bool:
        """Whether to go on."""
        match one:
            case Listed(objects):
                self.seen.append(f"={','.join(objects)}")
            case ChangeBatch(changes):
                self.seen += [f"{change.type[0]}:{change.object}" for change in changes]
            case Interrupted(error):
                self.errors.append(type(error))
                return OVER not in str(error)
        return True


async def follow(*answers: Answer, jitter: float = 1.0, **settings: Any) -> tuple[Followed, list[dict[str, str]]]:
    """What was seen, and the queries of all requests but the last."""
    api, followed = ScriptedApi(*answers), Followed()

    async def sleep(pause_s: float) -> None:
        followed.pauses_s.append(pause_s)

    async with api.serving(**settings) as client:
        reflector = Reflector(
            client, NODES, name_of, selection=Selection(labels="gpu"), jitter=lambda: jitter, sleep=sleep
        )
        async with aclosing(reflector.run()) as run:
            async for one in run:
                if not followed.take(one):
                    break
    followed.errors.pop()
    return followed, [dict(request.query) for request in api.requests[:-1]]


def versions(queries: list[dict[str, str]]) -> list[str]:
    """Of every request: where its watch begins, or `list`."""
    return [query.get("resourceVersion", "list") for query in queries]


async def test_a_list_then_every_change() -> None:
    changes = event("ADDED", node("b", "6")) + event("MODIFIED", node("a", "7")) + event("DELETED", node("b", "9"))
    followed, queries = await follow(listing(node("a"), version="5"), stream(changes))
    assert followed.seen == ["=a", "A:b", "M:a", "D:b"]
    assert versions(queries) == ["list", "5"]
    assert all(query["labelSelector"] == "gpu" for query in queries)


async def test_a_stream_that_ends_goes_on_where_it_ended() -> None:
    followed, queries = await follow(
        listing(version="5"), stream(event("ADDED", node("a", "6"))), stream(event("ADDED", node("b", "7"))), stream()
    )
    assert followed.seen == ["=", "A:a", "A:b"]
    assert versions(queries) == ["list", "5", "6", "7"]
    assert followed.errors == []


async def test_a_bookmark_moves_on_and_is_not_shown() -> None:
    followed, queries = await follow(listing(version="5"), stream(BOOKMARK), stream())
    assert followed.seen == ["="]
    assert versions(queries) == ["list", "5", "8"]


@pytest.mark.parametrize("end", [{"broken": True}, {"silent": True}])
async def test_a_stream_that_breaks_loses_and_repeats_nothing(end: dict[str, bool]) -> None:
    half = event("ADDED", node("b", "7"))
    followed, queries = await follow(
        listing(version="5"), stream(event("ADDED", node("a", "6")), half[:15], **end), stream(half), stream(),
        stream_idle_timeout_s=0.1,
    )  # fmt: skip
    assert followed.seen == ["=", "A:a", "A:b"]
    assert versions(queries) == ["list", "5", "6", "7"]
    assert followed.errors == [UnavailableError]


@pytest.mark.parametrize("gone", [refuse(410, "Expired"), stream(event("ERROR", failure(410, "Expired")))])
async def test_an_expired_version_lists_anew(gone: Answer) -> None:
    followed, queries = await follow(listing(node("a"), version="5"), gone, listing(node("b"), version="90"), stream())
    assert followed.seen == ["=a", "=b"]
    assert versions(queries) == ["list", "5", "list", "90"]
    assert followed.errors == [GoneError]


async def test_a_server_that_knows_less_than_we_do_is_listed_anew() -> None:
    older = refuse(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}])
    _followed, queries = await follow(listing(version="5"), older, listing(version="2"), stream())
    assert versions(queries) == ["list", "5", "list", "2"]


async def test_changes_before_an_error_in_the_same_chunk_come_once() -> None:
    first = event("ADDED", node("a", "6"))
    both = first + event("ERROR", failure(500, "InternalError"))
    followed, queries = await follow(listing(version="5"), stream(both), stream(first), stream())
    assert followed.seen == ["=", "A:a"]
    assert versions(queries) == ["list", "5", "5", "6"]


async def test_failures_wait_longer_and_longer_until_something_comes() -> None:
    down = refuse(500)
    followed, _ = await follow(down, down, down, listing(version="5"), stream(BOOKMARK), stream())
    assert followed.pauses_s == [0.2, 0.4, 0.8, 0.2, 0.4]


async def test_retry_after_is_honoured() -> None:
    busy = refuse(429, "TooManyRequests", headers={"Retry-After": "9"})
    followed, _ = await follow(busy, listing(version="5"), stream(), jitter=0.0)
    assert followed.errors == [TooManyRequestsError]
    assert followed.pauses_s[0] == 9


async def test_a_missing_right_is_an_interruption_and_retried() -> None:
    followed, queries = await follow(refuse(403, "Forbidden"), listing(version="5"), stream())
    assert followed.errors == [ForbiddenError]
    assert versions(queries) == ["list", "list", "5"]


async def test_a_right_that_was_taken_away_lists_anew() -> None:
    _followed, queries = await follow(listing(version="5"), refuse(403, "Forbidden"), listing(version="8"), stream())
    assert versions(queries) == ["list", "5", "list", "8"]


async def test_streams_do_not_all_end_together() -> None:
    _followed, queries = await follow(listing(version="5"), stream(), jitter=0.5, stream_timeout_s=100)
    assert queries[1]["timeoutSeconds"] == "150"


async def test_an_object_that_cannot_be_read_stops_the_reader() -> None:
    with pytest.raises(KeyError):
        await follow(answer({"metadata": {"resourceVersion": "5"}, "items": [{}]}))
