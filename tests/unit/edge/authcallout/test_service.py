"""What the service makes of a question, and how it seals and signs an answer."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.msg import Msg

from gpuledger.edge.authcallout.decide import Denied, Granted, LoginRequest, LoginRules, Reason
from gpuledger.edge.authcallout.keys import CalloutKeys
from gpuledger.edge.authcallout.service import AuthCallout, Question
from gpuledger.edge.authcallout.xkey import HEADER, CurveBox
from gpuledger.edge.kube.client import KubeClient
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.jwt import SigningKey, encoded, signed_by, unverified
from gpuledger.ledger.nkeys import KeyKind
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import CALLOUT_XKEY

NOW_S = 1_800_000_000
OURS, SERVERS = CurveBox(b"\1" * 32), CurveBox(b"\2" * 32)
ISSUER, USERS, ACCOUNT, SERVER = (
    SigningKey(kind, Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))
    for number, kind in enumerate((KeyKind.ACCOUNT, KeyKind.ACCOUNT, KeyKind.ACCOUNT, KeyKind.SERVER), 3)
)
REQUEST = LoginRequest(SERVER.public, ISSUER.public, "UKEY", "10.0.0.1", "a-token")
GRANTED = Granted("w1", NOW_S + 60)


def service(keys: CalloutKeys) -> AuthCallout:
    """A service that asks nobody."""
    nobody = (cast("Connection", None), cast("KubeClient", None))
    return AuthCallout(*nobody, LoginRules("gpuledger-agents", "system:serviceaccount:gpu:agent"), keys, system_clock)


def question(data: bytes, headers: Mapping[str, str] | None = None) -> Msg:
    return cast("Msg", SimpleNamespace(data=data, headers=headers))


def asked() -> bytes:
    """A question as a server signs it."""
    nats = {"type": "authorization_request", "server_id": {"id": SERVER.public}, "user_nkey": "UKEY"}
    nats |= {"connect_opts": {"auth_token": "a-token"}, "client_info": {"host": "10.0.0.1"}}
    return encoded({"sub": ISSUER.public, "nats": nats}, SERVER).encode()


def test_a_sealed_question_has_a_sealed_answer() -> None:
    one = service(CalloutKeys(ISSUER, ISSUER, None, OURS))
    found = one._question(question(SERVERS.sealed(asked(), OURS.public), {HEADER: SERVERS.public}))
    assert found == Question(REQUEST, SERVERS.public)
    answer = one._answer_to(found, GRANTED, NOW_S)
    assert unverified(SERVERS.opened(answer, OURS.public).decode())["aud"] == SERVER.public
    assert not answer.startswith(b"ey"), "it can be read without the key"


def test_a_plain_question_has_a_plain_answer() -> None:
    one = service(CalloutKeys(ISSUER, ISSUER, None, OURS))
    assert one._question(question(asked())) == Question(REQUEST)
    assert one._answer_to(Question(REQUEST), GRANTED, NOW_S).startswith(b"ey")


@pytest.mark.parametrize("box", [None, CurveBox(b"\x09" * 32)])
def test_a_question_for_another_xkey_is_a_trouble_with_advice(box: CurveBox | None) -> None:
    one = service(CalloutKeys(ISSUER, ISSUER, None, box))
    found = one._question(question(SERVERS.sealed(asked(), OURS.public), {HEADER: SERVERS.public}))
    assert isinstance(found, Denied)
    assert found.reason is Reason.INVALID_REQUEST
    assert CALLOUT_XKEY in one.trouble


@pytest.mark.parametrize("account", [None, ACCOUNT.public])
def test_answers_and_users_are_signed_each_by_its_key(account: str | None) -> None:
    keys = CalloutKeys(ISSUER, ISSUER if account is None else USERS, account)
    answer = signed_by(KeyKind.ACCOUNT, service(keys)._answer_to(Question(REQUEST), GRANTED, NOW_S).decode())
    user = signed_by(KeyKind.ACCOUNT, answer["nats"]["jwt"])
    assert answer["iss"] == ISSUER.public
    assert user["iss"] == keys.users.public
    assert user["nats"].get("issuer_account") == account


def test_a_denial_names_its_reason() -> None:
    denied = Denied(Reason.NO_NODE, "its token is bound to no node")
    answer = service(CalloutKeys(ISSUER, ISSUER))._answer_to(Question(REQUEST), denied, NOW_S)
    assert unverified(answer.decode())["nats"]["error"] == "NoNode: its token is bound to no node"
