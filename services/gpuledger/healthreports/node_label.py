"""A label in what watchers have recorded of a node. Pure.

An event of anybody else, or about another node, counts as none.
"""

from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeLabelled
from gpuledger.events.publishing import source_kind


def label_in(raw: bytes, node: str, label: str) -> str:
    """The value of a label in the newest event about a node's labels; empty where it has no such label.

    Raises:
        EventError: the event cannot be decoded.
    """
    event = decode(raw)
    data = event.data
    is_theirs = isinstance(data, NodeLabelled) and source_kind(event.source) in data.PUBLISH_RULE.publishers
    return data.labels.get(label, "") if isinstance(data, NodeLabelled) and is_theirs and event.subject == node else ""
