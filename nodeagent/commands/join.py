"""`nodeagent join`: makes this machine a node of a cluster, with one command and a token."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from nodeagent.certificates import discovery, joining
from nodeagent.certificates.joining import Cluster, Place
from orch.client.transport import Transport, TransportError
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.wire import names
from orch.wire.bootstrap_tokens import TOKEN
from orch.wire.validation import dns1123_subdomain_problems

SERVICE = "nodeagent.service"
SETTINGS = "/etc/nodeagent"
_SKEW_S = 120.0
_SYSTEMCTL_S = 60.0
_CERTIFICATE_BYTES = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="https://SERVER:6443", help="address of the API server")
    parser.add_argument(
        "--token", default="", help="from 'orchctl token create', or the file that holds it: @FILE"
    )
    authority = parser.add_mutually_exclusive_group(required=True)
    authority.add_argument("--ca-hash", default="", help="sha256:… of the cluster authority's key")
    authority.add_argument("--ca-file", default="", help="its certificate, instead of the hash")
    parser.add_argument("--node-name", default="", help="default: this machine's host name")
    parser.add_argument("--node-ip", default="", help="address to report for this node")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="for each thing waited for"
    )
    parser.add_argument(
        "--no-start", dest="start", action="store_false", help="do not start the service"
    )
    add_places(parser)


def add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings-dir", default=SETTINGS, help=f"default: {SETTINGS}")
    parser.add_argument("--root-dir", default=names.DEFAULT_ROOT_DIR, help="the agent's state")
    parser.add_argument("--cert-dir", default="", help="default: pki below --root-dir")


def place_of(args: argparse.Namespace) -> Place:
    certificates = args.cert_dir or f"{args.root_dir}/pki"
    return Place(Path(args.settings_dir).absolute(), Path(certificates).absolute())


def run(args: argparse.Namespace) -> int:
    """Exit code 0 once the node is Ready, or without `--start` once it may start."""
    os.umask(0o077)
    began_s = time.monotonic()
    place = place_of(args)
    name = (args.node_name or socket.gethostname()).lower()
    if dns1123_subdomain_problems(name):
        raise SetupError(f"{name!r} cannot be the name of a node: give one with --node-name")
    server = args.server.rstrip("/")
    authority = _authority(args, server)
    cluster = Cluster(server, authority, name, args.node_ip)
    try:
        asyncio.run(_enrol(cluster, place, args))
        joining.write_settings(cluster, place)
    except OSError as error:
        raise SetupError(
            f"cannot write {error.filename}: {error.strerror}; run this as root"
        ) from error
    if not args.start or not has_service():
        _say(f"node {name} may start: nodeagent --config={place.settings}/config.yaml"
             f" --config-dir={place.drop_in.parent} --kubeconfig={place.kubeconfig}"
             f" --hostname-override={name}")  # fmt: skip
        return 0
    systemctl("enable", SERVICE)
    systemctl("restart", SERVICE)
    try:
        node = asyncio.run(joining.until_ready(cluster, place, timeout_s=args.timeout))
    except SetupError as error:
        raise SetupError(f"{error}; see 'journalctl -u {SERVICE}'") from error
    serves = asyncio.run(joining.until_serving(node, clock.utc_now, timeout_s=args.timeout))
    _say(f"node {name} is Ready after {time.monotonic() - began_s:.0f} s")
    if node.spec.unschedulable:
        _say(f"it is cordoned, so no pods come to it: 'orchctl uncordon {name}' changes that")
    if not serves:
        _say("it serves without a certificate of the cluster yet, which logs, commands in pods and"
             " measurements need: see 'orchctl get csr'")  # fmt: skip
    return 0


def _authority(args: argparse.Namespace, server: str) -> bytes:
    now = clock.utc_now()
    if not args.ca_file:
        return discovery.find_authority(server, args.ca_hash, now)
    try:
        with Path(args.ca_file).open("rb") as file:
            pem = file.read(_CERTIFICATE_BYTES)
    except OSError as error:
        raise SetupError(f"cannot read --ca-file {args.ca_file}: {error.strerror}") from error
    discovery.require_trust(server, pem, now)
    return pem


async def _enrol(cluster: Cluster, place: Place, args: argparse.Namespace) -> None:
    if skew := await _skew(cluster):
        _say(f"warning: {skew}")
    if await joining.is_member(cluster, place, clock.utc_now()):
        _say(f"this machine has the certificate of node {cluster.node_name} already")
        return
    token = _token(args.token)
    request = await joining.enrol(cluster, place, token, timeout_s=args.timeout)
    _say(f"the cluster gave this machine the certificate of node {cluster.node_name} ({request})")


def _token(given: str) -> str:
    if given.startswith("@"):
        try:
            given = Path(given[1:]).read_text(encoding="ascii").split()[0]
        except (OSError, ValueError, IndexError):
            raise SetupError(f"cannot read the token from {given[1:]}") from None
    if not TOKEN.fullmatch(given):  # not quoted: it is a secret
        raise SetupError(
            "--token is missing or no token (six characters, a dot, sixteen more): 'orchctl token"
            " create' makes one"
        )
    return given


async def _skew(cluster: Cluster) -> str:
    """How this machine's clock differs from the server's; "" when it does not much."""
    transport = Transport(cluster.anonymous(), timeout_s=discovery.TIMEOUT_S)
    try:
        answer = await transport.request("GET", "/version")
        ahead_s = (clock.utc_now() - parsedate_to_datetime(answer.headers["Date"])).total_seconds()
    except TransportError as error:
        raise SetupError(str(error)) from error
    except (KeyError, ValueError, TypeError):
        return ""
    finally:
        await transport.close()
    if abs(ahead_s) < _SKEW_S:
        return ""
    side = "ahead of" if ahead_s > 0 else "behind"
    return (
        f"the clock of this machine is {abs(ahead_s):.0f} s {side} the server's: certificates and"
        " tokens may seem expired or not valid yet; set it (timedatectl set-ntp true)"
    )


def has_service() -> bool:
    """Whether systemd runs here and knows the agent's service."""
    if not Path("/run/systemd/system").is_dir() or not shutil.which("systemctl"):
        return False
    return systemctl("cat", SERVICE, check=False) == 0


def systemctl(*words: str, check: bool = True) -> int:
    """Its exit code; with `check` SetupError when it fails."""
    try:
        done = subprocess.run(
            ["systemctl", *words], capture_output=True, timeout=_SYSTEMCTL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"systemctl {' '.join(words)} failed: {error}") from error
    if check and done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise SetupError(f"systemctl {' '.join(words)} failed: {said}")
    return done.returncode


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def joined_name(place: Place) -> str:
    """The node that this machine joined as; SetupError when it did not join."""
    try:
        text = place.environment.read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"--hostname-override=([^\s\"]+)", text)
    if found is None:
        raise SetupError(
            f"this machine has not joined a cluster by 'nodeagent join': {place.environment} is not"
            " there"
        )
    return found[1]
