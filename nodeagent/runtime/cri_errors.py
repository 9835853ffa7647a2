"""A failed CRI call → the error of `base` that callers tell apart.

Knows the names of gRPC status codes, but not grpc itself. Texts have the form operators know from
other CRI clients: `rpc error: code = Unavailable desc = …`.

Optional calls are refused in two ways: containerd answers UNIMPLEMENTED, CRI-O and older runtimes
answer UNKNOWN with a sentence. Both mean "not supported". The sentences are looked for only in
answers to optional calls: a refused image pull may well say "not supported" of a media type.
"""

from __future__ import annotations

from nodeagent.runtime.base import (
    RuntimeCallError,
    RuntimeNotFound,
    RuntimeNotSupported,
    RuntimeTimeout,
    RuntimeUnavailable,
)

OPTIONAL_CALLS = frozenset(
    {
        "CheckpointContainer",
        "GetContainerEvents",
        "ListContainerStats",
        "ListPodSandboxStats",
        "ReopenContainerLog",
        "UpdateContainerResources",
    }
)

_KINDS: dict[str, type[RuntimeCallError]] = {
    "UNAVAILABLE": RuntimeUnavailable,
    "DEADLINE_EXCEEDED": RuntimeTimeout,
    "NOT_FOUND": RuntimeNotFound,
    "UNIMPLEMENTED": RuntimeNotSupported,
}

_REFUSALS_OF_ANY_CALL = ("unknown method", "unknown service", "not implemented")
_REFUSALS_OF_OPTIONAL_CALLS = ("not supported", "not available", "does not support")

# containerd's shim by its own state, runc by the cgroup's
_NOT_PAUSED = ("cannot resume a ", "container not paused")

_CODE_TEXTS = {"OK": "OK", "CANCELLED": "Canceled"}  # the rest follow from the code's name


def from_status(
    operation: str, code: str, details: str, *, overdue: bool = False
) -> RuntimeCallError:
    """The error for a call that ended with a status other than OK.

    `operation` is the CRI method (`StartContainer`), `code` the name of the gRPC status code
    (`NOT_FOUND`), `details` the runtime's own sentence. `overdue`: the call's deadline has passed;
    a runtime that notices it first cancels the call, which is a timeout all the same.
    """
    if code == "CANCELLED" and overdue:
        code = "DEADLINE_EXCEEDED"
    kind = _KINDS.get(code, RuntimeCallError)
    if code == "UNKNOWN" and _refuses(operation, details.lower()):
        kind = RuntimeNotSupported
    return kind(operation, f"rpc error: code = {code_text(code)} desc = {details}")


def says_not_paused(error: RuntimeCallError) -> bool:
    """Tell whether a container was not resumed because nothing had paused it."""
    return any(text in str(error) for text in _NOT_PAUSED)


def code_text(code: str) -> str:
    """`DEADLINE_EXCEEDED` → `DeadlineExceeded`, as Go clients print it."""
    return _CODE_TEXTS.get(code) or "".join(word.capitalize() for word in code.split("_"))


def _refuses(operation: str, details: str) -> bool:
    optional = operation in OPTIONAL_CALLS
    texts = _REFUSALS_OF_ANY_CALL + (_REFUSALS_OF_OPTIONAL_CALLS if optional else ())
    return any(text in details for text in texts)
