"""What the agent needs of the Kubernetes API: its own node's annotations, the configuration, and to write its own four.

`gpuledger.configagent.kube_api` has it over HTTP; a simulated fleet has it by other means.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol


class NodeApi(Protocol):
    """The Kubernetes API, as far as one node's agent reaches."""

    def node(self) -> AsyncGenerator[Mapping[str, str]]:
        """The annotations of the own Node, first as they are and then at each change, for as long as it lasts.

        Raises:
            ApiError: the server does not answer, or ended the stream for a reason.
        """
        ...

    async def rendered(self, name: str) -> Any:  # noqa: ANN401 - the object as JSON
        """A RenderedMachineConfig, as JSON.

        Raises:
            RenderedMissingError: there is none.
            ApiError: the server does not answer, or refuses.
        """
        ...

    async def patch(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the own Node; None removes one.

        Raises:
            ApiError: the server does not answer, or refuses.
        """
        ...
