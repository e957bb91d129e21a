"""Objects such as no API server would let through, but an API server of another version, or with other CRDs, might."""

from typing import Any

from hypothesis import strategies as st

from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.events.envelope import Event, decode, encode, nats_subject_of
from gpuledger.ledger.publish import HEADER_BYTES_MAX
from support.events import START

MESSAGE_BYTES_MAX = 1024 * 1024 - HEADER_BYTES_MAX

texts = st.text(max_size=5) | st.sampled_from(["a", "In", "1Gi", "1e3", "\0", "x" * 300, "é" * 253])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=6,
)


def maybe(shape: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly of the shape, sometimes anything."""
    return st.one_of(shape, shape, anything)


def an_object(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Some of the fields, mostly."""
    return maybe(st.fixed_dictionaries({}, optional={name: maybe(field) for name, field in fields.items()}))


def a_list(shape: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A few of the shape, mostly."""
    return maybe(st.lists(shape, max_size=3))


def a_map(shape: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A few of the shape by any names, mostly."""
    return maybe(st.dictionaries(texts, shape, max_size=3))


def recorded(kind: AnyKind, subject: str, content: bytes) -> Event[Any]:
    """The recorded event of an object's content, as a reader of the ledger finds it."""
    data = kind.combine([content])
    assert data is not None
    event = Event("e", kind.source, data.TYPE, subject, START, data, "epoch", 1)
    assert nats_subject_of(event).isascii()
    raw = encode(event)
    assert len(raw) <= MESSAGE_BYTES_MAX
    found = decode(raw)
    assert found.data == data
    return found
