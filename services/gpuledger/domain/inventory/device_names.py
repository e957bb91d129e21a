"""Names GPUDevices and identifies cards. A name is computed once, when the device is detected, and then recorded."""

import re
from collections.abc import Callable, Set
from hashlib import sha256

from gpuledger.events.payload import NAME_LENGTH_MAX

NAME_MAX = 63
"""The longest label value in Kubernetes, so that a label can name a device."""

HASH_LENGTH = 8
_ODD = re.compile(r"[^a-z0-9.-]")


def device_name(node: str, *, address: str | None = None, index: int = 0, vendor: str = "", device: str = "") -> str:
    """The name of a device: from its PCI address where that is known, else from how Node Feature Discovery shows it.

    `worker-01` and `0000:17:00.0` give `worker-01-0000-17-00-0`; `w1`, index 0, `10de` and `2203` give
    `w1-0-10de-2203`. A name that would be longer than `NAME_MAX` is cut and ends in a hash of the whole.
    """
    place = re.sub(r"[:.]", "-", address) if address else f"{index}-{vendor}-{device}"
    return _cut(f"{node}-{place}", NAME_MAX)


def free_name(name: str, card: str, is_taken: Callable[[str], bool]) -> str:
    """The name itself, or where it is taken one that ends in a hash of the card's id."""
    digest = sha256(card.encode()).hexdigest()
    length = 0
    candidate = name
    while is_taken(candidate) and length < len(digest):
        length += HASH_LENGTH
        candidate = f"{name[: max(NAME_MAX - 1 - length, 0)].rstrip('-.')}-{digest[:length]}"[-NAME_MAX:].lstrip("-.")
    return candidate


def inventory_id(name: str, node: str, address: str, taken: Set[str]) -> str:
    """The id of a device in its node: `worker-01-0000:17:00.0`.

    Where the card that was in this place has moved to another and kept the id, the new one's ends in a hash.
    """
    place = f"{node}-{address}"
    return f"{place}-{sha256(name.encode()).hexdigest()[:HASH_LENGTH]}" if place in taken else place


def place_of(node: str, place: str) -> str:
    """An id of a place in a node, such as a slot: `worker-01/0000:17:00.0`."""
    text = f"{node}/{place}"
    return text if text.isascii() and len(text) <= NAME_LENGTH_MAX else _cut(text, NAME_LENGTH_MAX)


def provisional_card(node: str, vendor: str, device: str, rank: int) -> str:
    """The id of the node's `rank`-th card (from 1) of a vendor and model, as long as the card is not identified."""
    return place_of(node, f"{vendor}:{device}#{rank}")


def _cut(text: str, length_max: int) -> str:
    plain = _ODD.sub("-", text.lower()).strip("-.")
    if len(plain) <= length_max and text.isascii():
        return plain
    digest = sha256(text.encode()).hexdigest()[:HASH_LENGTH]
    return f"{plain[: length_max - 1 - HASH_LENGTH].rstrip('-.')}-{digest}".lstrip("-.")
