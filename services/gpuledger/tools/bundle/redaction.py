"""Replaces values of events by pseudonyms, each with a salted commitment to the value. Pure.

Equal values have equal pseudonyms in a bundle, so that an answer about it is the same up to these. A value is replaced
wherever it stands, in names and in texts. An event that is changed loses its id and its source's epoch as well, in the
whole bundle: the digest of the recorded message stands in the bundle, and whoever knew everything else of the message
could try names until the digest fits. An id or an epoch of 122 random bits cannot be tried. The version of rules that
are changed is such a digest as well, so it is replaced wherever it stands.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from hmac import digest as hmac_digest
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.tools.errors import RequestError

SALT_BYTES: Final = 32
PSEUDONYM_DIGITS: Final = 16
"""How many digits of the commitment a pseudonym has; the bundle has the whole commitment."""

_LENGTH_BYTES: Final = 8
_ORIGIN = re.compile(r"/(nodes|operators)/([^/]+)")
_KEPT: Final = frozenset({"specversion", "type", "time", "datacontenttype", "dataschema", "recordedtime"})
"""Attributes of an event that hold no names."""


class Class(StrEnum):
    """What can be redacted."""

    NODES = "nodes"
    PODS = "pods"
    CARDS = "cards"
    PEOPLE = "people"
    TEXTS = "texts"


ID: Final = "id"
"""The first word of pseudonyms for the ids and epochs of events that are changed."""

DIGEST: Final = "digest"
"""What stands for the word where digests of changed contents are replaced; their pseudonyms are digests as well."""

_WORDS: Final = {Class.NODES: "node", Class.PODS: "pod", Class.CARDS: "GPU", Class.PEOPLE: "user", Class.TEXTS: "text"}
_NAMES: Final[Mapping[str, Class]] = {
    **dict.fromkeys(("node", "uid", "located_on"), Class.NODES),
    **dict.fromkeys(("namespace", "namespaces", "pod", "container", "claim", "blocked"), Class.PODS),
    **dict.fromkeys(("uuid", "serial", "card", "pci_address"), Class.CARDS),
    **dict.fromkeys(("message", "file"), Class.TEXTS),
}
"""The fields of payloads that hold such values."""

_FREE_KEYS: Final = frozenset({"metadata", "labels"})
_LISTS: Final[Mapping[str, str]] = {"devices": "device", "owners": "owner"}
"""Lists of values of fields, by the name of such a field."""

_SLICE: Final = "::"
"""What parts a card's UUID and the number of a slice in the id of an allocated device."""

Document = dict[str, Any]


