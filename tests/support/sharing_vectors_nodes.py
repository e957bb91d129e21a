"""Checks of shared devices that take the state of a node: which devices a request gets, scores, and the accounting."""

from collections.abc import Mapping
from typing import Final

from support.sharing_vectors import Check

OF_NODES: Final[Mapping[tuple[str, str], Check]] = {}
"""The checks, by kind and operation of a line."""
