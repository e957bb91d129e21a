"""Checks names: RFC 1123 labels and subdomains, qualified names and label values."""

import re

NAME_MAX = 253
LABEL_MAX = 63

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
QUALIFIED_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
"""A pattern of label values, and of the last part of label and annotation keys."""

_QUALIFIED = re.compile(QUALIFIED_NAME)


def dns_subdomain_problem(name: str) -> str | None:
    """Why a name is no RFC 1123 subdomain; None if it is one."""
    if len(name) > NAME_MAX:
        return f"must be no more than {NAME_MAX} bytes"
    if not _DNS_SUBDOMAIN.fullmatch(name):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return None


def dns_label_problem(name: str) -> str | None:
    """Why a name is no RFC 1123 label; None if it is one."""
    if len(name) > LABEL_MAX:
        return f"must be no more than {LABEL_MAX} bytes"
    if not _DNS_LABEL.fullmatch(name):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
    return None


def qualified_name_problem(name: str) -> str | None:
    """Why a name is no `[prefix/]name`, the form of label and annotation keys; None if it is one."""
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
    """Why a string is no label value; None if it is one."""
    if len(value) > LABEL_MAX:
        return f"must be no more than {LABEL_MAX} bytes"
    if value and not _QUALIFIED.fullmatch(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return None
