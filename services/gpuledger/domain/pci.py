"""Addresses on the PCI bus, as drivers, tools and monitors write them. Pure."""

import re

_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])").fullmatch


def pci_address(text: str) -> str | None:
    """A PCI address in Linux's form: `00000000:17:00.0` is `0000:17:00.0`, in lower case. None: the text is none."""
    match = _ADDRESS(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()
