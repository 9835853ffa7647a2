"""`orch-apiserver init`: makes the authority of a cluster, and prints how machines join it.

Runs any number of times: keys are never replaced, certificates are issued anew in the last third
of their lives (servers that run take them over by themselves), and an ended token is replaced.
With `--renew` it does the second alone, as the packages' timer has it do.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from orch.client.kubeconfig import ClientConfig, load_kubeconfig, write_kubeconfig
from orch.component import pki
from orch.component.certificates import public_key_hash
from orch.component.flags.program_flags import Parser, duration
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import clock
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.server.controllers.bootstrap_tokens import read_first
from orch.wire import names, times
from orch.wire.bootstrap_tokens import ALPHABET

DESCRIPTION = "Make the keys and certificates of a cluster, and print how machines join it."
DEFAULT_DIRECTORY = "/etc/orch-apiserver"
_RENEW_BEFORE = timedelta(days=110)  # of a year
_UNITS = ("orch-apiserver", "orch-controller-manager")
_START_S = 150.0  # each has 60 s, and they start one after the other
_PROBE = ("192.0.2.1", 9)  # nothing is sent: the kernel only tells which address it would use


def run(argv: Sequence[str]) -> int:
    """Exit code 0, or 1 with a line on standard error."""
    args = _parser().parse_args(argv)
    os.umask(0o077)
    try:
        if args.renew:
            told = f"renewed: {' '.join(renew(args.dir, clock.utc_now())) or 'nothing ends soon'}\n"
        else:
            told = make(args.dir, args.host, args.port, args.token_ttl, clock.utc_now())
        if args.start:
            _start()
        sys.stdout.write(told)
    except (SetupError, OSError) as error:
        sys.stderr.write(f"orch-apiserver init: error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="orch-apiserver init", description=DESCRIPTION, allow_abbrev=False)
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(DEFAULT_DIRECTORY), help="where they are, and stay"
    )
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME|IP",
        help="name or address by which machines reach the server (repeatable; the first is shown"
        " to them); default: those of before, else this machine's",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=names.APISERVER_PORT, help="the server's port")
    parser.add_argument(
        "--token-ttl", type=duration, default=86400.0, metavar="DURATION",
        help="how long machines can join with the token that is made",
    )  # fmt: skip
    parser.add_argument(
        "--start", action="store_true", help=f"start {' and '.join(_UNITS)} by systemd then"
    )
    parser.add_argument(
        "--renew", action="store_true",
        help="only issue anew what ends soon of the certificates that this authority issued",
    )  # fmt: skip


def _start() -> None:
    """Start the packages' units and wait until they serve; SetupError."""
    try:
        done = subprocess.run(
            ["systemctl", "start", *_UNITS],
            capture_output=True, text=True, errors="replace", timeout=_START_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"systemctl start {' '.join(_UNITS)} failed: {error}") from error
    if done.returncode:
        raise SetupError(f"{done.stderr.strip()}; the keys and certificates are made")


def make(
    directory: Path, given: Sequence[str], port: int, token_ttl_s: float, now: datetime
) -> str:
    """Make what is missing; returns what to do next. SetupError, OSError."""
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(0o711)  # servers read their certificates, which are no secret, in it
    authority = Authority(
        directory, now=now, common_name="orch-ca", renew_before=_RENEW_BEFORE, keep=True
    )
    agents = Authority(
        directory, now=now, name="nodeagent-ca", common_name="orch-nodeagent-ca", keep=True
    )
    replace_file(directory / "client-ca.crt", Path(authority.ca_file).read_bytes(), mode=0o644)
    hosts = _hosts(given, pki.hosts_in(KeyPair.at(directory, "tls")))
    authority.issue(Subject("tls", "orch-apiserver", (), hosts, with_ca=True))
    authority.issue(Subject("nodeagent-client", names.USER_APISERVER))
    signing = authority.issue(Subject("service-account", "service-account"))
    server = f"https://{_in_url(hosts[0])}:{port}"
    authority.issue(Subject("monitoring", "prometheus", (names.GROUP_MONITORING,)))
    _write_kubeconfigs(authority, directory, server)
    token = _token(directory / "bootstrap-token", token_ttl_s, now)
    pin = public_key_hash(Path(authority.ca_file).read_bytes())
    return _advice(directory.absolute(), agents.ca_file, signing, server, token, pin)


