"""Bundles of incidents: nothing in one can be changed unnoticed, and nothing that was redacted is left in it."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.health.fold import scope_of
from gpuledger.domain.health.incidents import incident_id
from gpuledger.domain.health.own_reports import AGENT_CHECK, AGENT_MONITOR
from gpuledger.events.device import DeviceHealthChanged, DeviceReportAccepted, DeviceReportRejected
from gpuledger.events.digests import NOTHING, chained, digest_of
from gpuledger.events.envelope import decode
from gpuledger.events.ledger import LedgerSealed
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.bundle import lines, story, verify, write
from gpuledger.tools.bundle.lines import BundleError, End, EventLine, Head, Recorded, Redacted, Seal, Segment, Withheld
from gpuledger.tools.bundle.redaction import SALT_BYTES, Class, redact
from gpuledger.tools.bundle.signing import is_signed
from gpuledger.tools.bundle.story import bundle_document, incident_document
from gpuledger.tools.bundle.verify import Bundle, BundledEvent, open_bundle
from gpuledger.tools.bundle.write import Parts, seals_over, write_bundle
from gpuledger.tools.errors import RequestError, ToolError
from support.events import AGENT, event, outgoing
from support.health import REPORTS_OF_HEALTH, reported

SALT = b"s" * SALT_BYTES
EVENTS_PER_SEAL = 5
SHOWN, HIDDEN, CHANGED, LATER = 1, 3, 14, 25
"""Places of a bundle's events: as recorded, withheld, redacted, and one that no seal covers."""

CLOSED = 8
"""Behind this place another generation of the log begins, in the midst of what a seal covers."""

EVENTS = [*reported(*REPORTS_OF_HEALTH), *reported(*REPORTS_OF_HEALTH, first=len(REPORTS_OF_HEALTH) + 1)]


async def _ledger() -> MemoryLedger:
    """A log with a seal behind every five messages, but for the last ones."""
    ledger, link, previous, first, count = MemoryLedger(clock=lambda: 7), NOTHING, None, 1, 0

    async def add(message: Outgoing) -> None:
        nonlocal link, count
        await ledger.publish(message)
        link, count = chained(link, message.subject, message.data), count + 1

    for one in EVENTS:
        await add(outgoing(one))
        if count == CLOSED:
            await ledger.close_generation("somewhere", link)
        if count - first + 1 >= EVENTS_PER_SEAL and count < LATER - EVENTS_PER_SEAL:
            data = LedgerSealed(first=first, last=count, digest=link, previous=previous)
            previous, first = link, count + 1
            await add(outgoing(event(data, "1", number=count, source="/services/seals")))
    return ledger


async def _written(path: Path, key: Ed25519PrivateKey | None) -> Bundle:
    ledger, found = await _ledger(), dict[int, EventLine]()
    for at in (SHOWN, HIDDEN, CHANGED, LATER):
        message = await ledger.message_at(at)
        assert message is not None
        digest = digest_of(message.subject, message.data)
        if at == HIDDEN:
            found[at] = Withheld(at=at, digest=digest, type=decode(message.data).type)
        elif at == CHANGED:
            changed = redact([message.data], [Class.NODES], SALT).changed[0].decode()
            found[at] = Redacted(at=at, recorded_ns=7, digest=digest, data=changed)
        else:
            found[at] = Recorded(at=at, recorded_ns=7, subject=message.subject, data=message.data.decode())
    seals = await seals_over(ledger, sorted(found), await ledger.head())
    head = Head(ledger="memory", generations=[(1, 0), (2, CLOSED)], incident="one")
    return await write_bundle(path, head, Parts(ledger, found, seals), {"node-1": "0" * 64}, key)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle with an event of each kind, signed."""
    path = tmp_path_factory.mktemp("bundles") / "signed"
    asyncio.run(_written(path, Ed25519PrivateKey.from_private_bytes(b"k" * 32)))
    return path.read_bytes()


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same, unsigned."""
    path = tmp_path_factory.mktemp("bundles") / "unsigned"
    asyncio.run(_written(path, None))
    return path.read_bytes()


def _opened(data: bytes) -> Bundle:
    return open_bundle(BytesIO(data))


def test_each_event_says_what_stands_for_it(signed: bytes) -> None:
    bundle = _opened(signed)
    assert [(one.position, one.standing, one.in_seal) for one in bundle.events] == [
        (SHOWN, "sealed", True),
        (HIDDEN, "withheld", True),
        (CHANGED, "redacted", True),
        (LATER, "unsealed", False),
    ]
    assert bundle.gaps == 0
    assert [one["position"] for one in bundle_document(bundle)["events"]] == ["1/1", "1/3", "2/14", "2/25"]
    assert bundle.seals > 2
    notes = " ".join(bundle_document(bundle)["notes"])
    assert "1 events are unsealed: no seal covers them yet" in notes
    assert "The signature is right, but whose key it is" in notes


@given(st.data())
def test_no_byte_can_be_changed(signed: bytes, unsigned: bytes, data: st.DataObject) -> None:
    bundle = bytearray(data.draw(st.sampled_from([signed, unsigned])))
    at = data.draw(st.integers(0, len(bundle) - 1))
    bundle[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BundleError):
        _opened(bytes(bundle))


