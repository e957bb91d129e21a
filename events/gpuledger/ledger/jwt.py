"""JWTs as NATS writes them: signed with Ed25519, whoever signed being named in them by an NKEY. Pure."""

import base64
import binascii
import hashlib
import json
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_key, public_text, seed_text

ALGORITHM: Final = "ed25519-nkey"
PARTS: Final = 3

Claims = dict[str, Any]


VERSION: Final = 2
"""The version of claims, which a server demands in `nats`."""

UNLIMITED: Final = -1


class SigningKey(NamedTuple):
    """A private key, and whose it is."""

    kind: KeyKind
    private: Ed25519PrivateKey

    @property
    def public(self) -> str:
        """The text by which others name it."""
        return public_text(self.kind, self.private.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """The text of the private key, which is a secret."""
        return seed_text(self.kind, self.private.private_bytes_raw())


class JwtError(ValueError):
    """A text is no JWT, or nobody signed it who is named in it; the message does not hold it."""


def signed_by(kind: KeyKind, text: str) -> Claims:
    """The claims of a JWT that its issuer, of this kind, has signed.

    Raises:
        JwtError: it is none.
    """
    head, body, signature = _parts(text)
    if _document(head).get("alg") != ALGORITHM:
        raise JwtError(f"its algorithm is not {ALGORITHM}")
    claims = _document(body)
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key(kind, str(claims.get("iss"))))
        key.verify(_bytes(signature), f"{head}.{body}".encode())
    except (KeyTextError, InvalidSignature, ValueError) as error:
        raise JwtError("its signature is not of the issuer that it names") from error
    return claims


def unverified(text: str) -> Claims:
    """The claims of a JWT that somebody else has verified.

    Raises:
        JwtError: it is none.
    """
    return _document(_parts(text)[1])


def encoded(claims: Claims, key: SigningKey) -> str:
    """A JWT with these claims, issued by a key; its id is their digest."""
    named = claims | {"iss": key.public}
    digest = hashlib.sha256(_json(named)).digest()
    text = f"{_url({'typ': 'JWT', 'alg': ALGORITHM})}.{_url(named | {'jti': base64.b32encode(digest).decode()[:52]})}"
    return f"{text}.{_base64(key.private.sign(text.encode()))}"


def _parts(text: str) -> tuple[str, str, str]:
    parts = text.split(".")
    if len(parts) != PARTS:
        raise JwtError("it does not have the three parts of a JWT")
    return parts[0], parts[1], parts[2]


def _document(part: str) -> Claims:
    try:
        document = json.loads(_bytes(part))
    except (ValueError, RecursionError) as error:
        raise JwtError("a part of it is not JSON") from error
    if not isinstance(document, dict):
        raise JwtError("a part of it is no object")
    return document


def _bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise JwtError("a part of it is not base64") from error


def _json(document: Claims) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _url(document: Claims) -> str:
    return _base64(_json(document))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
