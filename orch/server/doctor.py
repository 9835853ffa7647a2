"""`orch-apiserver doctor`: whether the certificates of this host's servers can be used together.

Looks at the files that the packages' units read, and changes nothing: at each certificate with its
key, and in TLS handshakes in memory whether those who meet each other believe each other.
"""

from __future__ import annotations

import argparse
import shlex
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from orch.client.kubeconfig import load_kubeconfig
from orch.client.tls import client_context
from orch.component import tls
from orch.component.certificates import expiry
from orch.component.diagnostics import findings
from orch.component.diagnostics.certificate_findings import (
    AS_ROOT,
    Advice,
    CertificateFacts,
    check_certificate,
    read_certificate,
    read_pair,
)
from orch.component.diagnostics.findings import Finding, fail, ok, warn
from orch.component.flags.program_flags import Parser
from orch.component.pki import KeyPair
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.server.authority import DEFAULT_DIRECTORY

DESCRIPTION = "Check the certificates of this host's servers: ends, keys, and who believes whom."
_INIT = "run 'orch-apiserver init'"
_LEAF = Advice(f"restore the pair, or move the certificate away and {_INIT}", _INIT)
_CA = Advice(
    "restore it from a backup, for machines have joined with it",
    f"move it and its key away and {_INIT}; every machine then joins anew",
)
# The unit does not start without the first, of the second it wants the key alone.
_NEEDED, _SIGNING = ("tls", "nodeagent-client"), "service-account"
_ROLES = {
    "tls": "serving", "nodeagent-client": "for agents", "service-account": "of service accounts",
    "controller-manager": "controller manager", "admin": "admin", "monitoring": "monitoring",
}  # fmt: skip
_KUBECONFIGS = ("controller-manager", "admin")
_EXPIRED, _NOT_YET, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64  # OpenSSL's X509_V_ERR_*
_ROUNDS = 8  # a handshake has three messages, and a refusal is told a round later
_DEFAULTS, _COPIES = Path("/etc/default"), Path("/run")
_ARGUMENTS = {
    "orch-apiserver": "APISERVER_ARGS",
    "orch-controller-manager": "CONTROLLER_MANAGER_ARGS",
}
# Unit → flag → the name of the file that the unit gives it.
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "orch-apiserver": {
        "--tls-cert-file": "tls.crt",
        "--tls-private-key-file": "tls.key",
        "--client-ca-file": "client-ca.crt",
        "--nodeagent-certificate-authority": "nodeagent-ca.crt",
        "--nodeagent-client-certificate": "nodeagent-client.crt",
        "--nodeagent-client-key": "nodeagent-client.key",
        "--service-account-signing-key-file": "service-account.key",
    },
    "orch-controller-manager": {"--kubeconfig": "controller-manager.kubeconfig"},
}
_COPIED = {
    "orch-apiserver": ("tls.key", "nodeagent-client.key"),
    "orch-controller-manager": ("controller-manager.kubeconfig", "controller-manager.key"),
}


@dataclass(frozen=True, slots=True)
class UnitFiles:
    """`named` are those that flags name: name of the file in `directory` → path.

    `copies` is the folder of the units' own folders; None where no unit is concerned.
    """

    directory: Path
    named: Mapping[str, str] = field(default_factory=dict)
    copies: Path | None = None

    def at(self, name: str) -> Path:
        return Path(self.named.get(name) or self.directory / name)

    def pair(self, name: str) -> KeyPair:
        return KeyPair(str(self.at(f"{name}.crt")), str(self.at(f"{name}.key")))

    def outdated(self) -> Iterator[tuple[str, Path, Path]]:
        """Unit, file and copy where these two differ. Blocking I/O."""
        if self.copies is None:
            return
        for unit, names in _COPIED.items():
            for name in names:
                path, copy = self.directory / name, self.copies / unit / name
                if name not in self.named and _differ(path, copy):
                    yield unit, path, copy


