"""Findings about certificates in files: can they be read, do they fit their keys, when do they end.

What they are used for, and who believes whom, the doctors of the programs know. Blocking I/O.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from orch.component.certificates import expiry
from orch.component.diagnostics.findings import Finding, fail, note, ok, warn
from orch.component.process import system
from orch.component.tls import refuse_password

AS_ROOT = "run this as root"
_WARN = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Advice:
    """The next step for files that cannot be used, and for a certificate that ends."""

    correct: str = "correct the file or the setting"
    renew: str = "renew it"


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate in use; `exposed_key` is a key that other users can read.

    `not_after` None without a `problem`: it does not exist yet.
    """

    role: str
    path: str
    not_after: datetime | None = None
    problem: str = ""
    exposed_key: str = ""
    closed: bool = False  # the problem is that this process may not read it

    def usable(self, now: datetime) -> bool:
        return not self.problem and self.not_after is not None and self.not_after > now


def read_pair(role: str, cert_file: str, key_file: str) -> CertificateFacts:
    exposed = key_file if system.is_open_to_others(key_file, system.READ) else ""
    facts = read_certificate(role, cert_file)
    problem, closed = facts.problem, facts.closed
    if not problem:
        problem, closed = _pair_problem(cert_file, key_file)
    return CertificateFacts(role, cert_file, facts.not_after, problem, exposed, closed)


def read_certificate(role: str, path: str) -> CertificateFacts:
    """The first certificate in a file."""
    try:
        return CertificateFacts(role, path, expiry(Path(path).read_bytes()))
    except OSError as error:
        closed = isinstance(error, PermissionError)
        return CertificateFacts(role, path, problem=error.strerror or str(error), closed=closed)
    except ValueError:
        return CertificateFacts(role, path, problem="it contains no PEM certificate")


def check_certificate(
    facts: CertificateFacts, now: datetime, advice: Advice | None = None
) -> Iterator[Finding]:
    advice = advice or Advice()
    check = f"certificate {facts.role}"
    if facts.problem:
        step = AS_ROOT if facts.closed else advice.correct
        yield fail(check, f"{facts.path}: {facts.problem}", step)
    elif facts.not_after is None:
        yield note(check, f"{facts.path} does not exist yet", "its program makes it at its start")
    elif facts.not_after <= now:
        yield fail(check, f"{facts.path} expired at {_shown(facts.not_after)}", advice.renew)
    elif facts.not_after - now < _WARN:
        text = f"{facts.path} expires at {_shown(facts.not_after)}"
        yield warn(check, text, f"{advice.renew} soon")
    else:
        yield ok(check, f"{facts.path} is valid until {facts.not_after:%Y-%m-%d}")
    if facts.exposed_key:
        step = f"chmod 600 {facts.exposed_key}"
        yield warn(check, f"others can read the key {facts.exposed_key}", step)


def _pair_problem(cert_file: str, key_file: str) -> tuple[str, bool]:
    """ "" without one; and whether it is that the key may not be read."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert_file, key_file, password=refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"the key {key_file} does not match it", False
        return f"the key {key_file} contains no usable PEM key", False
    except OSError as error:
        text = f"the key {key_file}: {error.strerror or error}"
        return text, isinstance(error, PermissionError)
    except ValueError as error:
        return f"the key {key_file}: {error}", False
    return "", False


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}Z"