@given(st.data())
def test_no_part_can_be_cut_repeated_or_exchanged(signed: bytes, data: st.DataObject) -> None:
    parts = signed.splitlines(keepends=True)
    one, other = data.draw(st.lists(st.integers(0, len(parts) - 1), min_size=2, max_size=2, unique=True))
    changed = list(parts)
    match data.draw(st.sampled_from(["cut", "repeated", "exchanged", "ends"])):
        case "cut":
            del changed[one]
        case "repeated":
            changed.insert(other, parts[one])
        case "exchanged":
            changed[one], changed[other] = changed[other], changed[one]
        case _:
            changed = changed[:one]
    with pytest.raises(BundleError):
        _opened(b"".join(changed))


def _forged(bundle: bytes, change: tuple[bytes, bytes]) -> bytes:
    """The bundle with something exchanged, and a digest that is right again."""
    *body, end = bundle.replace(*change, 1).splitlines(keepends=True)
    return _ended(b"".join(body), end)


def _ended(body: bytes, end: bytes) -> bytes:
    document = orjson.loads(end) | {"digest": sha256(body).hexdigest()}
    return body + orjson.dumps(document, option=orjson.OPT_SORT_KEYS) + b"\n"


def _parts(bundle: bytes, kind: str) -> Iterator[dict[str, object]]:
    return (one for one in map(orjson.loads, bundle.splitlines()) if one["kind"] == kind)


def test_who_makes_the_digest_right_again_is_found_by_the_seals(unsigned: bytes) -> None:
    segment, other = list(_parts(unsigned, "segment"))[:2]
    (digests, *_) = _parts(unsigned, "digests")
    first = str(digests["digests"][0]).encode()  # type: ignore[index] # a list
    for change, problem in [
        ((b"fell off", b"fell out"), "they are not those that were sealed"),
        ((first, first[::-1]), "they are not those that were sealed"),
        ((str(segment["digest"]).encode(), b"0" * 64), "they are not those that were sealed"),
        ((f'"previous":"{other["previous"]}"'.encode(), b'"previous":"' + b"1" * 64 + b'"'), "follows another one"),
        ((b'"at":1,', b'"at":2,'), "stands at the place of the message 1"),
        ((b'"last":5,', b'"last":6,'), "the message 6 is missing"),
        ((b'n1.health-reported"', b'n2.health-reported"'), "stands under"),
    ]:
        assert change[0] in unsigned, change
        with pytest.raises(BundleError, match=problem):
            _opened(_forged(unsigned, change))


@given(st.data())
def test_whatever_a_forger_writes_is_refused_with_an_error_of_ours_or_shown(
    unsigned: bytes, data: st.DataObject
) -> None:
    *body, end = unsigned.splitlines(keepends=True)
    number = data.draw(st.integers(0, len(body) - 1))
    line = bytearray(body[number])
    at = data.draw(st.integers(0, len(line) - 2))
    line[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(FORGERIES) | st.binary(max_size=3))
    body[number] = bytes(line)
    with suppress(BundleError):
        bundle_document(_opened(_ended(b"".join(body), end)))


FORGERIES = [b"\\ud800", b"\\u0000", b"-1", b"1e999", b"9" * 30, b"null", b"[", b"{", b"\n", b'"', b"\xff"]


def test_who_signs_anew_has_another_key(signed: bytes) -> None:
    bundle = _opened(signed)
    assert bundle.signer is not None
    with pytest.raises(BundleError, match="not one of the key"):
        _opened(_forged(signed, (b'"incident":"one"', b'"incident":"two"')))
    with pytest.raises(BundleError, match="another key"):
        open_bundle(BytesIO(signed), expected_key="0" * 64)
    assert open_bundle(BytesIO(signed), expected_key=bundle.signer.key).signer == (bundle.signer.key, True)
    assert not is_signed(bundle.digest, "f" * 64, "0" * 128)


def test_a_reader_may_name_the_key_and_a_seal(unsigned: bytes) -> None:
    seals = _opened(unsigned).to_compare
    assert seals == bundle_document(_opened(unsigned))["bundle"]["sealsToCompare"]
    assert open_bundle(BytesIO(unsigned), expected_seals=seals).seals
    with pytest.raises(BundleError, match="of another ledger, or forged"):
        open_bundle(BytesIO(unsigned), expected_seals=[*seals, "0" * 64])
    with pytest.raises(BundleError, match="not signed"):
        open_bundle(BytesIO(unsigned), expected_key="0" * 64)


