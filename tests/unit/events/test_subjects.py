"""The grammar of subjects and sources."""

import pytest

from gpuledger.events.errors import SubjectError
from gpuledger.events.subjects import (
    TOKEN_BYTES_MAX,
    Origin,
    Subject,
    aggregate_filter,
    escape,
    origin_of,
    parse_subject,
    subject_of,
    unescape,
)
from gpuledger.ledger.memory import matcher


@pytest.mark.parametrize(
    ("name", "token"),
    [
        ("gpu-0_A", "gpu-0_A"),
        ("node.example.org", "node%2Eexample%2Eorg"),
        ("c0-0c0s0n0", "c0-0c0s0n0"),
        ("a b", "a%20b"),
        ("*", "%2A"),
        (">", "%3E"),
        ("~", "%7E"),
        ("100%", "100%25"),
        ("0000:17:00.0", "0000%3A17%3A00%2E0"),
        ("é", "%C3%A9"),
        ("a\r\nb", "a%0D%0Ab"),
        ("openb/1", "openb%2F1"),
    ],
)
def test_names_become_tokens_and_come_back(name: str, token: str) -> None:
    assert escape(name) == token
    assert unescape(token) == name


@pytest.mark.parametrize("name", ["", "a" * (TOKEN_BYTES_MAX + 1), "é" * TOKEN_BYTES_MAX, "\ud800"])
def test_what_cannot_be_a_token_is_refused(name: str) -> None:
    with pytest.raises(SubjectError):
        escape(name)


@pytest.mark.parametrize("token", ["", "a.b", "%", "%2", "%zz", "%2e", "%41", "%80", "é", "a b", "~", "*", ">"])
def test_only_the_canonical_token_is_accepted(token: str) -> None:
    with pytest.raises(SubjectError):
        unescape(token)


@pytest.mark.parametrize(
    ("source", "origin", "is_edge"),
    [
        ("/nodes/worker-1/agent", Origin("node", "worker-1"), True),
        ("/nodes/worker.example.org/agent", Origin("node", "worker.example.org"), True),
        ("/services/sources", Origin("svc", "sources"), False),
        ("/watchers/claims", Origin("svc", "watchers"), False),
        ("/gateways/health", Origin("svc", "gateways"), True),
        ("/operators/anna", Origin("svc", "operators"), False),
        ("/import/titan", Origin("svc", "import"), True),
    ],
)
def test_every_source_has_one_origin(source: str, origin: Origin, is_edge: bool) -> None:
    assert origin_of(source) == origin
    assert origin.is_edge is is_edge


@pytest.mark.parametrize(
    "source",
    [
        "",
        "/",
        "nodes/a/agent",
        "/nodes/a",
        "/nodes//agent",
        "/nodes/a/kubelet",
        "/nodes/a/agent/",
        "/nodes/a/b/agent",
        "/services/",
        "/services/a/b",
        "/other/a",
        "/import",
    ],
)
def test_a_source_of_another_shape_is_refused(source: str) -> None:
    with pytest.raises(SubjectError, match="none of"):
        origin_of(source)


def test_a_subject_has_the_source_the_aggregate_and_the_event() -> None:
    subject = subject_of("/nodes/w.1/agent", "device", "GPU-1.2", "observed")
    assert subject == "ledger.node.w%2E1.device.GPU-1%2E2.observed"
    parsed = parse_subject(subject)
    assert parsed == Subject(Origin("node", "w.1"), "device", "GPU-1.2", "observed")
    assert str(parsed) == subject


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "ledger",
        "ledger.svc.a.device.d",
        "ledger.svc.a.device.d.happened.again",
        "other.svc.a.device.d.happened",
        "ledger.pod.a.device.d.happened",
        "ledger.svc..device.d.happened",
        "ledger.svc.a.device.%2e.happened",
    ],
)
def test_a_subject_of_another_form_is_refused(subject: str) -> None:
    with pytest.raises(SubjectError):
        parse_subject(subject)


def test_an_aggregates_filter_matches_its_events_alone() -> None:
    one, every = matcher(aggregate_filter("device", "d.1")), matcher(aggregate_filter("device"))
    of_node = subject_of("/nodes/n/agent", "device", "d.1", "observed")
    of_service = subject_of("/services/sources", "device", "d.1", "inserted")
    of_another = subject_of("/services/sources", "device", "d", "inserted")
    of_slot = subject_of("/services/sources", "slot", "d.1", "declared")
    assert [one(subject) for subject in (of_node, of_service, of_another, of_slot)] == [True, True, False, False]
    assert [every(subject) for subject in (of_node, of_service, of_another, of_slot)] == [True, True, True, False]
