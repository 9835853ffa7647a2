"""Statuses as runtimes really send them → the errors callers tell apart."""

import pytest

from nodeagent.runtime import base, cri_responses

# operation, code, details → error class, text. The details are those of containerd 2.1 and 1.7
# (unknown method), of CRI-O and of older shims.
CASES = [
    (
        "ContainerStatus",
        "NOT_FOUND",
        'an error occurred when try to find container "x": not found',
        base.RuntimeNotFound,
        'rpc error: code = NotFound desc = an error occurred when try to find container "x":'
        " not found",
    ),
    (
        "Version",
        "UNAVAILABLE",
        "connect: No such file or directory",
        base.RuntimeUnavailable,
        "rpc error: code = Unavailable desc = connect: No such file or directory",
    ),
    (
        "ExecSync",
        "DEADLINE_EXCEEDED",
        "timeout 1s exceeded",
        base.RuntimeTimeout,
        "rpc error: code = DeadlineExceeded desc = timeout 1s exceeded",
    ),
    (
        "CheckpointContainer",
        "UNIMPLEMENTED",
        "method CheckpointContainer not implemented",
        base.RuntimeNotSupported,
        "rpc error: code = Unimplemented desc = method CheckpointContainer not implemented",
    ),
    (
        "CheckpointContainer",
        "UNKNOWN",
        "checkpoint/restore support not available",
        base.RuntimeNotSupported,
        "rpc error: code = Unknown desc = checkpoint/restore support not available",
    ),
    (
        "CheckpointContainer",
        "UNKNOWN",
        "configured runtime does not support checkpoint/restore",
        base.RuntimeNotSupported,
        "rpc error: code = Unknown desc = configured runtime does not support checkpoint/restore",
    ),
    (
        "ListPodSandboxStats",
        "UNKNOWN",
        "pod sandbox stats: Not Supported on this platform",
        base.RuntimeNotSupported,
        "rpc error: code = Unknown desc = pod sandbox stats: Not Supported on this platform",
    ),
    (
        "RunPodSandbox",
        "UNKNOWN",
        "unknown method RunPodSandbox for service runtime.v1.RuntimeService",
        base.RuntimeNotSupported,
        "rpc error: code = Unknown desc = unknown method RunPodSandbox for service"
        " runtime.v1.RuntimeService",
    ),
    (
        "PullImage",
        "UNKNOWN",
        "media type application/x is not supported",
        base.RuntimeCallError,
        "rpc error: code = Unknown desc = media type application/x is not supported",
    ),
    (
        "ListContainers",
        "RESOURCE_EXHAUSTED",
        "Received message larger than max",
        base.RuntimeAnswerTooLarge,
        "rpc error: code = ResourceExhausted desc = Received message larger than max; look for "
        "pods with large labels or annotations (crictl pods -v) and delete them",
    ),
    (
        "PullImage",
        "RESOURCE_EXHAUSTED",
        "no space left on device",
        base.RuntimeCallError,
        "rpc error: code = ResourceExhausted desc = no space left on device",
    ),
    (
        "StopContainer",
        "CANCELLED",
        "context canceled",
        base.RuntimeCallError,
        "rpc error: code = Canceled desc = context canceled",
    ),
]


@pytest.mark.parametrize(("operation", "code", "details", "kind", "text"), CASES)
def test_a_status_becomes_the_error_that_says_what_it_means(
    operation: str, code: str, details: str, kind: type[base.RuntimeCallError], text: str
) -> None:
    error = cri_responses.from_status(operation, code, details)

    assert type(error) is kind
    assert str(error) == text
    assert error.operation == operation


@pytest.mark.parametrize(
    ("code", "overdue", "kind"),
    [
        ("CANCELLED", True, base.RuntimeTimeout),
        ("CANCELLED", False, base.RuntimeCallError),
        ("UNAVAILABLE", True, base.RuntimeUnavailable),
    ],
)
def test_a_call_that_the_runtime_cancelled_at_its_deadline_is_a_timeout(
    code: str, overdue: bool, kind: type[base.RuntimeCallError]
) -> None:
    error = cri_responses.from_status("Version", code, "Stream removed", overdue=overdue)

    assert type(error) is kind


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("cannot resume a running process", True),  # containerd's shim
        ("cannot resume a stopped process", True),
        ("OCI runtime resume failed: container not paused", True),  # runc
        ("OCI runtime resume failed: signal: killed", False),
    ],
)
def test_not_paused_is_distinguished_from_a_failed_resume(details: str, expected: bool) -> None:
    error = cri_responses.from_status("Resume", "UNKNOWN", details)

    assert cri_responses.is_not_paused(error) is expected
