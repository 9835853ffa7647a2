"""`orchctl create namespace|serviceaccount|configmap|secret|token`: from options, not a file."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from orch.ctl import changes, session
from orch.ctl.api import Api
from orch.ctl.commands import Verb
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.options import seconds
from orch.wire import raw
from orch.wire.names import AUTHENTICATION_GROUP

Record = dict[str, Any]
Fill = Callable[[argparse.Namespace, Api, Discovery], Awaitable[Record]]
Add = Callable[[argparse.ArgumentParser], None]


def verb(api_version: str, kind: str, fill: Fill, example: str, add: Add | None = None) -> Verb:
    """A command that makes one kind; `fill` gives the members beside its metadata."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        if add:
            add(parser)
        parser.add_argument("name", metavar="NAME", help=f"name of the {kind}")
        changes.add_dry_run(parser)
        changes.add_output(parser)
        changes.add_field_manager(parser, "cli-create")

    def run(args: argparse.Namespace) -> int:
        return session.run(args, partial(_create, api_version, kind, fill))

    return Verb(add_arguments, run, example)


async def _create(
    api_version: str, kind: str, fill: Fill, api: Api, args: argparse.Namespace
) -> int:
    discovery = Discovery(api)
    resource = await discovery.of_kind(api_version, kind)
    namespace = api.namespace if resource.namespaced else ""
    metadata = {"name": args.name, **({"namespace": namespace} if namespace else {})}
    members = await fill(args, api, discovery)
    record: Record = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}
    if args.dry_run != "client":
        params = changes.parameters(args, strict=True)
        record = await api.send("POST", resource.path(namespace), record, params=params)
    changes.show(record, resource, "created", args)
    return 0


async def _nothing(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    return {}


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-literal", action="append", default=[], metavar="KEY=VALUE", help="one entry"
    )
    parser.add_argument(
        "--from-file", action="append", default=[], metavar="[KEY=]FILE",
        help="the content of a file, by its name or KEY; of a directory, its files",
    )  # fmt: skip


def _add_secret(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("generic", nargs="?", choices=("generic",), help="may be left out")
    _add_data(parser)
    parser.add_argument("--type", default="Opaque", help="type of the secret")


def _entries(args: argparse.Namespace) -> dict[str, bytes]:
    """The data that the options give; CommandFailed for a file that cannot be read."""
    found: dict[str, bytes] = {}
    for text in args.from_literal:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise WrongUsage("--from-literal is KEY=VALUE")  # not quoted: it may be a secret
        _put(found, key, value.encode())
    for text in args.from_file:
        key, equals, name = text.rpartition("=")
        path = Path(name)
        files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
        if equals and path.is_dir():
            raise WrongUsage(f"--from-file {name} is a directory: leave the key out")
        for file in files:
            _put(found, key or file.name, _content(file))
    return found


def _put(found: dict[str, bytes], key: str, value: bytes) -> None:
    if key in found:
        raise WrongUsage(f"the key {key!r} is given twice")
    found[key] = value


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None


async def _config_map(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    """Text in `data`, everything else in `binaryData`."""
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, value in _entries(args).items():
        try:
            data[key] = value.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(value).decode()
    return {name: part for name, part in (("data", data), ("binaryData", binary)) if part}


async def _secret(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    encoded = {key: base64.b64encode(value).decode() for key, value in _entries(args).items()}
    return {"type": args.type, **({"data": encoded} if encoded else {})}


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the service account")
    parser.add_argument("--duration", type=seconds, default=0.0, help="how long it is good for")
    parser.add_argument("--audience", action="append", default=[], help="for whom (repeatable)")


def _run_token(args: argparse.Namespace) -> int:
    return session.run(args, _create_token)


async def _create_token(api: Api, args: argparse.Namespace) -> int:
    """Print a token for a service account; it is stored nowhere."""
    account = (await Discovery(api).of_kind("v1", "ServiceAccount")).path(
        api.namespace, args.name, "token"
    )
    spec: Record = {"audiences": args.audience} if args.audience else {}
    if args.duration:
        spec["expirationSeconds"] = round(args.duration)
    body = {"apiVersion": f"{AUTHENTICATION_GROUP}/v1", "kind": "TokenRequest", "spec": spec}
    print(raw.text(await api.send("POST", account, body), "status", "token"))
    return 0


NAMESPACE = verb("v1", "Namespace", _nothing, "orchctl create namespace shop")
ACCOUNT = verb("v1", "ServiceAccount", _nothing, "orchctl create serviceaccount web -n shop")
CONFIG_MAP = verb(
    "v1", "ConfigMap", _config_map,
    "orchctl create configmap settings --from-literal mode=fast --from-file web.conf", _add_data,
)  # fmt: skip
SECRET = verb(
    "v1", "Secret", _secret, "orchctl create secret login --from-file password=password.txt",
    _add_secret,
)  # fmt: skip
TOKEN = Verb(_add_token, _run_token, "orchctl create token web -n shop --duration 1h")
