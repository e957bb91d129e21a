"""The accounts of a host, whatever stands in its files."""

import pytest

from gpuledger.configagent.owners import ID_MAX, OwnerIds, read_accounts


def test_names_numbers_and_the_first_of_several_lines() -> None:
    accounts = read_accounts("gpu:x:1234:1::/:/bin/false\ngpu:x:1:1::/:/\n", "gpus:x:4321:\n\n# no account\n")
    assert accounts.ids("gpu:gpus") == OwnerIds(1234, 4321)
    assert accounts.ids(f"{ID_MAX}:root") == OwnerIds(ID_MAX, 0)


@pytest.mark.parametrize("number", [str(ID_MAX + 1), "9" * 5000, "\u00b2", "-1", ""])
def test_a_number_that_the_kernel_does_not_take_is_no_account(number: str) -> None:
    accounts = read_accounts(f"gpu:x:{number}:1::/:/", f"gpu:x:{number}:")
    for owner in ("gpu:root", "root:gpu"):
        with pytest.raises(ValueError, match="make it first"):
            accounts.ids(owner)
    if number:
        with pytest.raises(ValueError, match="make it first"):
            accounts.ids(f"{number}:0")
