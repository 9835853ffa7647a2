"""Field types of the configuration: durations, quantities, thresholds, ports; the strict base.

Durations are written as Go duration strings (`1m30s`) and stored as float seconds.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)
from yarl import URL

from nodeagent.runtime.endpoint import socket_path
from orch.component.secret import SHOWN
from orch.wire import quantity, times, validation
from orch.wire.podrules import isolation

_HEADER_NAME_RE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ConfigModel(BaseModel):
    """A part of the configuration: an unknown field or a wrong type is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _read_duration(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is not a duration; write it with a unit, such as "10s"')
    seconds = times.parse_duration(value)
    if seconds < 0:
        raise ValueError(f"{value!r} must not be negative")
    return seconds


def _read_quantity(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{value!r} is not a quantity")
    if quantity.parse_quantity(value) < 0:
        raise ValueError(f"{value!r} must not be negative")
    return str(value)


def _read_threshold(value: Any) -> str:
    """A quantity, or a percentage of capacity from 0% to 100%."""
    if isinstance(value, str) and value.endswith("%"):
        try:
            percent = float(value[:-1])
        except ValueError:
            raise ValueError(f"{value!r} is not a percentage") from None
        if not 0 <= percent <= 100:
            raise ValueError(f"{value!r} must be between 0% and 100%")
        return value
    return _read_quantity(value)


def _checked_ip(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address") from None
    return text


def web_address(text: str) -> URL:
    """ValueError for other texts, which are not shown since they may contain a password."""
    try:
        url = URL(text)
        valid = url.scheme in ("http", "https") and bool(url.host) and url.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("not an address of the form http://HOST/PATH or https://HOST/PATH")
    return url


def _checked_address(text: str) -> str:
    if text:
        web_address(text)
    return text


def _checked_server(text: str) -> str:
    if text:
        url = web_address(text)
        beyond = url.user or url.password or url.path != "/" or url.query_string or url.fragment
        if url.scheme != "https" or beyond:
            raise ValueError("not an address of the form https://HOST:PORT")
    return text


def _without_credentials(address: str) -> str:
    """`https://user:password@host/path?query` without user, password and query, for display."""
    address, question, _ = address.partition("?")
    shown_query = f"?{SHOWN}" if question else ""
    scheme, found, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    if not found or "@" not in authority:
        return address + shown_query
    return f"{scheme}://{SHOWN}@{authority.rpartition('@')[2]}{slash}{path}{shown_query}"


def _checked_socket(text: str) -> str:
    if text:
        socket_path(text)
    return text


def _checked_path(text: str) -> str:
    if not text.startswith("/") or not text.isascii() or posixpath.normpath(text) != text:
        raise ValueError(f"{text!r} is not an absolute, normalized path in ASCII")
    return text


def _checked_part(text: str) -> str:
    if text == "/":
        raise ValueError("'/' is the root cgroup, which holds the whole machine")
    return text and _checked_path(text)


def _checked_domain(text: str) -> str:
    return text and _without_problems(text, validation.dns1123_subdomain_problems(text))


def _checked_header_name(text: str) -> str:
    if not _HEADER_NAME_RE.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of an HTTP header")
    return text


def _checked_label_key(text: str) -> str:
    return _without_problems(text, validation.qualified_name_problems(text))


def _checked_label_value(text: str) -> str:
    return _without_problems(text, validation.label_value_problems(text))


def _without_problems(text: str, problems: tuple[str, ...]) -> str:
    if problems:
        raise ValueError(f"{text!r}: {'; '.join(problems)}")
    return text


def _checked_sysctls(text: str) -> str:
    name = text.removesuffix("*")
    begun = name if name == text else name.rstrip("./-_")
    if problem := isolation.sysctl_name_problem(begun):
        raise ValueError(f"{text!r}: {problem}")
    if not isolation.sysctl_namespace(name.replace("/", ".")):
        raise ValueError(f"{text!r} is not known to be of a namespace of a pod's own")
    return text


Address = Annotated[  # to fetch from; "" for none
    str, AfterValidator(_checked_address), PlainSerializer(_without_credentials)
]
ServerUrl = Annotated[str, AfterValidator(_checked_server)]  # "" for none
Socket = Annotated[str, AfterValidator(_checked_socket)]  # to connect to; "" for none
AbsolutePath = Annotated[str, AfterValidator(_checked_path)]
OptionalPath = Annotated[str, AfterValidator(lambda text: text and _checked_path(text))]
Domain = Annotated[str, AfterValidator(_checked_domain)]  # of DNS; "" for none
CgroupPart = Annotated[str, AfterValidator(_checked_part)]  # a subtree; "" for none
HeaderName = Annotated[str, AfterValidator(_checked_header_name)]
LabelKey = Annotated[str, AfterValidator(_checked_label_key)]
LabelValue = Annotated[str, AfterValidator(_checked_label_value)]
IpAddress = Annotated[str, AfterValidator(_checked_ip)]  # to listen on, or of a DNS server
SysctlPattern = Annotated[str, AfterValidator(_checked_sysctls)]  # a name, or its beginning and *
Duration = Annotated[float, BeforeValidator(_read_duration), PlainSerializer(times.format_duration)]
CfsPeriod = Annotated[Duration, Field(ge=0.001, le=1)]
Quantity = Annotated[str, BeforeValidator(_read_quantity)]
Threshold = Annotated[str, BeforeValidator(_read_threshold)]
Port = Annotated[int, Field(ge=1, le=65535)]
OptionalPort = Annotated[int, Field(ge=0, le=65535)]  # 0 disables it, or picks a free port
