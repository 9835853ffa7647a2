"""Taking secrets out of texts that leave the host; pure.

Settings that are secret are typed so and never get here. This is the second line: known values, and
what looks like a credential, are struck out of logs and pages whatever way they got there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from nodeagent.config.types import NodeAgentConfiguration
from orch.component.secret import SHOWN, Secret

_LEAST_LENGTH = 4  # a shorter value would strike out half the text, and is no secret
_LEAST_PARAMETER = 8  # of a query's value: shorter ones are words such as `json`
_SHOWN = SHOWN.encode()
_PATTERNS = (
    re.compile(
        rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
    ),
    re.compile(rb"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(rb"(?i)(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(rb"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),  # user:password@host
    re.compile(rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),  # a signed token
)


def scrubber(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """A function that strikes these values, and whatever looks like a credential, out of a text."""
    known = sorted({s.encode() for s in secrets if len(s) >= _LEAST_LENGTH}, key=len, reverse=True)
    values = re.compile(b"|".join(map(re.escape, known))) if known else None

    def clean(text: bytes) -> bytes:
        if values:
            text = values.sub(_SHOWN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(_SHOWN, text)
        return text

    return clean


def secrets_of(config: NodeAgentConfiguration) -> set[str]:
    """Every value that the configuration declares secret, and their words: `Bearer x` hides `x`."""
    found = {secret.reveal() for secret in _walk(config)}
    found |= {word for value in found for word in value.split()}
    return found | set(_credentials_in(config.staticPodURL))


def _credentials_in(address: str) -> Iterable[str]:
    """The password and the query of an address, as they are written and as they are meant."""
    before, _, query = address.partition("?")
    user = before.partition("://")[2].partition("/")[0].rpartition("@")[0]
    values = (pair.partition("=")[2] for pair in query.split("&"))
    long = (value for value in values if len(value) >= _LEAST_PARAMETER)
    for part in filter(None, (user.partition(":")[2], query, *long)):
        yield part
        yield unquote(part)


def _walk(value: Any) -> Iterable[Secret]:
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _walk(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _walk(one)
    elif hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from _walk(getattr(value, name))
