"""A gang as the files of its ConfigMap describe it, and a pod's place in it. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.api.preflight import MASTER_PORT, GangKey
from gpuledger.events.preflight import PEERS_MAX

PORT_MAX: Final = 65_535


class GangMember(NamedTuple):
    """A pod of a gang by name and address."""

    pod: str
    ip: str


class CompleteGang(NamedTuple):
    """A gang whose pods are all there, in the order of their ranks, but for those that have `passed` before."""

    id: str
    members: tuple[GangMember, ...]
    master_address: str
    master_port: int
    passed: int = 0

    def rank_of(self, pod: str) -> int:
        """The place of a pod; it is there, because the gang is complete for it."""
        return [member.pod for member in self.members].index(pod)


class GangView(NamedTuple):
    """What the files say at a moment: the gang if it is complete, else why it is not."""

    gang: CompleteGang | None
    missing: str = ""
    expected: int | None = None
    id: str = ""


def gang_view(files: Mapping[str, str], pod: str, ip: str) -> GangView:
    """The gang of a pod with an address; an empty address is not compared.

    A gang is complete once it has as many pods as expected, with this very pod among them: an entry with another
    address is that of a pod of this name before.
    """
    gang_id, expected = files.get(GangKey.GANG_ID, "").strip(), _number(files.get(GangKey.EXPECTED_COUNT, ""))
    members = _members(files.get(GangKey.PEERS, ""))
    problem = _problem(files, members, expected, GangMember(pod, ip))
    if problem:
        return GangView(None, problem, expected, gang_id)
    port = _number(files.get(GangKey.MASTER_PORT, "")) or MASTER_PORT
    passed = _number(files.get(GangKey.PASSED_COUNT, "")) or 0
    gang = CompleteGang(gang_id, members, files[GangKey.MASTER_ADDRESS].strip(), port, passed)
    return GangView(gang, "", expected, gang_id)


def _problem(
    files: Mapping[str, str], members: tuple[GangMember, ...], expected: int | None, own: GangMember
) -> str | None:
    """The first reason why the gang is not complete."""
    if not files:
        return "its ConfigMap is not there yet"
    if expected is None:
        return f"nobody knows yet how many pods it has ({GangKey.EXPECTED_COUNT})"
    if len(members) != expected:
        return f"it has {len(members)} of {expected} pods"
    if not any(one.pod == own.pod and own.ip in ("", one.ip) for one in members):
        return f"{own.pod} is not among its pods with its address"
    return _master_problem(files, members)


def _master_problem(files: Mapping[str, str], members: tuple[GangMember, ...]) -> str | None:
    if files.get(GangKey.MASTER_ADDRESS, "").strip() != members[0].ip:
        return f"its first pod, {members[0].pod}, is not its master yet"
    port = files.get(GangKey.MASTER_PORT, "").strip()
    if port and not 0 < (_number(port) or 0) <= PORT_MAX:
        return f"its {GangKey.MASTER_PORT} is {port[:20]!r}, which is no port"
    return None


def _members(text: str) -> tuple[GangMember, ...]:
    """The pods in the order of their names, each once; lines that name none are left out."""
    lines = (line.strip().partition(":") for line in text.splitlines())
    found = {pod: ip for pod, _, ip in lines if pod and ip}
    return tuple(GangMember(pod, found[pod]) for pod in sorted(found)[: PEERS_MAX + 1])


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(PEERS_MAX)) + 2 else None