def run(argv: Sequence[str]) -> int:
    """Exit code 0, 1 when something keeps a server or its clients from working, 2 for a warning."""
    parser = Parser(prog="orch-apiserver doctor", description=DESCRIPTION, allow_abbrev=False)
    add_arguments(parser)
    args = parser.parse_args(argv)
    found = list(_examine(args.dir, clock.utc_now()))
    show = findings.as_json if args.output == "json" else findings.as_text
    sys.stdout.write(show(found))
    return findings.exit_code(found)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        type=Path,
        help="where they are; default: the files of the packages' units, which are those in"
        f" {DEFAULT_DIRECTORY} and those that flags in /etc/default name",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def _examine(directory: Path | None, now: datetime) -> Iterator[Finding]:
    try:
        files = UnitFiles(directory) if directory else of_the_units()
    except (OSError, ValueError) as error:
        step = AS_ROOT if isinstance(error, PermissionError) else "correct it"
        yield fail("settings", str(error), step)
        files = UnitFiles(Path(DEFAULT_DIRECTORY))
    yield from examine(files, now)


def of_the_units(
    directory: Path = Path(DEFAULT_DIRECTORY), defaults: Path = _DEFAULTS, copies: Path = _COPIES
) -> UnitFiles:
    """OSError, ValueError name the file of settings that cannot be read."""
    named: dict[str, str] = {}
    for unit, flags in _FLAGS.items():
        path = defaults / unit
        if path.exists():
            words = _words(path, _ARGUMENTS[unit])
            for word, following in pairwise([*words, ""]):
                flag, is_one, value = word.partition("=")
                if flag in flags:
                    named[flags[flag]] = value if is_one else following
    return UnitFiles(directory, named, copies)


def _words(path: Path, name: str) -> list[str]:
    """The words of a variable in a file of settings, as systemd takes them."""
    try:
        lines = path.read_text().replace("\\\n", " ").splitlines()
        given = [value for key, _, value in (line.partition("=") for line in lines) if key == name]
        return shlex.split(" ".join(shlex.split(given[-1]))) if given else []
    except ValueError as error:
        raise ValueError(f"{path}: {name}: {error}") from error


def _differ(path: Path, copy: Path) -> bool:
    """False where one of them is not there, or may not be read."""
    try:
        return path.read_bytes() != copy.read_bytes()
    except OSError:
        return False


def examine(files: UnitFiles, now: datetime) -> Iterator[Finding]:
    """The authorities, then what they issued, then who believes whom, then the units' copies."""
    if not any(files.at(f"{name}.crt").exists() for name in ("ca", *_NEEDED)):
        step = f"{_INIT}, or give --dir the directory that the servers read"
        yield fail("authority", f"there are no certificates in {files.directory}", step)
        return
    usable = set()
    for name, facts, advice in _held(files):
        yield from check_certificate(facts, now, advice)
        if facts.usable(now):
            usable.add(name)
    for name, authority in (("nodeagent-client", "ca"), ("monitoring", "client-ca")):
        if {name, authority, "tls"} <= usable:
            yield from _client(files, name, authority)
    for name in _KUBECONFIGS:
        if files.at(f"{name}.kubeconfig").exists():
            yield from _kubeconfig(files, name, now, served={"tls", "client-ca"} <= usable)
    for unit, path, copy in files.outdated():
        text = f"{unit} runs with a copy, {copy}, that differs from {path}"
        yield warn(f"copy of {path.name}", text, f"systemctl reload {unit}")


def _held(files: UnitFiles) -> Iterator[tuple[str, CertificateFacts, Advice]]:
    """The name of each certificate, what is seen of it, and what to do about it."""
    for name, role in (("ca", "authority"), ("nodeagent-ca", "authority of agents")):
        pair, advice = files.pair(name), _advice(files, name, _CA)
        if Path(pair.key_file).exists() and f"{name}.crt" not in files.named:
            yield name, read_pair(role, pair.cert_file, pair.key_file), advice
        else:  # it is kept elsewhere
            yield name, read_certificate(role, pair.cert_file), advice
    clients = read_certificate("authority of clients", str(files.at("client-ca.crt")))
    yield "client-ca", clients, _advice(files, "client-ca", Advice(_INIT, _INIT))
    for name, role in _ROLES.items():
        pair = files.pair(name)
        is_needed = name in _NEEDED or (name == _SIGNING and not Path(pair.key_file).exists())
        if is_needed or Path(pair.cert_file).exists():
            facts = read_pair(role, pair.cert_file, pair.key_file)
            yield name, facts, _advice(files, name, _LEAF)


