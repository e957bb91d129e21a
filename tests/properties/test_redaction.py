"""Values of events that are replaced: nothing of them is left, and equal ones stay equal."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.allocation import AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.envelope import Decoded, decode, encode
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    LeavingPod,
    NamespaceMode,
    NodeDrainTimedOut,
    NodeIsolationChanged,
    NodeMaintenanceRequested,
    NodePodDeletionRequested,
)
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.tools.bundle.redaction import SALT_BYTES, Class, commitment_of, redact
from gpuledger.tools.errors import RequestError
from support.events import event
from support.health import card_report, reported

SALT = b"s" * SALT_BYTES

NAMES = st.text("abcdefgh0123456789", min_size=2, max_size=8).map(lambda text: f"x{text}")


@given(NAMES, NAMES, st.sets(st.sampled_from(list(Class)), min_size=1), st.binary(min_size=32, max_size=32))
def test_nothing_that_is_redacted_is_left(node: str, card: str, classes: set[Class], salt: bytes) -> None:
    events = _about(node, card)
    done = redact(map(encode, events), classes, salt)
    left = b"\n".join(done.changed.get(at, encode(one)) for at, one in enumerate(events)).decode()
    hidden = {Class.NODES: node, Class.CARDS: card, Class.TEXTS: f"{card} of {node} fell off the bus"}
    for one in classes & hidden.keys():
        assert not re.search(rf"(?<![A-Za-z0-9]){hidden[one]}(?![A-Za-z0-9])", left)
    for at, body in done.changed.items():
        shown = decode(body)
        assert shown.data.TYPE == events[at].data.TYPE
        assert events[at].id not in left
    assert redact(map(encode, events), classes, salt).changed == done.changed


def _about(node: str, card: str) -> list[Decoded]:
    message = f"{card} of {node} fell off the bus"
    source = partial(reported, source=f"/nodes/{node}/agent")
    return source((1, card_report(card, "79", message=message)), (2, card_report(card, healthy=True)))


def test_equal_values_have_equal_pseudonyms_and_commitments_can_be_shown() -> None:
    done = redact(map(encode, _about("n17", "GPU-1")), [Class.NODES], SALT)
    pseudonym = decode(done.changed[0]).subject
    assert decode(done.changed[1]).subject == pseudonym
    assert done.commitments[pseudonym] == commitment_of("node", "n17", SALT)
    assert redact(map(encode, _about("n17", "GPU-1")), [Class.NODES], b"t" * 32).commitments != done.commitments


RULES: dict[str, Any] = {
    "digest": "ab" * 32,
    "file": "rules.yaml",
    "rulesets": [{"name": "all", "match": {"all": [{"expression": "node.metadata.name != 'n17'"}]}, "cordon": True}],
}
BUDGET = "The disruption budget trainer-pdb needs 1 healthy pods"


def _all_redacted(*payloads: Payload, classes: Iterable[Class]) -> list[str]:
    events = [event(data, "n17", event_id=f"event {at}") for at, data in enumerate(payloads)]
    done = redact(map(encode, events), classes, SALT)
    return [done.changed.get(at, encode(one)).decode() for at, one in enumerate(events)]


def test_the_version_of_rules_that_are_changed_is_replaced_wherever_it_stands() -> None:
    rules = QuarantineRulesApplied.model_validate(RULES)
    request = NodeMaintenanceRequested(owner="health/all", reason="Unhealthy", rules=RULES["digest"])
    shown = _all_redacted(rules, request, classes=[Class.NODES])
    assert RULES["digest"] not in "".join(shown)
    after = decode(shown[0].encode()).data
    assert isinstance(after, QuarantineRulesApplied)
    assert after.digest in shown[1]


@pytest.mark.parametrize(
    ("data", "redacted", "values"),
    [
        (NodeIsolationChanged(uid="u", isolation=Isolation(), owners=("operators/bob",)), Class.PEOPLE, ["bob"]),
        (
            NodePodDeletionRequested(intent="i", namespace="ml", pod="trainer-0", uid="uid-of-pod", blocked=BUDGET),
            Class.PODS,
            ["uid-of-pod", "trainer"],
        ),
        (
            NodeDrainTimedOut(
                intent="i", left=1, pods=(LeavingPod(namespace="ml", pod="p", state=f"Blocked: {BUDGET}"),)
            ),
            Class.PODS,
            ["trainer-pdb"],
        ),
        (
            NodeMaintenanceRequested(
                owner="health/all",
                reason="Unhealthy",
                drain=Drain(namespaces=(NamespaceMode(namespaces="team-a", mode="Immediate"),)),
            ),
            Class.PODS,
            ["team-a"],
        ),
    ],
)
def test_whoever_an_event_names_is_redacted_by_their_class(data: Payload, redacted: Class, values: list[str]) -> None:
    (shown,) = _all_redacted(data, classes=[redacted])
    assert decode(shown.encode()).data.TYPE == data.TYPE
    for value in values:
        assert value not in shown


def test_the_slice_of_a_card_stays_one_of_that_card() -> None:
    held = AllocationObserved(
        node="n1",
        namespace="ml",
        pod="p",
        container="main",
        resources=(AllocatedDevices(resource="gpu.deckhouse.io/training", devices=("GPU-1::3",)),),
    )
    card = card_report("GPU-1", "79")
    shown = [decode(one.encode()).data for one in _all_redacted(held, card, classes=[Class.CARDS])]
    assert isinstance(shown[0], AllocationObserved)
    assert isinstance(shown[1], NodeHealthReported)
    assert shown[0].resources[0].devices == (f"{shown[1].entities[0].value}::3",)


def test_no_event_shows_the_id_or_the_epoch_of_one_that_is_withheld() -> None:
    request = event(NodeMaintenanceRequested(owner="health/all", reason="Fan"), "n1", event_id="withheld")
    data = NodeIsolationChanged(uid="u", isolation=Isolation())
    caused = event(data, "n1", event_id="caused")._replace(causation_id="withheld")
    done = redact(map(encode, (request, caused)), [Class.PEOPLE], SALT, [0])
    assert b"withheld" not in done.changed[1]
    assert request.epoch.encode() not in done.changed[1]


def test_an_end_of_an_allocation_names_its_container() -> None:
    done = redact([encode(event(AllocationEnded(), "n1/ml/trainer-0/main"))], [Class.PODS], SALT)
    assert b"trainer-0" not in done.changed[0]


def test_a_salt_has_its_length() -> None:
    with pytest.raises(RequestError, match="3 bytes, not 32"):
        redact([], [Class.NODES], b"abc")
