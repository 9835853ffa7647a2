"""Content negotiation of diagnostics and metrics pages, from Accept headers; pure.

The structured form of a diagnostics page is served only for the exact triple of group, version and
kind, so that no client depends on it by accident (nodeagent.md §6.2); others get text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orch.wire.names import DIAGNOSTICS_GROUP

VERSION = "v1alpha1"
API_VERSION = f"{DIAGNOSTICS_GROUP}/{VERSION}"

Form = Literal["text", "json"]
_JSON_TYPES = ("application/json", "application/*", "*/*")


@dataclass(frozen=True, slots=True)
class _Clause:
    media_type: str
    parameters: dict[str, str]
    weight: float

    @property
    def is_structured(self) -> bool:
        return any(name in self.parameters for name in ("g", "v", "as"))


def structured_type(kind: str) -> str:
    """The media type of the structured form of a page."""
    return f"application/json;v={VERSION};g={DIAGNOSTICS_GROUP};as={kind}"


def accepted_types(kind: str, *, structured: bool = True) -> str:
    """The acceptable types, for the text of an error."""
    return f"{structured_type(kind)}, text/plain" if structured else "text/plain"


def choose(accept: str, kind: str, *, structured: bool = True) -> Form | None:
    """The form to serve; None when nothing acceptable is available (406)."""
    if not accept.strip():
        return "text"
    wanted = {"g": DIAGNOSTICS_GROUP, "v": VERSION, "as": kind}
    for clause in sorted(_clauses(accept), key=lambda clause: -clause.weight):
        if clause.is_structured:
            given = {name: clause.parameters.get(name) for name in wanted}
            if structured and given == wanted and clause.media_type in _JSON_TYPES:
                return "json"
        elif clause.media_type in ("text/plain", "text/*", "*/*"):
            return "text"
    return None


def _clauses(accept: str) -> Iterator[_Clause]:
    for text in accept.split(","):
        media_type, *rest = (part.strip() for part in text.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        weight = _weight(parameters.pop("q", "1"))
        if media_type and weight > 0:
            yield _Clause(media_type.lower(), parameters, weight)


def _weight(text: str) -> float:
    """A quality between 0 and 1; anything else counts as 0: not acceptable."""
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """Whether the Accept header prefers OpenMetrics 1.0 to plain text."""
    wanted = _qualities(accept)
    best = wanted.get("application/openmetrics-text", 0.0)
    return best > wanted.get("text/plain", 0.0)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether the Accept-Encoding header accepts gzip by name."""
    return _qualities(accept_encoding).get("gzip", 0.0) > 0


def _qualities(header: str) -> dict[str, float]:
    """The acceptable entries of an Accept header with their best quality, above 0 to 1."""
    clauses = sorted(_clauses(header), key=lambda clause: clause.weight)
    return {clause.media_type: clause.weight for clause in clauses}
