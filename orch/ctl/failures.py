"""Turns an error into the one line an operator reads: what happened, to what, and what to do next.

Exit codes of the command: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orch.component.terminal import one_line

if TYPE_CHECKING:
    from orch.wire.errors import ApiError

FAILED = 1
USAGE = 2

_HINTS: Mapping[str, str] = {
    "Unauthorized": "check the credentials in the kubeconfig or the --token and --client-* options",
    "Forbidden": "ask an administrator for a role that allows it",
    "NotFound": "'orchctl get' lists what exists",
    "AlreadyExists": "change it with 'orchctl apply', or delete it first",
    "Conflict": "someone else changed it: run the command again",
    "FieldManagerConflict": "leave these fields out, or take them over with --force-conflicts",
    "Invalid": "correct the fields named and run the command again",
    "BadRequest": "correct the request and run the command again",
    "UnsupportedMediaType": "try another --type",
    "TooManyRequests": "the server is busy: run the command again later",
    "ServiceUnavailable": "check that the server and the node are up, then run the command again",
    "Timeout": "run the command again with a longer --request-timeout",
}
# What a refusal's own words say to do, before its reason does.
_HINTS_BY_WORDS: Mapping[str, str] = {
    "waiting to start": "'orchctl describe pod' shows what it waits for",
    "OCI runtime exec failed": "check that the image has the command, and that it may be run",
}
# How a server that does not trust a client certificate ends a TLS 1.3 connection.
_REFUSED_CERTIFICATE = ("connection reset", "closed the connection", "TLS failed", "broken pipe")


class CommandFailed(Exception):
    """The command cannot do what it was asked to; the text is the whole line."""


class WrongUsage(CommandFailed):
    """The command line contradicts itself or is incomplete: exit code 2 instead of 1."""


def explain(error: Exception) -> str | None:
    """The line for an error a command may end with; None for a defect of the program."""
    from orch.client.answers import TransportError
    from orch.component.process.daemon import SetupError
    from orch.wire.errors import ApiError
    from orch.wire.patch.patch import PatchError

    if isinstance(error, ApiError):
        return one_line(_refusal(error))
    if isinstance(error, TransportError):
        return one_line(f"{error}; {_transport_hint(str(error))}")
    if isinstance(error, RecursionError):
        return "what there is to show is nested too deeply; ask for less of it, by its path"
    if isinstance(error, PatchError | CommandFailed | SetupError):
        return one_line(str(error))
    return None


def _refusal(error: ApiError) -> str:
    reasons = (*(cause.reason for cause in error.causes[:1]), error.reason)
    hints = [hint for words, hint in _HINTS_BY_WORDS.items() if words in error.message]
    hints += [_HINTS[reason] for reason in reasons if reason in _HINTS]
    hint = next(iter(hints), "see the server's log for the cause")
    reason = "" if error.message == error.reason else f" ({error.reason})"
    return f"{error.message}{reason}; {hint}"


def _transport_hint(text: str) -> str:
    if "certificate verify failed" in text:
        return "set its authority with --certificate-authority, its name with --tls-server-name"
    if "cannot read the token file" in text or "cannot use the " in text:
        return "correct the file, or choose another in the kubeconfig or by an option"
    if "the client certificate" in text:
        return "renew it or choose another: in the kubeconfig, or with --client-certificate"
    if "over plain http" in text:
        return "give the server's address with https://"
    if "did not answer within" in text:
        return "try again with a longer --request-timeout"
    if any(sign in text for sign in _REFUSED_CERTIFICATE):
        return "if a client certificate is used, check that the server trusts its authority"
    return "check that the server runs and that --server or the kubeconfig has its address"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`: did you mean 'pods'?` for a misspelt word; "" when nothing is close."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f": did you mean {near[0]!r}?" if near else ""
