"""The configuration of preflight checks that ships with the product, which a simulated fleet begins with."""

from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

LOCAL_FILE: Final = "preflight.yaml"
"""The configuration of an embedded API server's webhook, in its data directory."""


def place_example(data_dir: Path) -> None:
    """Have the example in a data directory that has no configuration yet; a changed or emptied one stays."""
    with suppress(FileExistsError), (data_dir / LOCAL_FILE).open("xb") as file:
        file.write(example())


def example() -> bytes:
    """The example."""
    return (files("gpuledger.schemas") / "preflight" / LOCAL_FILE).read_bytes()
