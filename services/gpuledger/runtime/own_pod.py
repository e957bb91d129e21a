"""What a process in a pod can read of its own pod."""

from collections.abc import Iterator
from pathlib import Path

NAMESPACE = "namespace"
"""The file beside the token of a service account with the namespace of its pod."""


def own_namespaces(token: Path) -> Iterator[str]:
    """The namespace of the pod whose service account has a token there; none outside of pods."""
    file = token.with_name(NAMESPACE)
    if token.is_file() and file.is_file():
        yield file.read_text().strip()
