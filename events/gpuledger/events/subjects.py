"""The grammar of subjects and sources, in one place.

A subject has six tokens: `ledger.<origin>.<origin id>.<aggregate>.<id>.<event>`. Origin `node` plus a node's name
is what that node's agent may write, so that the server's permissions confine it; origin `svc` plus a name belongs to a
service of gpuledger. Ids are percent-escaped, reversibly, because names contain dots.

NATS keeps some 300 bytes of memory for every subject that ever was. The names of some aggregates come and go without
end, so their subjects have two forms: the first one names the aggregate, and in the shared one `~` stands for all of
them. Both have six tokens, an event's envelope holds the name either way, and readers take both forms for ever.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from gpuledger.events.errors import SubjectError

ROOT = "ledger"
ALL = f"{ROOT}.>"
SUBJECT_TOKENS: Final = 6
TOKEN_BYTES_MAX = 1024
SOURCE_LENGTH_MAX = 253
"""Events about a source have it for their subject."""

NAMES_KEPT_MAX = 16_384
"""How many names, tokens and sources are kept in memory at a time; a hostile source invents any number of them."""

_PLAIN = re.compile(rf"[A-Za-z0-9_-]{{1,{TOKEN_BYTES_MAX}}}").fullmatch
"""Most names need no escaping. A fleet has more of them than are kept, so finding that out each time is quicker."""

_QUOTED = re.compile(rf"[A-Za-z0-9_%-]{{1,{TOKEN_BYTES_MAX}}}").fullmatch
"""Most others need it for dots and slashes alone."""

NODE = "node"
SERVICE = "svc"

SHARED: Final = "~"
"""The id token that all names of an aggregate share; `escape` gives it for none of them."""

SHARED_SINCE: Final[Mapping[str, int]] = {
    **dict.fromkeys(("allocation", "claim", "namespace", "pod", "slice", "taint-rule", "workload"), 1),
    "gang": 2,
}
"""The aggregates whose names come and go without end, and the version of `Rule.SHARED_SUBJECTS` that lets them share.

Whatever is enforced, an aggregate is never taken out, and one that is added gets the next version of the rule.
"""

EDGE_SERVICES = frozenset({"import", "gateways"})
"""Services that pass on other people's data: a bad event from them is no bug of gpuledger."""

_SOURCE_SHAPES = (
    "`/nodes/<node>/agent`, `/services/<name>`, `/watchers/<name>`, `/gateways/<name>`, `/operators/<name>` "
    "or `/import/<name>`"
)


class Origin(NamedTuple):
    """Who may write: the kind (`node` or `svc`) and the name."""

    kind: str
    name: str

    @property
    def is_edge(self) -> bool:
        """Whether a bad event from here is somebody else's mistake, and stops nobody."""
        return self.kind == NODE or self.name in EDGE_SERVICES


class Subject(NamedTuple):
    """A parsed subject; `str()` gives the wire form back. `id` is None where names share the subject."""

    origin: Origin
    aggregate: str
    id: str | None
    event: str

    def __str__(self) -> str:
        return ".".join(
            (
                ROOT,
                self.origin.kind,
                escape(self.origin.name),
                self.aggregate,
                SHARED if self.id is None else escape(self.id),
                self.event,
            )
        )


def escape(name: str) -> str:
    """One subject token for a name; `unescape` inverts it.

    Raises:
        SubjectError: the name is empty or too long for a token.
    """
    return name if _PLAIN(name) else _escaped(name)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _escaped(name: str) -> str:
    token = name.replace("%", "%25").replace("/", "%2F").replace(".", "%2E")
    if _QUOTED(token):
        return token
    if not name:
        raise SubjectError("An id in a subject must not be empty; give the aggregate a name.")
    try:
        token = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise SubjectError(f"The id {name!r} holds a lone surrogate; ids are Unicode text.") from error
    if len(token) > TOKEN_BYTES_MAX:
        raise SubjectError(f"The id {name[:40]!r}… takes {len(token)} bytes; {TOKEN_BYTES_MAX} is the limit.")
    return token


def unescape(token: str) -> str:
    """The name for an escaped token.

    Raises:
        SubjectError: `escape` does not produce this token.
    """
    return token if _PLAIN(token) else _unescaped(token)


