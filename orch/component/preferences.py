"""What a client of a metrics page prefers, from its Accept headers; pure."""

from __future__ import annotations

from collections.abc import Iterable

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """Whether the Accept header prefers OpenMetrics 1.0 to plain text."""
    wanted = _qualities(accept)
    best = wanted.get("application/openmetrics-text", 0.0)
    return best > wanted.get("text/plain", 0.0)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether the Accept-Encoding header names gzip, and not to refuse it."""
    return _qualities(accept_encoding).get("gzip", 0.0) > 0


def _qualities(header: str) -> dict[str, float]:
    """What an Accept header names, in lower case, with how much it is wanted: 0 to 1."""
    best: dict[str, float] = {}
    for item in header.split(","):
        kind, *parameters = (part.strip() for part in item.lower().split(";"))
        best[kind] = max(best.get(kind, 0.0), _quality(parameters))
    return best


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
