"""Who may log in, and as which node."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.authcallout.decide import (
    LOGIN_LIFE_MAX_S,
    SPREAD_S,
    TRIAL_NAME,
    Answering,
    Denied,
    Granted,
    LoginRequest,
    LoginRules,
    Reason,
    decide,
    login_request,
    other_issuer,
    response_claims,
    user_claims,
    without_token,
)
from gpuledger.edge.kube.token_review import NODE_NAME
from gpuledger.ledger.permissions import AGENTS_ACCOUNT, agent_permissions
from gpuledger.ledger.server_config import TOKEN_CHARS_MAX
from support.thoroughness import examples

NOW_S = 1_800_000_000
RULES = LoginRules("gpuledger-agents", "system:serviceaccount:gpu:agent")
REQUEST = LoginRequest("NSERVER", "AISSUER", "UKEY", "10.0.0.1", "secret-token")


def token(**claims: Any) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def status(**changes: Any) -> dict[str, Any]:
    user = {"username": RULES.user, "extra": {NODE_NAME: ["w1"]}}
    return {"authenticated": True, "audiences": [RULES.audience], "user": user} | changes


def user_of(name: str = RULES.user, nodes: object = None) -> dict[str, Any]:
    return {"username": name, "extra": {} if nodes is None else {NODE_NAME: nodes}}


def reason(decided: Granted | Denied) -> Reason | None:
    return decided.reason if isinstance(decided, Denied) else None


def test_a_bound_token_of_the_agents_account_is_let_in_as_its_node() -> None:
    decided = decide(token(exp=NOW_S + 3600), status(), RULES, NOW_S)
    assert isinstance(decided, Granted)
    assert decided.node == "w1"
    assert NOW_S + LOGIN_LIFE_MAX_S - SPREAD_S < decided.expires_s <= NOW_S + LOGIN_LIFE_MAX_S


def test_a_login_never_outlives_its_token() -> None:
    assert decide(token(exp=NOW_S + 60), status(), RULES, NOW_S) == Granted("w1", NOW_S + 60)
    for end in (NOW_S + 2, NOW_S, 0, -5):
        assert reason(decide(token(exp=end), status(), RULES, NOW_S)) is Reason.EXPIRED


@pytest.mark.parametrize("text", ["opaque", token(), token(exp="soon"), token(exp=1e30), "a.b.c"])
def test_a_token_that_does_not_say_when_it_ends_is_held_to_our_bound(text: str) -> None:
    decided = decide(text, status(), RULES, NOW_S)
    assert isinstance(decided, Granted)
    assert decided.expires_s <= NOW_S + LOGIN_LIFE_MAX_S


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, Reason.NOT_AUTHENTICATED),
        (status(authenticated=False), Reason.NOT_AUTHENTICATED),
        (status(authenticated="yes"), Reason.NOT_AUTHENTICATED),
        (status(audiences=[]), Reason.OTHER_AUDIENCE),
        (status(audiences=None), Reason.OTHER_AUDIENCE),
        (status(audiences=RULES.audience), Reason.OTHER_AUDIENCE),
        (status(user=user_of("system:serviceaccount:gpu:agent2")), Reason.OTHER_ACCOUNT),
        (status(user=user_of("system:serviceaccount:gpu2:agent")), Reason.OTHER_ACCOUNT),
        (status(user=user_of("")), Reason.OTHER_ACCOUNT),
        (status(user=None), Reason.OTHER_ACCOUNT),
        (status(user=user_of()), Reason.NO_NODE),
        (status(user=user_of(nodes=[])), Reason.NO_NODE),
        (status(user=user_of(nodes=["a", "b"])), Reason.NO_NODE),
        (status(user=user_of(nodes="a")), Reason.NO_NODE),
        (status(user=user_of(nodes=[">"])), Reason.NO_NODE),
        (status(user=user_of(nodes=["*"])), Reason.NO_NODE),
        (status(user=user_of(nodes=["a b"])), Reason.NO_NODE),
        (status(user=user_of(nodes=[7])), Reason.NO_NODE),
    ],
)
def test_everybody_else_is_refused(answer: dict[str, Any], expected: Reason) -> None:
    assert reason(decide(token(exp=NOW_S + 3600), answer, RULES, NOW_S)) is expected


@examples(0.3)
@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.text(), st.lists)))
def test_whatever_else_a_review_says_lets_nobody_in(answer: dict[str, Any]) -> None:
    assert isinstance(decide("t", answer, RULES, NOW_S), Denied)


def test_no_message_holds_the_token() -> None:
    text = token(exp=NOW_S + 3600)
    decided = decide(text, {"error": f"cannot read {text}\n{'x' * 500}"}, RULES, NOW_S)
    assert isinstance(decided, Denied)
    assert text not in decided.message
    assert "\n" not in decided.message
    assert len(decided.message) < 300
    assert "secret" not in repr(REQUEST)


@pytest.mark.parametrize("node", ["w1", "gpu-01.example.com"])
def test_a_user_is_confined_as_an_agents_permissions_say(node: str) -> None:
    claims = user_claims(REQUEST, Granted(node, NOW_S + 60), None, NOW_S)
    publish, subscribe = agent_permissions(node)
    assert claims["nats"]["pub"] == {"allow": list(publish)}
    assert claims["nats"]["sub"] == {"allow": list(subscribe)}
    assert (claims["aud"], claims["sub"], claims["exp"]) == (AGENTS_ACCOUNT, "UKEY", NOW_S + 60)


def test_in_operator_mode_the_account_that_signs_is_the_one_that_agents_are_placed_in() -> None:
    claims = user_claims(REQUEST, Granted("w1", NOW_S + 60), "AAGENTS", NOW_S)
    assert claims["nats"]["issuer_account"] == "AAGENTS"
    assert "aud" not in claims
    assert "issuer_account" not in user_claims(REQUEST, Granted("w1", NOW_S + 60), None, NOW_S)["nats"]


def test_another_issuer_is_noticed_where_the_server_names_its_own() -> None:
    assert other_issuer(REQUEST, Answering("AISSUER")) is None
    assert other_issuer(REQUEST, Answering("AOTHER", "AAGENTS")) is None
    denied = other_issuer(REQUEST, Answering("AOTHER"))
    assert denied is not None
    assert denied.reason is Reason.OTHER_ISSUER
    assert "AISSUER" in denied.message
    assert "AOTHER" in denied.message


def test_an_answer_is_for_the_server_that_asked() -> None:
    claims = response_claims(REQUEST, {"error": "no"}, NOW_S)
    assert (claims["aud"], claims["sub"], claims["nats"]["error"]) == ("NSERVER", "UKEY", "no")


def test_a_request_is_what_a_server_signs() -> None:
    nats = {"type": "authorization_request", "server_id": {"id": "N1"}, "user_nkey": "U1"}
    options = {"connect_opts": {"auth_token": "t", "user": ">"}, "client_info": {"host": "h"}}
    assert login_request({"iss": "N1", "sub": "A1", "nats": nats | options}) == LoginRequest("N1", "A1", "U1", "h", "t")
    assert login_request({"iss": "N1", "nats": nats}) == LoginRequest("N1", "", "U1", "an unknown address", "")
    trial = {"connect_opts": {"name": TRIAL_NAME}}
    assert login_request({"iss": "N1", "nats": nats | trial}) == LoginRequest(
        "N1", "", "U1", "an unknown address", "", True
    )
    named = {"connect_opts": {"name": TRIAL_NAME, "auth_token": "t"}}
    assert login_request({"iss": "N1", "nats": nats | named}) == LoginRequest("N1", "", "U1", "an unknown address", "t")
    for changes in ({"type": "user"}, {"server_id": {"id": "N2"}}, {"server_id": "N1"}, {"user_nkey": 7}):
        assert isinstance(login_request({"iss": "N1", "nats": nats | changes}), Denied)
    assert isinstance(login_request({"iss": "N1", "nats": None}), Denied)


def test_only_what_has_a_token_is_reviewed() -> None:
    assert without_token(REQUEST) is None
    for text in ("", "x" * (TOKEN_CHARS_MAX + 1)):
        denied = without_token(LoginRequest("N", "A", "U", "h", text))
        assert denied is not None
        assert denied.reason is Reason.NO_TOKEN
