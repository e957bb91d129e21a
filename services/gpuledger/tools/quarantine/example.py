"""The example of rules that ships with the product, which a simulated fleet begins with."""

from importlib.resources import files
from typing import Final

from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.tools.quarantine.document import parse

FILE: Final = "examples/quarantine-rules.yaml"
"""What the example is called in the repository, where it is a link to the file that ships."""


def example_rules() -> QuarantineRulesApplied:
    """The rules of the example."""
    return parse((files("gpuledger.schemas") / "rules" / "quarantine-rules.yaml").read_bytes(), FILE)
