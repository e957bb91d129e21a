"""Reads where a process runs from the environment."""

from collections.abc import Mapping
from typing import Final

NODE_NAME: Final = "NODE_NAME"
"""The node of the pod that a process runs in, from its `spec.nodeName` by the downward API."""


def read_node(environ: Mapping[str, str]) -> str | None:
    """The node that this process runs on; None where it runs in no pod, or the pod does not say."""
    return environ.get(NODE_NAME) or None
