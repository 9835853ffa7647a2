"""ApiError and the Status record it becomes on the wire, both ways.

One error class for everything an API caller can distinguish: `code` is the HTTP status, `reason`
the word clients match on, `message` the text for people. The middleware in `component/http` turns
errors into responses; this module only knows the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orch.wire import raw


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason why an object was refused: `field` is its path (`spec.x[0].y`)."""

    reason: str
    message: str
    field: str = ""


@dataclass(eq=False)
class ApiError(Exception):
    """A refusal with an HTTP status code; `retry_after_s` also becomes a Retry-After header."""

    code: int
    reason: str
    message: str
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = field(default_factory=tuple)
    retry_after_s: int | None = None
    continuation: str = ""  # continues an expired list at the current version

    def __str__(self) -> str:
        return self.message

    def to_status(self) -> dict[str, Any]:
        """The `Status` record of kind Failure, as JSON data."""
        details: dict[str, Any] = {
            key: value
            for key, value in (
                ("name", self.name),
                ("group", self.group),
                ("kind", self.kind),
                ("uid", self.uid),
                ("retryAfterSeconds", self.retry_after_s),
            )
            if value
        }
        if self.causes:
            details["causes"] = [
                {"reason": c.reason, "message": c.message, "field": c.field} for c in self.causes
            ]
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continuation} if self.continuation else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if details:
            status["details"] = details
        return status

    @classmethod
    def from_status(cls, status: Any, *, code: int) -> ApiError:
        """Read a Status body; anything else becomes an error that only has the code. What is of a
        wrong type counts as left out: a node may have written it.
        """
        if not isinstance(status, dict) or status.get("kind") != "Status":
            return cls(code, _REASONS.get(code, "Unknown"), f"the server answered {code}")
        return cls(
            code=raw.number(status, "code") or code,
            reason=raw.text(status, "reason") or _REASONS.get(code, "Unknown"),
            message=raw.text(status, "message") or f"the server answered {code}",
            name=raw.text(status, "details", "name"),
            group=raw.text(status, "details", "group"),
            kind=raw.text(status, "details", "kind"),
            uid=raw.text(status, "details", "uid"),
            causes=tuple(
                Cause(raw.text(one, "reason"), raw.text(one, "message"), raw.text(one, "field"))
                for one in raw.records(status, "details", "causes")
            ),
            retry_after_s=raw.number(status, "details", "retryAfterSeconds") or None,
        )


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
    507: "InsufficientStorage",
}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(message: str, **details: str) -> ApiError:
    return ApiError(403, "Forbidden", message, **details)  # type: ignore[arg-type]


def forbidden_object(
    plural: str, name: str, why: str, group: str = "", causes: tuple[Cause, ...] = ()
) -> ApiError:
    message = f"{_shown(plural, name, group)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, name, group, plural, causes=causes)


def not_found(plural: str, name: str, group: str = "") -> ApiError:
    message = f"{_shown(plural, name, group)} not found"
    return ApiError(404, "NotFound", message, name, group, plural)


def already_exists(plural: str, name: str, group: str = "") -> ApiError:
    message = f"{_shown(plural, name, group)} already exists"
    return ApiError(409, "AlreadyExists", message, name, group, plural)


def conflict(plural: str, name: str, why: str, group: str = "") -> ApiError:
    message = f"Operation cannot be fulfilled on {_shown(plural, name, group)}: {why}"
    return ApiError(409, "Conflict", message, name, group, plural)


def invalid(kind: str, name: str, causes: tuple[Cause, ...], group: str = "") -> ApiError:
    """422 with one cause per field; the message lists them as `field: text`."""
    texts = list(dict.fromkeys(f"{c.field}: {c.message}" if c.field else c.message for c in causes))
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f"{_shown(kind, name, group)} is invalid: {listed}"
    return ApiError(422, "Invalid", message, name, group, kind, causes=causes)


def _shown(kind: str, name: str, group: str) -> str:
    return f'{kind}.{group} "{name}"' if group else f'{kind} "{name}"'


def expired(message: str, continuation: str = "") -> ApiError:
    return ApiError(410, "Expired", message, continuation=continuation)


def service_unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)
