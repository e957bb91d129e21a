"""Logs a connection in to NATS with a credentials file, a client certificate, or neither.

Files that changed are read again at the next connect, so that renewed ones take effect. A key must never leave this
module; only its signatures go to the server.
"""

import base64
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from nats.errors import Error as NatsError

from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_text, seed_key
from gpuledger.ledger.server_config import TOKEN_CHARS_MAX
from gpuledger.runtime.settings import NATS_URL, NatsIdentity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_JWT_LABEL: Final = "NATS USER JWT"
_SEED_LABEL: Final = "USER NKEY SEED"

_WORDS: Final = (frozenset({"user", "password"}), frozenset({"token"}))
"""What the lines of a credentials file without a seed may name, as `user: NAME`."""


class Login(NamedTuple):
    """An identity in the client library's terms. `requires_tls`: never log in to a server without TLS."""

    tls: ssl.SSLContext | None = None
    requires_tls: bool = False
    sign: Callable[[str], bytes] | None = None
    jwt: Callable[[], bytes] | None = None
    nkey: str | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None


class Logins:
    """The login of an identity, made anew once one of its files has changed."""

    def __init__(self, identity: NatsIdentity, servers: Sequence[str]) -> None:
        self.identity = identity
        self.servers = servers
        self._files: tuple[object, ...] | None = None
        self._login = Login()

    def current(self) -> Login:
        """The login as the files are now.

        Raises:
            NatsError: a file cannot be read or used.
        """
        files = _state_of(self.identity)
        if files != self._files:
            self._login = login_of(self.identity, self.servers)
            self._files = files
        return self._login

    @property
    def is_stale(self) -> bool:
        """Whether a file has changed since the last login was made, other than a token, which serves only to log in."""
        return self._files is None or _state_of(self.identity)[:-1] != self._files[:-1]


class _Credentials(NamedTuple):
    """What a credentials file holds: a seed with or without a JWT, or the words of its lines."""

    seed: bytes | None
    jwt: str | None
    words: Mapping[str, str]


def login_of(identity: NatsIdentity, servers: Sequence[str]) -> Login:
    """The login for the client library.

    Raises:
        NatsError: a file cannot be read or used.
    """
    tls = _tls(identity, servers)
    # A WebSocket's TLS may end at a proxy, and the server then does not know about it.
    login = Login(tls, requires_tls=tls is not None and _schemes(servers).isdisjoint({"ws", "wss"}))
    if identity.token is not None:
        return login._replace(token=_token(identity.token))
    file = identity.credentials
    if file is None:
        return login
    found = _read(file)
    if found.seed is None:
        words = found.words
        return login._replace(user=words.get("user"), password=words.get("password"), token=words.get("token"))
    if found.jwt is None:
        return login._replace(sign=partial(_sign, file), nkey=_public(found.seed))
    return login._replace(sign=partial(_sign, file), jwt=partial(_jwt, file))


def login_text(identity: NatsIdentity, url: str) -> str:
    """As whom an identity logs in and by which file, for people; it holds no secret."""
    if identity.token is not None:
        return f"whoever the token in {identity.token} is of"
    if identity.credentials is None:
        user, at, _ = urlsplit(url.split(",", maxsplit=1)[0]).netloc.rpartition("@")
        named = f"{user.partition(':')[0]} by {NATS_URL}" if at else "nobody"
        return named if identity.certificate is None else f"the name in {identity.certificate}"
    try:
        found = _read(identity.credentials)
        key = None if found.seed is None else _public(found.seed)
    except NatsError as error:
        return f"nobody, because {error}"
    return f"{key or found.words.get('user', 'whoever its token is of')} by {identity.credentials}"


def jwt_validity(file: Path) -> tuple[datetime, datetime] | None:
    """From when to when the JWT of a credentials file is valid; None without a JWT, and for one without end.

    Raises:
        NatsError: the file cannot be read, or its JWT is none.
    """
    jwt = _read(file).jwt
    if jwt is None:
        return None
    try:
        _, claims, _ = jwt.split(".")
        document = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        issued, expires = (datetime.fromtimestamp(int(document.get(key) or 0), UTC) for key in ("iat", "exp"))
    except (ValueError, AttributeError, OverflowError, OSError) as error:
        raise NatsError(f"the JWT in the credentials file {file} cannot be read; write it anew") from error
    return (issued, expires) if document.get("exp") else None


def _state_of(identity: NatsIdentity) -> tuple[object, ...]:
    return tuple(None if file is None else _file_state(file) for file in identity)


def _file_state(file: Path) -> tuple[int, ...]:
    """What differs once a file was written or replaced; empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _schemes(servers: Sequence[str]) -> set[str]:
    return {urlsplit(server).scheme for server in servers}


def _tls(identity: NatsIdentity, servers: Sequence[str]) -> ssl.SSLContext | None:
    files = (identity.ca, identity.certificate, identity.key)
    if not any(files) and _schemes(servers).isdisjoint({"tls", "wss"}):
        return None
    try:
        context = ssl.create_default_context(cafile=identity.ca)
        if identity.certificate is not None:
            context.load_cert_chain(identity.certificate, identity.key)
    except (OSError, ValueError) as error:
        named = ", ".join(str(file) for file in files if file is not None)
        raise NatsError(f"the certificates {named} cannot be used: {error}") from error
    return context


def _sign(file: Path, nonce: str) -> bytes:
    """The server's nonce, signed; base64."""
    seed = _read(file).seed
    if seed is None:
        raise NatsError(f"the credentials file {file} has no seed any more; write it anew")
    return base64.b64encode(_key(seed).sign(nonce.encode()))


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
        return _Credentials(None, None, _words(lines, file))
    return _Credentials(_decoded(seed, file), _below(lines, _JWT_LABEL), {})


def _words(lines: Sequence[str], file: Path) -> Mapping[str, str]:
    words = {word.strip(): value.strip() for word, _, value in (line.partition(":") for line in lines)}
    if words.keys() not in _WORDS or not all(words.values()):
        raise NatsError(
            f"the credentials file {file} has no user's seed (it begins with SU), nor the lines `user:` and "
            "`password:`, nor the line `token:`; write it anew"
        )
    return words


def _token(file: Path) -> str:
    """The token of a file that holds nothing else, such as the one that a kubelet renews."""
    try:
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise NatsError(f"the token file {file} cannot be read: {error}") from error
    if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise NatsError(
            f"the token file {file} has no token of a service account; project one there (a volume of the pod, "
            "`serviceAccountToken`)"
        )
    return token


def _below(lines: Sequence[str], label: str) -> str | None:
    """The line below the one that begins what has this label."""
    return next((value for head, value in pairwise(lines) if f"BEGIN {label}" in head), None)


def _decoded(seed: str, file: Path) -> bytes:
    """The 32 bytes behind a user's seed."""
    try:
        return seed_key(KeyKind.USER, seed)
    except KeyTextError as error:
        raise NatsError(f"the seed in the credentials file {file} is damaged, or no user's; write it anew") from error


def _public(seed: bytes) -> str:
    """The user's public key as text, which begins with U."""
    return public_text(KeyKind.USER, _key(seed).public_key().public_bytes_raw())


def _key(seed: bytes) -> "Ed25519PrivateKey":
    # It takes 7 MiB, which an agent without a credentials file saves.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey.from_private_bytes(seed)
