"""How pods leave a node, or a device of it."""

from typing import Final, Literal, get_args

DrainMode = Literal["Immediate", "DeleteAfterTimeout", "AllowCompletion"]
"""When pods are evicted: at once; once the time-out has passed; or never, they end by themselves.

Those that a disruption budget still blocks after as long again are deleted in the second mode, and in no other."""

MODES: Final[tuple[DrainMode, ...]] = get_args(DrainMode)
