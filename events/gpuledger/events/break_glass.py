"""Uses of the break-glass group: what its members changed that the cluster's policy keeps from everybody else."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service

CHANGED_MAX: Final = 64

BY_ADMISSION: Final = by_service(SourceKind.ADMISSION)


class BreakGlassUse(Payload):
    """A member of the group wrote an object of the product past its policy; the API server was about to store it.

    `changed` names the fields at the first two levels that an update changes (`status.state`), as many as there is room
    for; a creation and a deletion name none.
    """

    user: Text
    operation: Literal["CREATE", "UPDATE", "DELETE"]
    subresource: Name | None = None
    changed: Annotated[tuple[Name, ...], Field(max_length=CHANGED_MAX)] = ()
