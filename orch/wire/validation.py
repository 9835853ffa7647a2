"""Validation of names, label keys and values, ports, addresses and paths.

`*_problems` return messages (none when valid) in the wording of apimachinery `util/validation`;
`is_*` only whether a text is valid.
"""

from __future__ import annotations

import ipaddress
import re

DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
QUALIFIED_NAME_MAX = 63
LABEL_VALUE_MAX = 63
PORT_NAME_MAX = 15
CONFIG_KEY_MAX = 253
PORT_MAX = 65535
_ADDRESS_MAX = 45
_MATCHED_MAX = 1024  # beyond all limits: to match 3 MB took 0.3 s in one piece, and 500 MB

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(" + _QUALIFIED + ")?"
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = _SEARCH_LABEL + r"(\." + _SEARCH_LABEL + ")*"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HEADER = "[-A-Za-z0-9]+"
_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_QUALIFIED_RE = re.compile(_QUALIFIED)
_LABEL_VALUE_RE = re.compile(_LABEL_VALUE)
_SEARCH_RE = re.compile(_SEARCH)
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY)
_HEADER_RE = re.compile(_HEADER)
_PORT_CHARACTERS_RE = re.compile("[-a-z0-9]+")
_PORT_NAME_RE = re.compile("(?=[^a-z]*[a-z])(?!.*--)(?=.{1,15}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_VARIABLE_RE = re.compile("[ -<>-~]+")
_LEADING_ZEROS_RE = re.compile(r"(?<![0-9])0+(?=[0-9])")


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

_SEARCH_TEXT = _regex_text(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-', "
    "'_' or '.', and must start and end with an alphanumeric character",
    _SEARCH, "example.com",
)  # fmt: skip
_CONFIG_KEY_TEXT = _regex_text(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY, "key.name", "KEY_NAME", "key-name",
)  # fmt: skip
_HEADER_TEXT = _regex_text(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)
_VARIABLE_TEXT = (
    "a valid environment variable name must consist only of printable ASCII characters other "
    "than '='"
)


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _problems(text: str, regex: re.Pattern[str], regex_text: str, limit: int) -> tuple[str, ...]:
    problems = (_too_long(limit),) if len(text) > limit else ()
    if len(text) > _MATCHED_MAX or regex.fullmatch(text):
        return problems
    return (*problems, regex_text)


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


def port_problems(port: int | str) -> tuple[str, ...]:
    """Why a port is neither a number of one nor a name; () when it is."""
    if isinstance(port, str):
        return port_name_problems(port)
    return () if 1 <= port <= PORT_MAX else (f"must be between 1 and {PORT_MAX}, inclusive",)


def port_name_problems(text: str) -> tuple[str, ...]:
    """Why a text is not the name of a port (an IANA service name); () when it is."""
    if len(text) > _MATCHED_MAX:
        return (_too_long(PORT_NAME_MAX),)
    if _PORT_NAME_RE.fullmatch(text):
        return ()
    tests = (
        (len(text) <= PORT_NAME_MAX, _too_long(PORT_NAME_MAX)),
        (
            _PORT_CHARACTERS_RE.fullmatch(text),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (re.search("[a-z]", text), "must contain at least one letter (a-z)"),
        ("--" not in text, "must not contain consecutive hyphens"),
        (text == text.strip("-"), "must not begin or end with a hyphen"),
    )
    return tuple(problem for passed, problem in tests if not passed)


def variable_name_problems(text: str) -> tuple[str, ...]:
    """Why a text is not the name of an environment variable, or its beginning; () when it is."""
    return () if _VARIABLE_RE.fullmatch(text) else (_VARIABLE_TEXT,)


def config_key_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a key of a ConfigMap or Secret; () when it is."""
    problems = _problems(text, _CONFIG_KEY_RE, _CONFIG_KEY_TEXT, CONFIG_KEY_MAX)
    if text in (".", ".."):
        return (*problems, f"must not be '{text}'")
    return (*problems, "must not start with '..'") if text.startswith("..") else problems


def header_name_problems(text: str) -> tuple[str, ...]:
    """Why a text is not the name of an HTTP header; () when it is."""
    return () if _HEADER_RE.fullmatch(text) else (_HEADER_TEXT,)


def search_domain_problems(text: str) -> tuple[str, ...]:
    """Why a text is not a domain that a resolver searches; () when it is."""
    return () if text == "." else _problems(
        text.removesuffix("."), _SEARCH_RE, _SEARCH_TEXT, DNS_SUBDOMAIN_MAX
    )  # fmt: skip


def address_problems(text: str) -> tuple[str, ...]:
    """Why a text is not an IP address; () when it is. Leading zeros count for nothing."""
    try:
        if len(text) > _ADDRESS_MAX or "%" in text:
            raise ValueError
        ipaddress.ip_address(text if ":" in text else _LEADING_ZEROS_RE.sub("", text))
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    return ()


def upward_path_problems(path: str) -> tuple[str, ...]:
    """Whether a path leads out of directories on its way."""
    return ("must not contain '..'",) if ".." in path.split("/") else ()


def descending_path_problems(path: str) -> tuple[str, ...]:
    """Why a path may lie outside the directory it begins in; () when it may not."""
    absolute = ("must be a relative path",) if path.startswith("/") else ()
    return absolute + upward_path_problems(path)


def local_path_problems(path: str) -> tuple[str, ...]:
    """Why a path may not be of a file in a volume: names that begin with `..` are the agent's."""
    problems = descending_path_problems(path)
    if path.startswith("..") and not path.startswith("../"):
        return (*problems, "must not start with '..'")
    return problems
