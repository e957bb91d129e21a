"""Who may report what over the socket, request by request; tenants' checks have a bounded share of it.

A check's share is small, because its report goes to the node's disk, which monitors need as well.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gpuledger.agent.gateway.decide import CHECKS, Peer, Trust, denial, reporter_of
from gpuledger.healthreports.checks import CHECK_EVENTS_MAX, check_report_denial
from gpuledger.healthreports.errors import CheckUnconfirmedError, InvalidReportError, ReportDeniedError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.rates import RateLimits, ReporterRates
from gpuledger.healthreports.translate import places

CHECKED_POD_RATES: Final = RateLimits(reports_per_s_max=1.0, reports_burst_max=128, reporters_max=1_024)
"""What the checks of a pod may report: a few reports at its start, each sent again a few times."""

CHECKS_RATES: Final = RateLimits(reports_per_s_max=16.0, reports_burst_max=1_024, reporters_max=1)
"""What the checks of all pods of the node may report together."""


class Reporters:
    """The peers of open connections, and what each may report; `named` looks a container's name up again."""

    def __init__(
        self,
        trust: Trust,
        peers: Mapping[str, Peer],
        named: Callable[[Peer], Awaitable[Peer]],
        monotonic: Callable[[], float],
    ) -> None:
        self._trust = trust
        self._peers = peers
        self._named = named
        self._monotonic = monotonic
        self._rates = (ReporterRates(CHECKED_POD_RATES), ReporterRates(CHECKS_RATES))

    async def checked(self, address: str, request: HealthEvents) -> Peer:
        """The peer at an address, which may send this request.

        Raises:
            ReportDeniedError: it may not.
            InvalidReportError: the request has more reports than one may have.
            CheckUnconfirmedError: the kubelet does not show yet whether it is a check.
            RateExceededError: checks exceed their share.
        """
        peer = await self.peer(address)
        if self._trust.expects_checks(peer):
            self._refuse_beyond_check(peer, request)
        return peer

    async def peer(self, address: str) -> Peer:
        """The peer at an address, which may report something.

        Raises:
            ReportDeniedError: it may not.
            CheckUnconfirmedError: the kubelet does not show yet whether it is a check.
        """
        peer = self._peers.get(address)
        if peer is None:
            raise ReportDeniedError("This connection has not come over the agent's socket; report there.")
        peer = await self._named(peer)
        if (reason := denial(peer, self._trust)) is not None:
            raise ReportDeniedError(reason)
        if self._trust.expects_checks(peer) and (peer.container is None or peer.container.name is None):
            raise CheckUnconfirmedError(
                f"The kubelet does not show yet which container of {reporter_of(peer)} reports; send it again."
            )
        return peer

    def _refuse_beyond_check(self, peer: Peer, request: HealthEvents) -> None:
        if len(request.events) > CHECK_EVENTS_MAX:
            raise InvalidReportError(
                f"events: there are {len(request.events)}; a preflight check sends {CHECK_EVENTS_MAX} at most."
            )
        now_s, cost = self._monotonic(), len(request.events)
        of_pod, of_all = self._rates
        of_pod.take(reporter_of(peer) or "", cost, now_s)
        of_all.take(CHECKS, cost, now_s)
        container = peer.container.name if peer.container is not None else None
        for place, event in places(request):
            if (reason := check_report_denial(event, place, [container or ""])) is not None:
                raise ReportDeniedError(reason)
