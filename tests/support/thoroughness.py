"""How many examples a property takes: a number of times as many as its run's profile says, see tests/conftest.py."""

from typing import Final

from hypothesis import settings

EXAMPLES: Final = 50
"""In every run of `make test`, and by default."""

EXAMPLES_LONG: Final = 200
"""In `make test-long`, which runs tests/properties again."""


def examples(factor: float = 1) -> settings:
    """Settings with `factor` times the examples of the profile, for a property that is cheap or very dear."""
    return settings(max_examples=max(1, round(factor * settings().max_examples)))