def _advice(files: UnitFiles, name: str, advice: Advice) -> Advice:
    """`init` makes no files that flags name."""
    is_named = files.named.keys() & {f"{name}.crt", f"{name}.key"}
    return Advice("correct the file, or the flag that names it") if is_named else advice


def _kubeconfig(files: UnitFiles, name: str, now: datetime, *, served: bool) -> Iterator[Finding]:
    """Whether it can be used and, if the server's files can, those two believe each other."""
    check, path = f"kubeconfig {name}", str(files.at(f"{name}.kubeconfig"))
    try:
        config = load_kubeconfig(path)
        if config.cert_data:
            held = CertificateFacts(f"in {name}.kubeconfig", path, expiry(config.cert_data))
            yield from check_certificate(held, now, Advice(renew=_INIT))
        client = client_context(config)
    except (SetupError, ValueError) as error:
        closed = isinstance(error.__cause__, PermissionError)
        yield fail(check, str(error), AS_ROOT if closed else f"{_INIT}, which writes it anew")
        return
    if not served:
        return
    host = config.tls_server_name or urlsplit(config.server).hostname or ""
    refusal = _handshake(_server(files, "client-ca"), client, host)
    if refusal is None:
        yield ok(check, f"{path} and the server believe each other")
    else:
        yield from _refused(check, path, files.at("client-ca.crt"), refusal)


def _client(files: UnitFiles, name: str, authority: str) -> Iterator[Finding]:
    """Whether a server that believes this authority believes this client certificate."""
    pair, ca_file = files.pair(name), files.at(f"{authority}.crt")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    tls.load_certificate(client, pair.cert_file, pair.key_file)
    refusal = _handshake(_server(files, authority), client, "")
    check = f"authority of {name}"
    if refusal is None:
        yield ok(check, f"{ca_file} holds the authority of {pair.cert_file}")
    else:
        yield from _refused(check, pair.cert_file, ca_file, refusal)


def _server(files: UnitFiles, authority: str) -> ssl.SSLContext:
    pair, ca_file = files.pair("tls"), files.at(f"{authority}.crt")
    return tls.server_context(pair.cert_file, pair.key_file, client_ca_file=str(ca_file))


def _refused(check: str, path: str, authority: Path, refusal: _Refusal) -> Iterator[Finding]:
    """Of a handshake between the holder of `path` and one that serves `tls.crt`."""
    if refusal.code == _EXPIRED:
        return  # that certificate has a finding of its own
    elif refusal.code == _NOT_YET:
        yield fail(check, f"{path}: {refusal.text}", "set the clock of this machine")
    elif refusal.code in (_OTHER_NAME, _OTHER_ADDRESS):
        step = f"{_INIT} with a --host for each name and address of this server"
        yield fail(check, f"{path}: tls.crt does not fit: {refusal.text}", step)
    elif refusal.by_client:
        step = f"put the authority of tls.crt into it, or move tls.crt away and {_INIT}"
        yield fail(check, f"{path} does not believe tls.crt: {refusal.text}", step)
    else:
        text = f"{authority} does not hold the authority of {path}: {refusal.text}"
        yield fail(check, text, f"put it there, or move the certificate away and {_INIT}")


class _Refusal(NamedTuple):
    """`code` is OpenSSL's, 0 where it is no matter of certificates."""

    by_client: bool
    code: int
    text: str


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> _Refusal | None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host or None),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_ROUNDS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return _Refusal(not end.server_side, error.verify_code, error.verify_message)
            except ssl.SSLError as error:
                return _Refusal(not end.server_side, 0, error.reason or str(error))
    return None
