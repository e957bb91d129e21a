"""Reads what `dcgmi diag` prints: JSON of 2.x to 4.x or a table, with noise around it, whole or cut. Pure.

dcgmi ends with 226 or another code also where its output is whole: what counts is the output.
"""

from gpuledger.domain.preflight import dcgm_json, dcgm_table
from gpuledger.domain.preflight.dcgm_errors import refuse
from gpuledger.domain.preflight.diagnosis import Diagnosis
from gpuledger.domain.preflight.errors import DcgmError
from gpuledger.domain.preflight.text import cleaned, first_line


def parse(text: str) -> Diagnosis:
    """The diagnosis in an output.

    Raises:
        HostengineError: dcgmi cannot reach the host engine.
        EngineBusyError: the host engine runs another diagnosis.
        DcgmError: DCGM could not run the diagnosis, or the output holds none.
    """
    clean = cleaned(text)
    found = dcgm_json.parse(clean) or dcgm_table.parse(clean)
    if found is None:
        refuse(clean)
        raise DcgmError(_nothing(clean))
    return found


def _nothing(text: str) -> str:
    begin = first_line(text)
    return f"dcgmi diag prints no diagnosis but {begin!r}" if begin else "dcgmi diag prints nothing"
