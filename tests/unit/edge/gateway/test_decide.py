"""Who may report over TCP, and about which node, by tables."""

from typing import Any

import pytest

from gpuledger.edge.gateway.checked_pods import CheckedPod
from gpuledger.edge.gateway.decide import (
    CertificateNames,
    Reporter,
    TokenRules,
    bearer_token,
    node_of,
    reporter_of_certificate,
    reporter_of_token,
)
from gpuledger.edge.kube.token_review import InvalidToken, TokenIdentity, identity_of
from gpuledger.healthreports.errors import (
    HealthReportError,
    InvalidReportError,
    ReportDeniedError,
    UnauthenticatedError,
)

RULES = TokenRules(
    "health", frozenset({("mon", "*"), ("gpu", "dcgm")}), frozenset({("mon", "csp")}), frozenset({"team", "mon"})
)
USER = "system:serviceaccount:"
TOKEN = "a.b.c"


def status(**changes: Any) -> dict[str, Any]:
    extra = {"authentication.kubernetes.io/node-name": ["n1"], "authentication.kubernetes.io/pod-name": ["p"]}
    extra["authentication.kubernetes.io/pod-uid"] = ["u"]
    user = {"username": f"{USER}mon:syslog", "extra": extra}
    return {"authenticated": True, "audiences": ["health"], "user": user} | changes


def test_a_review_identifies_the_account_the_node_and_the_pod() -> None:
    assert identity_of(TOKEN, status(), "health") == TokenIdentity(f"{USER}mon:syslog", "n1", "p", "u")


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"authenticated": False, "error": "expired a.b.c"}, "does not accept its token: expired ..."),
        ({"authenticated": "true"}, "does not accept its token"),
        ({}, "is not for the audience"),
        ({"audiences": ["other"]}, "is not for the audience"),
        ({"audiences": None}, "is not for the audience"),
    ],
)
def test_a_review_that_identifies_nobody(changed: dict[str, Any], text: str) -> None:
    found = identity_of(TOKEN, status(**changed), "health" if changed else "another")
    assert isinstance(found, InvalidToken)
    assert text in found.message
    assert TOKEN not in found.message


@pytest.mark.parametrize(
    ("user", "node", "expected"),
    [
        (f"{USER}mon:syslog", "n1", Reporter("mon/p", "n1")),
        (f"{USER}gpu:dcgm", "n1", Reporter("gpu/p", "n1")),
        (f"{USER}mon:csp", "n1", Reporter("mon/p", None)),
        (f"{USER}mon:csp", None, Reporter("mon/p", None)),
        (f"{USER}team:default", "n1", Reporter("team/p", "n1", CheckedPod("team/p", "u", "n1"))),
        (f"{USER}team:default", None, "team/default may not report"),
        (f"{USER}mon:syslog", None, "is bound to no node"),
        (f"{USER}gpu:other", "n1", "gpu/other may not report"),
        (f"{USER}tenant:syslog", "n1", "tenant/syslog may not report"),
        (f"{USER}mon", "n1", "is no service account"),
        ("system:node:n1", "n1", "is no service account"),
        ("mon:syslog", "n1", "is no service account"),
    ],
)
def test_who_the_holder_of_a_token_is(user: str, node: str | None, expected: Reporter | str) -> None:
    found = TokenIdentity(user, node, "p", "u")
    if isinstance(expected, Reporter):
        assert reporter_of_token(found, RULES) == expected
    else:
        with pytest.raises(ReportDeniedError, match=expected):
            reporter_of_token(found, RULES)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (CertificateNames("system:node:n1", ("system:nodes",), ()), Reporter("system:node:n1", "n1")),
        (CertificateNames("rack", (), ()), Reporter("rack", "n7")),
        (CertificateNames("", (), ("x", "rack")), Reporter("rack", "n7")),
        (CertificateNames("csp", (), ()), Reporter("csp", None)),
        (CertificateNames("system:node:n1", (), ()), None),
        (CertificateNames("system:node:", ("system:nodes",), ()), None),
        (CertificateNames("system:node:n1/x", ("system:nodes",), ()), None),
        (CertificateNames("n1", ("system:nodes",), ("n1",)), None),
        (CertificateNames("", (), ()), None),
    ],
)
def test_who_shows_a_certificate(names: CertificateNames, expected: Reporter | None) -> None:
    mapping = {"rack": "n7", "csp": "*"}
    if expected is not None:
        assert reporter_of_certificate(names, mapping) == expected
    else:
        with pytest.raises(ReportDeniedError, match="names no node"):
            reporter_of_certificate(names, mapping)


@pytest.mark.parametrize(
    ("named", "own", "expected"),
    [
        ("", "n1", "n1"),
        ("n1", "n1", "n1"),
        ("n2", "n1", ReportDeniedError),
        ("n2", None, "n2"),
        ("", None, InvalidReportError),
        ("N 2", None, InvalidReportError),
        ("a.>", None, InvalidReportError),
    ],
)
def test_which_node_an_event_is_about(named: str, own: str | None, expected: str | type[HealthReportError]) -> None:
    reporter = Reporter("mon/p", own)
    if isinstance(expected, str):
        assert node_of(named, "events[3]", reporter) == expected
    else:
        with pytest.raises(expected, match=r"^events\[3\]\.nodeName"):
            node_of(named, "events[3]", reporter)


@pytest.mark.parametrize(
    "value", [None, "", "abc", "Basic abc", "Bearer ", "Bearer a\nb", "Bearer é", "Bearer " + "x" * 20_000]
)
def test_what_is_no_token(value: str | None) -> None:
    with pytest.raises(UnauthenticatedError, match="authorization: Bearer TOKEN"):
        bearer_token({} if value is None else {"authorization": value})


@pytest.mark.parametrize("value", ["Bearer a.b.c", "bearer a.b.c ", b"Bearer a.b.c"])
def test_a_token(value: str | bytes) -> None:
    assert bearer_token({"authorization": value}) == TOKEN
