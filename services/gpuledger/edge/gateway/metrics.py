"""What the gateway counts. It decides nothing."""

from typing import Final

from prometheus_client import Counter, Gauge

from gpuledger.healthreports.protocol import REFUSALS, results

REPORTS: Final = Counter(
    "gpuledger_gateway_reports_total", "Reports of health monitors over TCP, by what became of them.", ["result"]
)
REVIEWS: Final = Counter(
    "gpuledger_gateway_token_reviews_total", "Tokens of health monitors, by how they were reviewed.", ["outcome"]
)
WAITING: Final = Gauge("gpuledger_gateway_events_waiting", "Events that wait until the ledger has them.")
LOST: Final = Counter("gpuledger_gateway_events_lost_total", "Events that the ledger will never have.")

for _result in results(REFUSALS):
    REPORTS.labels(_result)
for _outcome in ("accepted", "refused", "cached", "failed"):
    REVIEWS.labels(_outcome)
