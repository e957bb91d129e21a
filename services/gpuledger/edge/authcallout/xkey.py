"""Opens questions that a NATS server has encrypted for us, and seals answers for it: a NaCl box under NATS' envelope.

TLS protects the wire; this also keeps tokens from whoever else may listen in the callout's account. A key
must never leave this module but as its seed.
"""

from typing import Final

from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey

from gpuledger.ledger.nkeys import KeyKind, KeyTextError, public_key, public_text, seed_text

HEADER: Final = "Nats-Server-Xkey"
"""The header in which a server that encrypts names its own key."""

VERSION: Final = b"xkv1"
"""What a box begins with; then come the nonce and what is sealed."""


class XkeyError(ValueError):
    """What came cannot be opened; the message does not hold it."""


class CurveBox:
    """An xkey, which seals for and opens from whoever has another one."""

    def __init__(self, private: bytes) -> None:
        self._private = PrivateKey(private)

    @property
    def public(self) -> str:
        """The key as a server's configuration names it; it begins with X."""
        return public_text(KeyKind.CURVE, bytes(self._private.public_key))

    @property
    def seed(self) -> str:
        """The text of the private key, which is a secret; it begins with SX."""
        return seed_text(KeyKind.CURVE, bytes(self._private))

    def opened(self, data: bytes, sender: str) -> bytes:
        """What `sender` has sealed for us.

        Raises:
            XkeyError: it has not.
        """
        if not data.startswith(VERSION):
            raise XkeyError("it is no box of the version that we know")
        try:
            return bytes(self._box(sender).decrypt(data[len(VERSION) :]))
        except (CryptoError, KeyTextError, ValueError) as error:
            raise XkeyError("it is sealed for another xkey than ours") from error

    def sealed(self, data: bytes, recipient: str) -> bytes:
        """The same for `recipient` alone."""
        return VERSION + bytes(self._box(recipient).encrypt(data))

    def _box(self, other: str) -> Box:
        return Box(self._private, PublicKey(public_key(KeyKind.CURVE, other)))
