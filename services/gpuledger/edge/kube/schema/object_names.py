"""Which names Kubernetes accepts (RFC 1123 and 1035, qualified names and label values)."""

import re

NAME_MAX = 253
LABEL_MAX = 63

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


def dns_subdomain_problem(name: str) -> str | None:
    """What keeps a name from being an RFC 1123 subdomain; None where nothing does."""
    if len(name) > NAME_MAX:
        return f"must be no more than {NAME_MAX} bytes"
    if not _DNS_SUBDOMAIN.fullmatch(name):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return None


def dns_label_problem(name: str) -> str | None:
    """What keeps a name from being an RFC 1123 label; None where nothing does."""
    if len(name) > LABEL_MAX:
        return f"must be no more than {LABEL_MAX} bytes"
    if not _DNS_LABEL.fullmatch(name):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
    return None


def qualified_name_problem(name: str) -> str | None:
    """What keeps a name from being `[prefix/]name`, as keys of labels and annotations are; None where nothing does."""
    prefix, slash, last = name.rpartition("/")
    if slash and (not prefix or "/" in prefix or dns_subdomain_problem(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain"
    if not last or len(last) > LABEL_MAX or not _QUALIFIED.fullmatch(last):
        return (
            f"name part must be no more than {LABEL_MAX} characters of alphanumerics, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return None


def label_value_problem(value: str) -> str | None:
    """What keeps a string from being a label's value; None where nothing does."""
    if len(value) > LABEL_MAX:
        return f"must be no more than {LABEL_MAX} bytes"
    if value and not _QUALIFIED.fullmatch(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return None
