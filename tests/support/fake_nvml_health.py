"""The part of the fake driver (`support.fake_nvml`) that reports the health of cards."""
# ruff: noqa: N802, N803 - the names are NVML's

from typing import Any

import pynvml

from support.fake_nvml_cards import FakeCard


class FakeHealth:
    """Counters and flags of a card, from what `FakeCard` has of them."""

    def fail(self, code: int) -> None:
        """Answer with an error of NVML's."""
        raise NotImplementedError

    def _card(self, handle: Any) -> FakeCard:
        raise NotImplementedError

    def _supported(self, value: Any) -> Any:
        raise NotImplementedError

    def nvmlDeviceGetFieldValues(self, handle: Any, fieldIds: list[Any]) -> Any:
        card, values = self._card(handle), (pynvml.c_nvmlFieldValue_t * len(fieldIds))()
        for value, requested in zip(values, fieldIds, strict=True):
            field, scope = requested if isinstance(requested, tuple) else (requested, 0)
            number = card.fields.get((field, scope))
            value.fieldId, value.scopeId = field, scope
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if number is None else pynvml.NVML_SUCCESS
            value.nvmlReturn = card.field_errors.get((field, scope), value.nvmlReturn)
            value.valueType, value.value.ullVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, number or 0
        return values

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> int:
        return int(self._supported(self._card(handle).ecc.get((errorType, counterType))))

    def nvmlDeviceGetRemappedRows(self, device: Any) -> tuple[int, int, int, int]:
        rows: tuple[int, int, int, int] = self._supported(self._card(device).remapped)
        return rows

    def nvmlDeviceGetSramEccErrorStatus(self, device: Any, status: Any) -> int:
        parity, sec_ded, exceeded = self._supported(self._card(device).sram)
        found = status._obj
        self.fail(
            0 if found.version == pynvml.nvmlEccSramErrorStatus_v1 else pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
        )
        found.volatileUncParity, found.volatileUncSecDed, found.bThresholdExceeded = parity, sec_ded, int(exceeded)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return self._card(handle).reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return self._card(handle).reasons
