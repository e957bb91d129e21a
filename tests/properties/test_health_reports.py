"""Whatever a monitor sends is refused with a sentence, or becomes an event that every reader decodes."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.errors import InvalidReportError
from gpuledger.agent.gateway.healthevents_pb2 import HealthEvents
from gpuledger.agent.gateway.translate import ReportContext, translate
from gpuledger.events.envelope import Event, decode, encode
from gpuledger.events.publishing import EVENT_AHEAD_MAX

NOW = datetime(2026, 3, 6, tzinfo=UTC)
TEXTS = st.text(max_size=8) | st.sampled_from(["", "\0", "x" * 254, "x" * 5_000])
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2, 3, 27])
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("agent", "checkName", "componentClass", "message", "id", "customRecommendedAction"), TEXTS),
        "errorCode": st.lists(TEXTS, max_size=3),
        "entitiesImpacted": st.lists(
            st.builds(lambda kind, value: {"entityType": kind, "entityValue": value}, TEXTS, TEXTS), max_size=3
        ),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "recommendedAction": NUMBERS,
        "processingStrategy": NUMBERS,
        "generatedTimestamp": st.fixed_dictionaries(
            {
                "seconds": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**31),
                "nanos": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 999_999_999),
            }
        ),
        "quarantineOverrides": st.fixed_dictionaries({"force": st.booleans(), "skip": st.booleans()}),
    },
)


@given(EVENTS, st.booleans())
def test_what_is_taken_decodes(event: dict[str, Any], has_names: bool) -> None:
    names = {"agent": "monitor", "checkName": "check"} if has_names else {}
    request = HealthEvents(events=[event | names])
    try:
        ((data, at),) = translate(request, ReportContext("w1", (), None), NOW)
    except InvalidReportError:
        return
    recorded = decode(encode(Event("id", "/nodes/w1/agent", data.TYPE, "w1", NOW, data, "e", 1)))
    assert recorded.data == data
    assert data.first_at is not None
    assert data.first_at <= NOW
    assert at is None or at <= NOW + EVENT_AHEAD_MAX
