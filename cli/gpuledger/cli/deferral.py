"""Puts off what libraries import only because it is installed: people wait for it at the start of every command.

The NATS client imports aiohttp for WebSockets, which takes a fifth of the time that all imports of `get` take, and
psutil is for servers of our own; both are loaded once somebody uses them. structlog imports rich for tracebacks in
colour, which our logs do not have.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

LAZY: Final = ("aiohttp", "psutil")
UNUSED_BY_STRUCTLOG: Final = ("rich", "better_exceptions")


def defer_imports() -> None:
    """Put these imports off in this process; before anything imports the libraries."""
    for name in LAZY:
        _load_at_first_use(name)
    with _hidden(UNUSED_BY_STRUCTLOG):
        import structlog  # noqa: F401, PLC0415 - now, for what is hidden


class _Deferred(ModuleType):
    """A package that runs once one of its attributes is asked for, as every import from it does.

    `importlib.util.LazyLoader` will not do: its module runs as soon as a second module imports it.
    """

    def __getattr__(self, name: str) -> object:
        spec = self.__spec__
        assert spec is not None, "it was made from one"
        assert spec.loader is not None, "it has a file"
        self.__class__ = ModuleType  # type: ignore[assignment] # from now on it is as every other
        self.__path__ = spec.submodule_search_locations or []
        spec.loader.exec_module(self)
        return getattr(self, name)


def _load_at_first_use(name: str) -> None:
    spec = None if name in sys.modules else find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Deferred
    del package.__path__  # whoever imports a module of the package asks for it
    sys.modules[name] = package


@contextmanager
def _hidden(names: Iterable[str]) -> Iterator[None]:
    """Imports of these modules fail within the block, as if they were not installed."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # what the import system asks for
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
