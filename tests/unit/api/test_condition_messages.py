"""Every reason of a condition has a sentence for people."""

import pytest

from gpuledger.api.condition_messages import MESSAGES, message_of
from gpuledger.api.reasons import AssignmentReason, InventoryReason, ModuleReason, PoolReason, PreparationReason


@pytest.mark.parametrize("reasons", [InventoryReason, PreparationReason, AssignmentReason, PoolReason, ModuleReason])
def test_every_reason_has_a_sentence(
    reasons: type[InventoryReason | PreparationReason | AssignmentReason | PoolReason | ModuleReason],
) -> None:
    assert [one for one in reasons if one not in MESSAGES] == []


def test_a_sentence_ends_as_one() -> None:
    assert [text for text in MESSAGES.values() if not text.endswith(".")] == []


def test_what_was_decided_says_more_than_its_reason() -> None:
    assert message_of("Observed", "At 0000:17:00.0.") == "At 0000:17:00.0."
    assert message_of("Observed", "") == "The card is found on its node."
    assert message_of("TheirOwn", "") == "The reason is TheirOwn; nothing more is recorded."
