"""The recommended actions that our own agents name, as NVSentinel does. Pure."""

from typing import Final

NO_ACTION: Final = "NONE"
RESET: Final = "COMPONENT_RESET"
CONTACT_SUPPORT: Final = "CONTACT_SUPPORT"
EXTENDED_DIAGNOSTICS: Final = "RUN_DCGMEUD"
RESTART_VIRTUAL_MACHINE: Final = "RESTART_VM"
RESTART_MACHINE: Final = "RESTART_BM"
