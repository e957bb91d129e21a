"""Signs a bundle with an Ed25519 key, and checks signatures; keys are PEM files, as OpenSSL writes them."""

from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from gpuledger.tools.errors import RequestError

KEY_BYTES_MAX: Final = 16 * 1024
_CONTEXT: Final = b"gpuledger-incident-bundle/1\n"
_PRIVATE = "Make one with `openssl genpkey -algorithm ed25519 -out FILE`"
_PUBLIC = "Take it out of the key with `openssl pkey -in KEY -pubout -out FILE`"


def private_key(path: Path) -> Ed25519PrivateKey:
    """The key in a file.

    Raises:
        RequestError: it cannot be read, or is none.
    """
    data = _read(path)
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RequestError(f"{path} has no private key in PEM without a password", _PRIVATE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise RequestError(f"The key in {path} is not of Ed25519", _PRIVATE)
    return key


def public_key(path: Path) -> str:
    """The public key in a file, in hexadecimal.

    Raises:
        RequestError: it cannot be read, or is none.
    """
    data = _read(path)
    try:
        key = load_pem_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RequestError(f"{path} has no public key in PEM", _PUBLIC) from error
    if not isinstance(key, Ed25519PublicKey):
        raise RequestError(f"The key in {path} is not of Ed25519", _PUBLIC)
    return key.public_bytes_raw().hex()


def signature(key: Ed25519PrivateKey, digest: str) -> tuple[str, str]:
    """The public key and the signature over a bundle's digest, both in hexadecimal."""
    return key.public_key().public_bytes_raw().hex(), key.sign(_CONTEXT + bytes.fromhex(digest)).hex()


def is_signed(digest: str, key: str, signed: str) -> bool:
    """Whether the signature over a digest is one of this key."""
    try:
        verifier = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        verifier.verify(bytes.fromhex(signed), _CONTEXT + bytes.fromhex(digest))
    except (InvalidSignature, ValueError):
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(KEY_BYTES_MAX + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}", "Name a file with a key") from error
    if len(data) > KEY_BYTES_MAX:
        raise RequestError(f"{path} is larger than a key", "Name a file with a key")
    return data
