"""Validation of names, label keys and label values.

`*_problems` return messages (none when valid) in the wording of apimachinery `util/validation`;
`is_*` only whether a text is valid.
"""

from __future__ import annotations

import re

DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
QUALIFIED_NAME_MAX = 63
LABEL_VALUE_MAX = 63

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(" + _QUALIFIED + ")?"
_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_LABEL_VALUE_RE = re.compile(_LABEL_VALUE)


def _regex_text(message: str, regex: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{regex}')"


_LABEL_TEXT = _regex_text(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL, "my-name", "123-abc",
)  # fmt: skip
_SUBDOMAIN_TEXT = _regex_text(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' "
    "or '.', and must start and end with an alphanumeric character",
    _SUBDOMAIN, "example.com",
)  # fmt: skip
_QUALIFIED_TEXT = _regex_text(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character",
    _QUALIFIED, "MyName", "my.name", "123-abc",
)  # fmt: skip
_LABEL_VALUE_TEXT = _regex_text(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character",
    _LABEL_VALUE, "MyValue", "my_value", "12345",
)  # fmt: skip


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _problems(text: str, regex: re.Pattern[str], regex_text: str, limit: int) -> tuple[str, ...]:
    problems = (_too_long(limit),) if len(text) > limit else ()
    return problems if regex.fullmatch(text) else (*problems, regex_text)


def dns1123_label_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a DNS label (a namespace or container name); () when it is."""
    return _problems(text, _LABEL_RE, _LABEL_TEXT, DNS_LABEL_MAX)


def dns1123_subdomain_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a DNS subdomain (most object names); () when it is."""
    return _problems(text, _SUBDOMAIN_RE, _SUBDOMAIN_TEXT, DNS_SUBDOMAIN_MAX)


def label_value_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a label value; the empty text is valid."""
    return _problems(text, _LABEL_VALUE_RE, _LABEL_VALUE_TEXT, LABEL_VALUE_MAX)


def qualified_name_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a label key: `name` or `dns.subdomain/name`; () when it is."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            "a qualified name " + _QUALIFIED_TEXT + " with an optional DNS subdomain prefix and "
            "'/' (e.g. 'example.com/MyName')",
        )
    problems: tuple[str, ...] = ()
    if slash and not prefix:
        problems = ("prefix part must be non-empty",)
    elif slash:
        problems = tuple(f"prefix part {p}" for p in dns1123_subdomain_problems(prefix))
    if not name:
        problems = (*problems, "name part must be non-empty")
    found = _problems(name, _QUALIFIED_RE, _QUALIFIED_TEXT, QUALIFIED_NAME_MAX)
    return (*problems, *(f"name part {p}" for p in found))


def path_segment_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a path segment (names of roles and bindings); () when it is."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{part}'" for part in ("/", "%") if part in text)


def is_dns1123_label(text: str) -> bool:
    return not dns1123_label_problems(text)


def is_dns1123_subdomain(text: str) -> bool:
    return not dns1123_subdomain_problems(text)
