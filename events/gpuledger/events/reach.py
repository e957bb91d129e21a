"""Which nodes can use a slice, device or claim: parts of payloads that these share."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Name, Payload

REQUIREMENTS_MAX = 128
TERMS_MAX = 32


class NodeRequirement(Payload):
    """One expression of a node selector; `is_field` if it concerns the node's name and not a label."""

    key: Name
    operator: Name
    values: Annotated[tuple[str, ...], Field(max_length=REQUIREMENTS_MAX)] = ()
    is_field: bool = False


class NodeReach(Payload):
    """One node, all nodes, or the nodes that any of the terms selects; an empty reach is no node."""

    node: Name | None = None
    all_nodes: bool = False
    terms: Annotated[
        tuple[Annotated[tuple[NodeRequirement, ...], Field(max_length=REQUIREMENTS_MAX)], ...],
        Field(max_length=TERMS_MAX),
    ] = ()
