"""Reads YAML that has no aliases: with them a few lines would unfold into more than any node's memory holds. Pure.

It is a module of its own because few nodes have such files, and the agent's memory is their workloads'.
"""

from typing import Any

import yaml


class _PlainLoader(yaml.SafeLoader):
    """Plain values alone, and no aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as the library has it
        """Refuse an alias; everything else is the library's."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed; write the value out")
        return super().compose_node(parent, index)


def read_yaml(content: bytes) -> Any:  # noqa: ANN401 - whatever the document contains
    """The one document of a file. Raises ValueError."""
    try:
        return yaml.load(content, Loader=_PlainLoader)  # noqa: S506 - it is a safe one
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"it is not YAML that can be read ({reason:.300})") from error