@lru_cache(maxsize=NAMES_KEPT_MAX)
def _unescaped(token: str) -> str:
    try:
        name = unquote(token, errors="strict")
    except UnicodeDecodeError as error:
        raise SubjectError(f"The subject token {token!r} is not escaped UTF-8.") from error
    if escape(name) != token:
        raise SubjectError(f"The subject token {token!r} is not in its canonical form {escape(name)!r}.")
    return name


def parse_subject(subject: str) -> Subject:
    """The parts of a subject.

    Raises:
        SubjectError: it does not have the six tokens of the grammar.
    """
    tokens = subject.split(".")
    if len(tokens) != SUBJECT_TOKENS or tokens[0] != ROOT or tokens[1] not in (NODE, SERVICE):
        raise SubjectError(f"The subject {subject!r} is not `ledger.<node|svc>.<origin id>.<aggregate>.<id>.<event>`.")
    _, kind, name, aggregate, token, event = tokens
    is_shared = token == SHARED and aggregate in SHARED_SINCE
    return Subject(Origin(kind, unescape(name)), aggregate, None if is_shared else unescape(token), event)


def origin_of(source: str) -> Origin:
    """The origin under which events of this source must be recorded.

    Raises:
        SubjectError: the source has none of the known shapes.
    """
    return _kept_origin(source) if len(source) <= SOURCE_LENGTH_MAX else _origin(source)


def _origin(source: str) -> Origin:
    match source.split("/"):
        case ["", "nodes", node, "agent"] if node:
            return Origin(NODE, node)
        case ["", "services", name] if name:
            return Origin(SERVICE, name)
        case ["", "watchers" | "gateways" | "operators" | "import" as service, name] if name:
            return Origin(SERVICE, service)
    raise SubjectError(f"The source {source!r} is none of {_SOURCE_SHAPES}.")


_kept_origin = lru_cache(maxsize=NAMES_KEPT_MAX)(_origin)


def source_under(subject: str) -> str:
    """The source that may write under a subject, as far as the subject shows; it never fails.

    An import's own name is not in its subjects, and is left out. A name that no source could have is `?`.
    """
    kind, name, *_ = [*subject.split(".")[1:3], "", ""]
    try:
        name = unescape(name)
    except SubjectError:
        name = "?"
    source = f"/nodes/{name}/agent" if kind == NODE else f"/{name}"
    return source if len(source) <= SOURCE_LENGTH_MAX else "/?"


def subject_of(source: str, aggregate: str, aggregate_id: str, event: str) -> str:
    """The subject under which `source` records `event` of an aggregate.

    Raises:
        SubjectError: the source or the id cannot be part of a subject.
    """
    origin = origin_of(source)
    return f"{ROOT}.{origin.kind}.{escape(origin.name)}.{aggregate}.{escape(aggregate_id)}.{event}"


def source_filter(source: str) -> str:
    """The wildcard that matches what a source may record.

    Raises:
        SubjectError: the source cannot be part of a subject.
    """
    origin = origin_of(source)
    return f"{ROOT}.{origin.kind}.{escape(origin.name)}.>"


def aggregate_filter(aggregate: str, aggregate_id: str | None = None) -> str:
    """The wildcard that matches an aggregate's events, whoever wrote them."""
    token = "*" if aggregate_id is None else escape(aggregate_id)
    return f"{ROOT}.*.*.{aggregate}.{token}.>"


def shared_filter(aggregate: str) -> str:
    """The wildcard that matches those of an aggregate's events that stand under shared subjects."""
    return f"{ROOT}.*.*.{aggregate}.{SHARED}.>"


def shared_subject(subject: str, version: int) -> str:
    """The form of a subject that is recorded where this version of `Rule.SHARED_SUBJECTS` is enforced (0: none is)."""
    tokens = subject.split(".")
    if len(tokens) != SUBJECT_TOKENS or not may_share(tokens[3], version):
        return subject
    tokens[4] = SHARED
    return ".".join(tokens)


def may_share(aggregate: str, version: int) -> bool:
    """Whether the names of an aggregate may share a subject by this version of `Rule.SHARED_SUBJECTS`."""
    return 0 < SHARED_SINCE.get(aggregate, version + 1) <= version