@pytest.mark.parametrize("follows", [True, False])
def test_a_true_seal_vouches_for_no_event_that_it_does_not_cover(unsigned: bytes, *, follows: bool) -> None:
    (true, *_) = [str(one["digest"]) for one in _parts(unsigned, "seal")]
    message = outgoing(EVENTS[0])
    shown = Recorded(at=1, recorded_ns=7, subject=message.subject, data=message.data.decode())
    forged = chained(NOTHING, message.subject, message.data)
    first = 2 if follows else 3
    body = b"".join(
        lines.encoded(line)
        for line in (
            Head(ledger="memory", generations=[(1, 0)], incident="one"),
            Segment(first=1, last=1, link=NOTHING, digest=forged, previous=None),
            shown,
            Seal(first=first, last=5, digest=true, previous=forged),
        )
    )
    bundle = body + lines.encoded(End(events=1, digest=sha256(body).hexdigest()))
    assert _opened(bundle).to_compare == (forged,)
    with pytest.raises(BundleError, match="No seal over events of the bundle has the digest"):
        open_bundle(BytesIO(bundle), expected_seals=[true])


def test_a_seal_vouches_for_the_segments_before_it_alone(unsigned: bytes) -> None:
    *_, last = _opened(unsigned).to_compare
    with pytest.raises(BundleError, match=r"None of these seals vouches for the messages 1 to"):
        open_bundle(BytesIO(unsigned), expected_seals=[last])


@pytest.mark.parametrize(
    ("bound", "value", "problem"),
    [
        ("BUNDLE_BYTES_MAX", 600, "more than 600 bytes"),
        ("LINE_BYTES_MAX", 100, "more than 100 bytes"),
        ("EVENTS_MAX", 2, "more than 2 events"),
        ("EVENT_BYTES_MAX", 800, "more than 800 bytes"),
        ("SEALS_MAX", 1, "too many"),
    ],
)
def test_what_is_read_is_bounded(
    unsigned: bytes, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, problem: str
) -> None:
    monkeypatch.setattr(verify, bound, value)
    with pytest.raises(BundleError, match=problem):
        _opened(unsigned)


def test_a_later_version_is_refused() -> None:
    head = lines.encoded(Head(version=2, ledger="memory", generations=[(1, 0)], incident="one"))
    with pytest.raises(BundleError, match=r"has version 2 .* reads version 1"):
        _opened(head)


async def test_what_is_written_is_bounded_and_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BUNDLE_BYTES_MAX", 100)
    with pytest.raises(RequestError, match="more than 100 bytes"):
        await _written(tmp_path / "bundle", None)
    assert not names_in(tmp_path)


async def test_values_that_are_redacted_fit_in_a_line_or_are_refused(tmp_path: Path) -> None:
    of = {f"digest-{at:0>64}": "0" * 64 for at in range(lines.COMMITMENTS_MAX)}
    assert len(lines.encoded(lines.Commitments(of=of))) <= lines.LINE_BYTES_MAX
    ledger, head = MemoryLedger(), Head(ledger="memory", generations=[(1, 0)], incident="one")
    with pytest.raises(RequestError, match=r"25,001 redacted values, and may have 25,000"):
        await write_bundle(tmp_path / "bundle", head, Parts(ledger, {}, []), of | {"one": "0" * 64}, None)
    assert not names_in(tmp_path)


async def test_a_log_that_is_not_what_was_sealed_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "digest_of", lambda subject, data: digest_of(subject, data + b" "))
    with pytest.raises(ToolError, match="The log is not what was sealed"):
        await _written(tmp_path / "bundle", None)
    assert not names_in(tmp_path)


async def test_many_seals_are_left_out_between_those_that_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "SEALS_MAX", 2)
    bundle = await _written(tmp_path / "bundle", None)
    assert (bundle.seals, bundle.gaps) == (2, 1)


def names_in(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return [one.name for one in folder.iterdir()]


def test_an_agents_report_on_a_card_counts_where_it_was_accepted() -> None:
    data = DeviceHealthChanged(healthy=False, kind="XID 79", message="fell off the bus")
    report = event(data, "GPU-1", at=1, source=AGENT)
    judged: dict[str, Any] = {
        "node": "n1",
        "report": report.id,
        "type": report.type,
        "epoch": report.epoch,
        "number": 1,
    }
    verdict = DeviceReportAccepted(**judged, data=data.model_dump(mode="json"))
    accepted = event(verdict, "GPU-1", at=1, source="/services/inventory")
    rejected = DeviceReportRejected(**judged | {"report": "other"}, located_on="n2")
    other = event(data, "GPU-1", at=2, source=AGENT, event_id="other")
    shown = [report, accepted, other, event(rejected, "GPU-1", at=2, source="/services/inventory")]
    name = incident_id(scope_of("n1", AGENT_MONITOR, AGENT_CHECK), "GPU-1", report.time)
    head = Head(ledger="memory", generations=[(1, 0)], incident=name)
    events = [BundledEvent(at, at, one, one.type, "sealed", True) for at, one in enumerate(shown, 1)]
    found = incident_document(Bundle(head, events, {}, 1, 1, 4, "0" * 64, (), 0, "0" * 64, None))
    assert found is not None
    assert [(one["position"], one["reports"]) for one in found["timeline"]] == [(2, 1)]


def test_events_about_too_much_are_not_folded(monkeypatch: pytest.MonkeyPatch, unsigned: bytes) -> None:
    monkeypatch.setattr(story, "FOLDED_MAX", 1)
    document = bundle_document(_opened(unsigned))
    assert document["incident"] is None
    assert "about too much" in " ".join(document["notes"])
