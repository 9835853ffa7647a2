from __future__ import annotations

import pytest

from orch.client.answers import TransportError
from orch.component.process.daemon import SetupError
from orch.ctl.failures import CommandFailed, explain
from orch.wire import errors
from orch.wire.errors import ApiError
from orch.wire.patch.patch import PatchError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            errors.not_found("pods", "web"),
            "pods \"web\" not found (NotFound); 'orchctl get' lists what exists",
        ),
        (
            errors.conflict("nodes", "n1", "it was modified"),
            'Operation cannot be fulfilled on nodes "n1": it was modified (Conflict); someone '
            "else changed it: run the command again",
        ),
        (
            ApiError(500, "InternalError", "disk full"),
            "disk full (InternalError); see the server's log for the cause",
        ),
        (
            ApiError(400, "BadRequest", 'container "c" is waiting to start: ErrImagePull'),
            'container "c" is waiting to start: ErrImagePull (BadRequest); '
            "'orchctl describe pod' shows what it waits for",
        ),
        (
            ApiError(500, "InternalError", 'OCI runtime exec failed: "nosuch" not found in $PATH'),
            'OCI runtime exec failed: "nosuch" not found in $PATH (InternalError); '
            "check that the image has the command, and that it may be run",
        ),
        (
            TransportError("cannot reach https://s: connection refused"),
            "cannot reach https://s: connection refused; check that the server runs and that "
            "--server or the kubeconfig has its address",
        ),
        (PatchError("operation 0 failed"), "operation 0 failed"),
        (SetupError("the kubeconfig does not parse"), "the kubeconfig does not parse"),
        (CommandFailed("say what"), "say what"),
    ],
)
def test_an_error_becomes_a_line_that_says_what_to_do(error: Exception, line: str) -> None:
    assert explain(error) == line


@pytest.mark.parametrize(
    ("cause", "hint"),
    [
        ("certificate verify failed: self-signed", "--certificate-authority"),
        ("the client certificate expired on 2026-01-01T00:00:00Z", "--client-certificate"),
        ("the server did not answer within 3 s", "--request-timeout"),
        ("a token or password is not sent to another machine over plain http", "with https://"),
    ],
)
def test_what_helps_depends_on_why_there_is_no_answer(cause: str, hint: str) -> None:
    assert hint in (explain(TransportError(f"cannot reach https://s: {cause}")) or "")


@pytest.mark.parametrize(
    "cause",
    [
        "cannot read the token file /t: No such file",
        "cannot use the authority /ca: no pem",
        "cannot use the client certificate /c with its key: key values mismatch",
    ],
)
def test_a_file_of_ours_is_not_blamed_on_the_server(cause: str) -> None:
    line = explain(TransportError(f"cannot reach https://s: {cause}")) or ""
    assert line.endswith("; correct the file, or choose another in the kubeconfig or by an option")


def test_a_defect_is_not_explained_away() -> None:
    assert explain(ZeroDivisionError()) is None
