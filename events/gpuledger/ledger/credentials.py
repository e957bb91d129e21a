"""Logs a connection in to NATS with a credentials file, a client certificate, or neither.

Files are read again at every connect, so that renewed ones take effect. A key must never leave this module; only its
signatures go to the server.
"""

import base64
import binascii
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from nats.errors import Error as NatsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED: Final = 18 << 3
_USER: Final = 20 << 3
"""The first bytes of seeds and of users' public keys, which make their texts begin with S and U."""

_JWT_LABEL: Final = "NATS USER JWT"
_SEED_LABEL: Final = "USER NKEY SEED"


class NatsIdentity(NamedTuple):
    """The files with our identity and the authorities that we trust.

    `credentials` is a `.creds` file with a user's JWT and seed, or one with a seed alone (an NKEY). `ca` has the
    authorities of trusted servers, and without it the system's count; `certificate` and `key` go together.
    """

    credentials: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


ANONYMOUS: Final = NatsIdentity()


class Login(NamedTuple):
    """An identity in the client library's terms. `requires_tls`: never log in to a server without TLS."""

    tls: ssl.SSLContext | None = None
    requires_tls: bool = False
    sign: Callable[[str], bytes] | None = None
    jwt: Callable[[], bytes] | None = None
    nkey: str | None = None


class _Credentials(NamedTuple):
    seed: bytes
    jwt: str | None


def login_of(identity: NatsIdentity, servers: Sequence[str]) -> Login:
    """The login for the client library.

    Raises:
        NatsError: a file cannot be read or used.
    """
    tls = _tls(identity, servers)
    # A WebSocket's TLS may end at a proxy, and the server then does not know about it.
    login = Login(tls, requires_tls=tls is not None and _schemes(servers).isdisjoint({"ws", "wss"}))
    file = identity.credentials
    if file is None:
        return login
    found = _read(file)
    if found.jwt is None:
        return login._replace(sign=partial(_sign, file), nkey=_public(found.seed))
    return login._replace(sign=partial(_sign, file), jwt=partial(_jwt, file))


def _schemes(servers: Sequence[str]) -> set[str]:
    return {urlsplit(server).scheme for server in servers}


def _tls(identity: NatsIdentity, servers: Sequence[str]) -> ssl.SSLContext | None:
    if not any(identity[1:]) and _schemes(servers).isdisjoint({"tls", "wss"}):
        return None
    try:
        context = ssl.create_default_context(cafile=identity.ca)
        if identity.certificate is not None:
            context.load_cert_chain(identity.certificate, identity.key)
    except (OSError, ValueError) as error:
        named = ", ".join(str(file) for file in identity[1:] if file is not None)
        raise NatsError(f"the certificates {named} cannot be used: {error}") from error
    return context


def _sign(file: Path, nonce: str) -> bytes:
    """The server's nonce, signed; base64."""
    return base64.b64encode(_key(_read(file).seed).sign(nonce.encode()))


def _jwt(file: Path) -> bytes:
    jwt = _read(file).jwt
    if jwt is None:
        raise NatsError(f"the credentials file {file} has no JWT any more; write it anew")
    return jwt.encode()


def _read(file: Path) -> _Credentials:
    try:
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise NatsError(f"the credentials file {file} cannot be read: {error}") from error
    seed = _below(lines, _SEED_LABEL) or next((line for line in lines if line.startswith("SU")), None)
    if seed is None:
        raise NatsError(f"the credentials file {file} has no user's seed (it begins with SU); write it anew")
    return _Credentials(_decoded(seed, file), _below(lines, _JWT_LABEL))


def _below(lines: Sequence[str], label: str) -> str | None:
    """The line below the one that begins what has this label."""
    return next((value for head, value in pairwise(lines) if f"BEGIN {label}" in head), None)


def _decoded(seed: str, file: Path) -> bytes:
    """The 32 bytes behind a user's seed."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        raw = b""
    head = bytes((_SEED | _USER >> 5, (_USER & 31) << 3))
    if len(raw) != 36 or raw[:2] != head or _checksum(raw[:-2]) != raw[-2:]:
        raise NatsError(f"the seed in the credentials file {file} is damaged, or no user's; write it anew")
    return raw[2:-2]


def _public(seed: bytes) -> str:
    """The user's public key as text, which begins with U."""
    raw = bytes((_USER,)) + _key(seed).public_key().public_bytes_raw()
    return base64.b32encode(raw + _checksum(raw)).decode().rstrip("=")


def _checksum(raw: bytes) -> bytes:
    return binascii.crc_hqx(raw, 0).to_bytes(2, "little")


def _key(seed: bytes) -> "Ed25519PrivateKey":
    # It takes 7 MiB, which an agent without a credentials file saves.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(seed)
