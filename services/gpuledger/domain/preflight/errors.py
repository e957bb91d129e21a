"""The errors of parsers of other tools' output. Pure.

ToolOutputError             an output is not what its parser is for
├── NvidiaSmiError          nvidia-smi reports an error in place of cards
│   ├── CardLostError       the driver cannot reach a card that it knows
│   └── NoCardError         nvidia-smi sees no card
└── DcgmError               dcgmi reports an error in place of a result, or its output holds none
    ├── HostengineError     dcgmi cannot reach the host engine
    └── EngineBusyError     the host engine runs another diagnosis, and only one at a time
"""


class ToolOutputError(Exception):
    """An output is not what its parser is for."""


class NvidiaSmiError(ToolOutputError):
    """nvidia-smi reports an error in place of cards."""


class CardLostError(NvidiaSmiError):
    """The driver cannot reach a card that it knows."""


class NoCardError(NvidiaSmiError):
    """nvidia-smi sees no card."""


class DcgmError(ToolOutputError):
    """dcgmi reports an error in place of a result, or its output holds none."""


class HostengineError(DcgmError):
    """dcgmi cannot reach the host engine."""


class EngineBusyError(DcgmError):
    """The host engine runs another diagnosis, and only one at a time."""
