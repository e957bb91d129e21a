"""Which nodes can use something: parts of payloads that slices and their devices share."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Name, Payload

REQUIREMENTS_MAX = 128
TERMS_MAX = 32


class NodeRequirement(Payload):
    """One expression of a node selector; `is_field` where it is about the node's name and not about a label."""

    key: Name
    operator: Name
    values: Annotated[tuple[str, ...], Field(max_length=REQUIREMENTS_MAX)] = ()
    is_field: bool = False


class NodeReach(Payload):
    """One node, all nodes, or those that one of the terms selects; nothing at all is no node."""

    node: Name | None = None
    all_nodes: bool = False
    terms: Annotated[
        tuple[Annotated[tuple[NodeRequirement, ...], Field(max_length=REQUIREMENTS_MAX)], ...],
        Field(max_length=TERMS_MAX),
    ] = ()
