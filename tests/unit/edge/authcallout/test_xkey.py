"""Boxes between two xkeys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.authcallout.xkey import VERSION, CurveBox, XkeyError
from gpuledger.ledger.nkeys import KeyKind, public_key, seed_key

OURS, SERVERS, OTHERS = (CurveBox(bytes([number]) * 32) for number in (1, 2, 3))


def test_what_one_seals_the_other_opens_and_nobody_else() -> None:
    sealed = SERVERS.sealed(b"a question", OURS.public)
    assert sealed.startswith(VERSION)
    assert b"question" not in sealed
    assert OURS.opened(sealed, SERVERS.public) == b"a question"
    assert SERVERS.sealed(b"a question", OURS.public) != sealed, "each has a nonce of its own"
    for box, sender in ((OTHERS, SERVERS.public), (OURS, OTHERS.public), (OURS, "X"), (OURS, "")):
        with pytest.raises(XkeyError):
            box.opened(sealed, sender)
    for changed in (sealed[:-1], b"xkv2" + sealed[4:], sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(XkeyError):
            OURS.opened(changed, SERVERS.public)


@given(st.binary())
def test_no_bytes_break_it(data: bytes) -> None:
    with pytest.raises(XkeyError):
        OURS.opened(VERSION + data, SERVERS.public)


def test_its_texts_are_those_of_its_kind() -> None:
    assert len(public_key(KeyKind.CURVE, OURS.public)) == 32
    assert seed_key(KeyKind.CURVE, OURS.seed) == bytes([1]) * 32
