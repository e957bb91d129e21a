"""The request of a call, which is read only once it is clear who calls."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from gpuledger.healthreports.errors import InvalidReportError, NotDurableError

T = TypeVar("T")


async def only_request(requests: AsyncIterator[T], timeout_s: float) -> T:
    """The request of a call, which has one.

    Raises:
        NotDurableError: it does not come in time.
        InvalidReportError: there is none.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(requests)
    except TimeoutError as error:
        raise NotDurableError(f"The request did not arrive within {timeout_s:g} s; send it again.") from error
    except StopAsyncIteration as error:
        raise InvalidReportError("The call has no request. Send one.") from error
