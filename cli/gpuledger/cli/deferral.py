"""Leaves out what libraries import only because it is installed: people wait for it at the start of every command.

structlog imports rich for tracebacks in colour, which our logs do not have. The NATS client imports aiohttp for
WebSockets. Packages that are used later are imported where they are used, because a module that loads at its first use
is not whole for a second thread.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from gpuledger.runtime.garbage import imports_unwalked
from gpuledger.runtime.settings import uses_websockets

UNUSED_BY_STRUCTLOG: Final = ("rich", "better_exceptions")
UNUSED_BY_NATS: Final = ("aiohttp",)


def defer_imports() -> None:
    """Have libraries import none of these in this process; before anything else imports those libraries."""
    with imports_unwalked():
        with _hidden(UNUSED_BY_STRUCTLOG):
            import structlog  # noqa: F401, PLC0415 - now, for what is hidden
        with _hidden(() if uses_websockets(os.environ) else UNUSED_BY_NATS):
            import nats  # noqa: F401, PLC0415 - as above


@contextmanager
def _hidden(names: Iterable[str]) -> Iterator[None]:
    """Imports of these modules fail within the block, as if they were not installed, also where one is loaded."""
    loaded: dict[str, ModuleType | None] = {name: sys.modules.get(name) for name in names}
    sys.modules |= dict.fromkeys(loaded)  # type: ignore[arg-type] # None is what the import system asks for
    try:
        yield
    finally:
        for name, module in loaded.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
