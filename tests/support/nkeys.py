"""Keys and claims as NATS has them in operator mode, for tests; its own tool for them is no part of this project."""

import base64
import binascii
import json
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

USER: Final = 20 << 3
OPERATOR: Final = 14 << 3
ACCOUNT: Final = 0
SEED: Final = 18 << 3

UNLIMITED: Final = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
JETSTREAM: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


class Key:
    """A key pair of a kind."""

    def __init__(self, kind: int) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public = _text(bytes((kind,)) + self._private.public_key().public_bytes_raw())
        self.seed = _text(bytes((SEED | kind >> 5, (kind & 31) << 3)) + self._private.private_bytes_raw())

    def claim(self, subject: str, name: str, nats: dict[str, Any], expires_s: int | None = None) -> str:
        """A JWT about `subject`, signed by this key; `expires_s` is in seconds since 1970."""
        claims = {"jti": "x", "iat": 1, "iss": self.public, "name": name, "sub": subject, "nats": nats | {"version": 2}}
        claims |= {} if expires_s is None else {"exp": expires_s}
        signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
        return f"{signed}.{_url(self._private.sign(signed.encode()))}"


def credentials(jwt: str, seed: str) -> str:
    """The text of a `.creds` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _text(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _part(document: dict[str, Any]) -> str:
    return _url(json.dumps(document).encode())


def _url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
