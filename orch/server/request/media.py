"""Content negotiation: Accept headers parsed, representations chosen; pure.

Whatever else a client prefers (protobuf), this server writes JSON or YAML. An unknown
transformation is skipped when a later entry fits (reference/apiserver.md §1.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, lru_cache

from orch.wire.errors import ApiError

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
YAML = "application/yaml"
PATCHES = JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
META_GROUP = "meta.k8s.io"
_REMEMBERED_CHARS = 256  # a stranger could fill the memory with longer ones
_ANY = (JSON, YAML, "application/*", "*/*")


def unknown_format(accepted: Iterable[str]) -> ApiError:
    """The refusal of a body of any other content type."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include:"
        f" {', '.join(accepted)}",
    )


class Form(Enum):
    """How objects are shown; the values are the `as` parameter."""

    OBJECT = ""
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Media:
    """One entry of an Accept header, or a Content-Type; parameters without `q`."""

    type: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    quality: float = 1.0


@dataclass(frozen=True)
class Representation:
    """`version` is that of the meta group, for every form but OBJECT; `language` JSON or YAML."""

    form: Form = Form.OBJECT
    version: str = "v1"
    language: str = JSON

    @cached_property
    def content_type(self) -> str:
        if self.form is Form.OBJECT:
            return self.language
        return f"{self.language};as={self.form.value};g={META_GROUP};v={self.version}"

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Of an answer in this form."""
        return {"Content-Type": self.content_type, "Cache-Control": "no-cache, private"}


def parse_media(text: str) -> Media:
    """Parse `type;name=value;…`; an invalid quality counts as 0."""
    return _remembered(text) if len(text) <= _REMEMBERED_CHARS else _parsed(text)


@lru_cache(maxsize=256)
def _remembered(text: str) -> Media:
    """Clients repeat themselves."""
    return _parsed(text)


def _parsed(text: str) -> Media:
    kind, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    quality = 1.0
    for part in rest:
        name, _, value = part.partition("=")
        value = value.strip().strip('"')
        if name == "q":
            quality = _number(value)
        elif name:
            parameters[name] = value
    return Media(kind.lower(), parameters, quality)


def parse_accept(header: str) -> list[Media]:
    """The acceptable entries, best first; entries of equal quality keep their order."""
    entries = [parse_media(part) for part in header.split(",") if part.strip()]
    return sorted((e for e in entries if e.quality > 0), key=lambda e: -e.quality)


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Representation:
    """The first entry this server can write; ApiError 406 when there is none."""
    if not accept.strip():
        return Representation()
    for entry in parse_accept(accept):
        representation = _representation(entry)
        if representation is not None:
            return representation
    raise not_acceptable(
        (JSON, YAML, *(f"{JSON};as={f.value};g={META_GROUP};v=v1" for f in _TRANSFORMED))
    )


def not_acceptable(accepted: Iterable[str]) -> ApiError:
    return ApiError(
        406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}"
    )


_TRANSFORMED = (Form.TABLE, Form.PARTIAL, Form.PARTIAL_LIST)
_VERSIONS = ("v1", "v1beta1")


def _representation(entry: Media) -> Representation | None:
    if entry.type not in _ANY:
        return None
    language = YAML if entry.type == YAML else JSON
    wanted = entry.parameters.get("as", "")
    if not wanted:
        return Representation(language=language)
    version = entry.parameters.get("v", "")
    if entry.parameters.get("g") != META_GROUP or version not in _VERSIONS:
        return None
    form = next((form for form in _TRANSFORMED if form.value == wanted), None)
    return None if form is None else Representation(form, version, language)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