class Pseudonyms:
    """The pseudonyms of values, and their commitments; the same salt gives the same ones."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._of: dict[str, str] = {}
        self.commitments: dict[str, str] = {}

    def hide(self, word: str, value: str) -> bool:
        """Have a value replaced from now on; returns whether it was not before."""
        if value in self._of or not any(map(str.isalnum, value)):
            return False
        commitment = commitment_of(word, value, self._salt)
        pseudonym = commitment if word == DIGEST else f"{word}-{commitment[:PSEUDONYM_DIGITS]}"
        self._of[value] = pseudonym
        self.commitments[pseudonym] = commitment
        return True

    def replacer(self) -> Callable[[str], str]:
        """What replaces every value in a text, the longest first, where it stands by itself."""
        if not self._of:
            return str
        names = "|".join(re.escape(one) for one in sorted(self._of, key=lambda one: (-len(one), one)))
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])")
        return lambda text: pattern.sub(lambda found: self._of[found[0]], text)


def commitment_of(word: str, value: str, salt: bytes) -> str:
    """The commitment to a value: the SHA-256 of the value's own salt and the value, each behind its length.

    The value's salt is the HMAC-SHA256 of word and value under the bundle's salt: it shows one value and no other.
    """
    return sha256(_framed(value_salt(word, value, salt)) + _framed(value.encode())).hexdigest()


def value_salt(word: str, value: str, salt: bytes) -> bytes:
    """The salt of one value."""
    return hmac_digest(salt, _framed(word.encode()) + _framed(value.encode()), "sha256")


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(_LENGTH_BYTES, "big") + part


class RedactedEvents(NamedTuple):
    """The bodies of events that are changed, by their place in the list, and the commitments to what they had."""

    changed: Mapping[int, bytes]
    commitments: Mapping[str, str]
    replace: Callable[[str], str]


def redact(
    bodies: Iterable[bytes], classes: Iterable[Class], salt: bytes, withheld: Iterable[int] = ()
) -> RedactedEvents:
    """Replace the values of these classes in the bodies of events, which are valid ones.

    Events that are withheld, by their places, lose their ids and epochs like those that are changed.

    Raises:
        RequestError: the salt has another length.
    """
    if len(salt) != SALT_BYTES:
        raise RequestError(f"The salt has {len(salt)} bytes, not {SALT_BYTES}", "Make one with `openssl rand -hex 32`")
    chosen, documents = frozenset(classes), [orjson.loads(body) for body in bodies]
    names = Pseudonyms(salt)
    for document in documents:
        for found, value in _values(document):
            if found in chosen:
                names.hide(_WORDS[found], value)
    changed: dict[int, Document] = {at: documents[at] for at in withheld}
    while True:
        replace = names.replacer()
        for at, document in enumerate(documents):
            after = _replaced(document, replace)
            if after != document:
                changed[at] = after
        fresh = [names.hide(word, value) for at in changed for word, value in _guessable(documents[at])]
        if not any(fresh):
            break
    return RedactedEvents({at: orjson.dumps(one) for at, one in changed.items()}, names.commitments, replace)


def _guessable(document: Document) -> Iterator[tuple[str, str]]:
    """What has to be replaced as well in an event that is changed, each with its word: by it the rest can be tried."""
    yield from ((ID, document[name]) for name in ("id", "sourceepoch"))
    if document["type"] == QuarantineRulesApplied.TYPE:
        yield DIGEST, document["data"]["digest"]


def _values(document: Document) -> Iterator[tuple[Class, str]]:
    aggregate = str(document["type"]).split(".")[2]
    if aggregate == "node":
        yield Class.NODES, document["subject"]
    elif aggregate == "device":
        yield from ((Class.CARDS, one) for one in (document["subject"], document["data"].get("name")) if one)
    elif aggregate == AllocationObserved.AGGREGATE:
        node, *held = document["subject"].split("/")
        yield Class.NODES, node
        yield from ((Class.PODS, one) for one in held)
    if (origin := _ORIGIN.match(document["source"])) is not None:
        yield Class.NODES if origin[1] == "nodes" else Class.PEOPLE, origin[2]
        if origin[1] == "operators" and isinstance(reason := document["data"].get("reason"), str):
            yield Class.TEXTS, reason  # A person has typed it; those of services are words of ours.
    yield from _within(document["data"])


def _within(data: object) -> Iterator[tuple[Class, str]]:
    if isinstance(data, list):
        for one in data:
            yield from _within(one)
    if not isinstance(data, dict):
        return
    for key, value in data.items():
        if isinstance(value, str):
            yield from _of_pod(key, value) if "pod" in data else _of_field(key, value)
        elif key == "entities":
            yield from ((Class.CARDS, str(one["value"])) for one in value)
        elif key == "metadata" and isinstance(value, dict):
            yield from ((Class.TEXTS, str(one)) for one in value.values())
        elif key in _LISTS:
            yield from (found for one in value if isinstance(one, str) for found in _of_field(_LISTS[key], one))
        yield from _within(value)


def _of_pod(key: str, value: str) -> Iterator[tuple[Class, str]]:
    """Of a field of something that names a pod: there the uid is the pod's, and a refusal may name its budget."""
    if key == "uid":
        yield Class.PODS, value
    elif key == "state":
        yield Class.PODS, value.partition(": ")[2]
    else:
        yield from _of_field(key, value)


def _of_field(key: str, value: str) -> Iterator[tuple[Class, str]]:
    if key == "device":
        yield Class.CARDS, value.partition(_SLICE)[0]
    elif key in _NAMES:
        yield _NAMES[key], value
    elif key == "slot":
        node, _, place = value.partition("/")
        yield Class.NODES, node
        if ":" in place:  # A PCI address; an index is no name.
            yield Class.CARDS, place
    elif key == "reporter":
        yield from ((Class.PODS, part) for part in value.split("/"))
    elif key == "owner" and value.startswith("operators/"):
        yield Class.PEOPLE, value.partition("/")[2]


def _replaced(document: Document, replace: Callable[[str], str]) -> Document:
    return {key: value if key in _KEPT else _in(value, replace) for key, value in document.items()}


def _in(value: object, replace: Callable[[str], str], *, is_free: bool = False) -> object:
    """The value, replaced; where others choose the keys of an object, these as well."""
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        keys = replace if is_free else str
        return {keys(key): _in(one, replace, is_free=key in _FREE_KEYS) for key, one in value.items()}
    return [_in(one, replace) for one in value] if isinstance(value, list) else value
