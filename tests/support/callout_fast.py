"""The auth callout service as a process whose logins last two seconds, for tests that wait for their end."""

from gpuledger.cli.main import main
from gpuledger.edge.authcallout import decide

LIFE_S = 2

if __name__ == "__main__":
    decide.LOGIN_LIFE_MAX_S = LIFE_S  # type: ignore[misc]
    decide.LOGIN_LIFE_MIN_S = 0  # type: ignore[misc]
    decide.SPREAD_S = 1  # type: ignore[misc]
    main()