def _write_kubeconfigs(authority: Authority, directory: Path, server: str) -> None:
    config = ClientConfig(server, ca_data=Path(authority.ca_file).read_bytes())
    pair = authority.issue(Subject("admin", "admin", (names.GROUP_MASTERS,)))
    cert, key = Path(pair.cert_file).read_bytes(), Path(pair.key_file).read_bytes()
    # With all in it: it may be taken to another machine.
    admin = dataclasses.replace(config, cert_data=cert, key_data=key)
    write_kubeconfig(str(directory / "admin.kubeconfig"), admin, name="admin")
    name = "controller-manager"
    pair = authority.issue(Subject(name, names.USER_CONTROLLER_MANAGER))
    # A daemon here takes over new files; its unit hands it copies of this one and the key.
    daemon = dataclasses.replace(config, cert_file=pair.cert_file, key_file=pair.key_file)
    write_kubeconfig(str(directory / f"{name}.kubeconfig"), daemon, name=name, key_beside=True)


def renew(directory: Path, now: datetime) -> list[str]:
    """The names of the certificates issued anew, for the same keys. SetupError, OSError."""
    if not (directory / "ca.crt").exists():
        raise SetupError(f"there is no authority in {directory}: make one without --renew")
    authority = Authority(directory, now=now, renew_before=_RENEW_BEFORE, keep=True)
    names = sorted({path.stem for path in directory.glob("*.key")} - {"ca"})
    renewed = [name for name in names if authority.renew(name)]
    if "admin" in renewed and (kubeconfig := directory / "admin.kubeconfig").exists():
        config = load_kubeconfig(str(kubeconfig))
        if config.cert_data:
            pem = (directory / "admin.crt").read_bytes()
            held = dataclasses.replace(config, cert_data=pem)
            write_kubeconfig(str(kubeconfig), held, name="admin")
    return renewed


def _hosts(given: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """The names in the server's certificate; the first is shown to machines that join."""
    if given:
        return tuple(dict.fromkeys((*given, "localhost", "127.0.0.1", "::1")))
    if before:
        return tuple(before)
    own = [_own_address(), socket.gethostname().lower(), "localhost", "127.0.0.1", "::1"]
    return tuple(dict.fromkeys(filter(None, own)))


def _own_address() -> str:
    """The address of the default route; "" without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_PROBE)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _token(path: Path, ttl_s: float, now: datetime) -> str:
    """The token in the file; another one once its time is over."""
    if path.exists() and (first := read_first(path)) is not None:
        token, end = first
        if end > now:
            return token
    picked = ["".join(secrets.choice(ALPHABET) for _ in range(length)) for length in (6, 16)]
    token = ".".join(picked)
    end = now + timedelta(seconds=ttl_s)
    replace_file(path, f"{token} {times.format_time(end)}\n".encode())
    return token


def _advice(
    directory: Path, agents_ca: str, signing: KeyPair, server: str, token: str, pin: str
) -> str:
    at = directory
    return f"""The authority of the cluster is in {at}. Keep ca.key and nodeagent-ca.key secret.

The units of the packages read it: systemctl start orch-apiserver orch-controller-manager

By hand, run the API server with
  orch-apiserver --tls-cert-file={at}/tls.crt --tls-private-key-file={at}/tls.key \\
    --client-ca-file={at}/client-ca.crt --root-ca-file={at}/ca.crt \\
    --nodeagent-certificate-authority={agents_ca} \\
    --nodeagent-client-certificate={at}/nodeagent-client.crt \\
    --nodeagent-client-key={at}/nodeagent-client.key \\
    --service-account-signing-key-file={signing.key_file} \\
    --bootstrap-token-file={at}/bootstrap-token

and the controller manager with
  orch-controller-manager --kubeconfig={at}/controller-manager.kubeconfig \\
    --client-ca-file={at}/client-ca.crt \\
    --cluster-signing-cert-file={at}/ca.crt --cluster-signing-key-file={at}/ca.key \\
    --cluster-signing-nodeagent-serving-cert-file={at}/nodeagent-ca.crt \\
    --cluster-signing-nodeagent-serving-key-file={at}/nodeagent-ca.key

You are its administrator with
  export KUBECONFIG={at}/admin.kubeconfig

Machines join it with
  nodeagent join {server} --token {token} --ca-hash {pin}
"""
