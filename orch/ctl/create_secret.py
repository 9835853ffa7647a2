"""`orchctl create secret generic|tls|docker-registry`: from options, not a file."""

from __future__ import annotations

import argparse
import base64
import ssl
from collections.abc import Mapping

import orjson

from orch.ctl.api import Api, given
from orch.ctl.create_kinds import Record, add_data, content, entries, verb
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage

_REGISTRY = "https://index.docker.io/v1/"
_OPTIONS: Mapping[str, tuple[str, ...]] = {  # that go with one kind only
    "generic": ("from_literal", "from_env_file", "type"),
    "tls": ("cert", "key"),
    "docker-registry": (
        "docker_server", "docker_username", "docker_password", "docker_email",
    ),
}  # fmt: skip


def _add_secret(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", nargs="?", choices=tuple(_OPTIONS), default="generic", metavar="KIND",
        help="generic (may be left out), tls or docker-registry",
    )  # fmt: skip
    add_data(parser)
    parser.add_argument("--type", default="", help="type of a generic secret")
    parser.add_argument("--cert", default="", metavar="FILE", help="tls: the certificate, in PEM")
    parser.add_argument("--key", default="", metavar="FILE", help="tls: its key, in PEM")
    parser.add_argument(
        "--docker-server", default="", metavar="URL", help=f"registry (default {_REGISTRY})"
    )
    for name, text in (("username", "user"), ("password", "password"), ("email", "address")):
        parser.add_argument(f"--docker-{name}", default="", help=f"{text} at the registry")


async def _secret(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    for kind, names in _OPTIONS.items():
        strange = [name for name in names if kind != args.kind and getattr(args, name)]
        if strange:
            option = strange[0].replace("_", "-")
            raise WrongUsage(f"--{option} is for 'create secret {kind}', not for {args.kind}")
    type_, data = _KINDS[args.kind](args)
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {**given(type=type_), **({"data": encoded} if encoded else {})}


def _generic(args: argparse.Namespace) -> tuple[str, dict[str, bytes]]:
    return args.type, entries(args)


def _tls(args: argparse.Namespace) -> tuple[str, dict[str, bytes]]:
    if not args.cert or not args.key or args.from_file:
        raise WrongUsage("a tls secret needs --cert and --key, and takes nothing else")
    data = {"tls.crt": content(args.cert), "tls.key": content(args.key)}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(args.cert, args.key)
    except ssl.SSLError as error:
        why = (error.reason or "they are not PEM").replace("_", " ").lower()
        raise CommandFailed(f"{args.cert} and {args.key} are no pair: {why}") from None
    return "kubernetes.io/tls", data


def _registry(args: argparse.Namespace) -> tuple[str, dict[str, bytes]]:
    data = entries(args)
    if not data:
        if not args.docker_username or not args.docker_password:
            raise WrongUsage("give --docker-username and --docker-password, or --from-file")
        pair = f"{args.docker_username}:{args.docker_password}".encode()
        login = given(
            username=args.docker_username, password=args.docker_password,
            email=args.docker_email, auth=base64.b64encode(pair).decode(),
        )  # fmt: skip
        auths = {"auths": {args.docker_server or _REGISTRY: login}}
        data = {".dockerconfigjson": orjson.dumps(auths)}
    return "kubernetes.io/dockerconfigjson", data


_KINDS = {"generic": _generic, "tls": _tls, "docker-registry": _registry}

SECRET = verb(
    "v1", "Secret", _secret,
    """
orchctl create secret login --from-file password=password.txt
orchctl create secret tls web --cert web.crt --key web.key
orchctl create secret docker-registry pull --docker-username jane --docker-password "$PASSWORD"
""",
    _add_secret,
)  # fmt: skip
