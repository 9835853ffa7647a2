"""`orchctl create namespace|serviceaccount|configmap|token`: from options, not a file."""

from __future__ import annotations

import argparse
import base64
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from orch.ctl import changes, forms, session
from orch.ctl.api import Api, given
from orch.ctl.commands import Verb
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.options import seconds
from orch.wire import raw
from orch.wire.names import AUTHENTICATION_GROUP

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_BINDABLE = ("Pod", "Secret", "Node")

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
    # What is only shown is for any namespace, unless one is asked for.
    named = namespace if args.dry_run != "client" or args.namespace else ""
    metadata = {"name": args.name, **({"namespace": named} if named else {})}
    members = await fill(args, api, discovery)
    record: Record = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}
    if args.dry_run != "client":
        params = changes.parameters(args, strict=True)
        record = await api.send("POST", resource.path(namespace), record, params=params)
    changes.show(record, resource, "created", args)
    return 0


async def _nothing(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    return {}


def add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-literal", action="append", default=[], metavar="KEY=VALUE", help="one entry"
    )
    parser.add_argument(
        "--from-file", action="append", default=[], metavar="[KEY=]FILE",
        help="the content of a file, by its name or KEY; of a directory, its files",
    )  # fmt: skip
    parser.add_argument(
        "--from-env-file", action="append", default=[], metavar="FILE",
        help="an entry of each line KEY=VALUE; of KEY alone, from the environment",
    )  # fmt: skip


def entries(args: argparse.Namespace) -> dict[str, bytes]:
    """The data that the options give; CommandFailed for a file that cannot be read."""
    found: dict[str, bytes] = {}
    if args.from_env_file and (args.from_literal or args.from_file):
        raise WrongUsage("--from-env-file does not go with --from-literal and --from-file")
    for name in args.from_env_file:
        for key, value in _variables(name):
            _put(found, key, value.encode())
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
            _put(found, key or file.name, content(str(file)))
    return found


def _put(found: dict[str, bytes], key: str, value: bytes) -> None:
    if not _KEY.fullmatch(key) or key in (".", ".."):
        raise WrongUsage(f"{key!r} is no key: it consists of letters, digits, '-', '_' and '.'")
    if key in found:
        raise WrongUsage(f"the key {key!r} is given twice")
    found[key] = value


def _variables(name: str) -> Iterator[tuple[str, str]]:
    """The lines of a file of variables: `KEY=VALUE`, or `KEY` for that of the environment."""
    try:
        lines = content(name).decode().removeprefix("\ufeff").splitlines()
    except UnicodeDecodeError:
        raise CommandFailed(f"cannot read {name}: it is not UTF-8 text") from None
    for number, line in enumerate(map(str.lstrip, lines), 1):
        key, equals, value = line.partition("=")
        if not line or line.startswith("#"):
            continue
        if not _VARIABLE.fullmatch(key):  # not quoted: the line may hold a secret
            raise CommandFailed(f"{name}:{number}: this is not KEY=VALUE")
        if equals or key in os.environ:
            yield key, value if equals else os.environ[key]


def content(path: str) -> bytes:
    """What is in a file; CommandFailed when it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None


async def _config_map(args: argparse.Namespace, api: Api, discovery: Discovery) -> Record:
    """Text in `data`, everything else in `binaryData`."""
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, value in entries(args).items():
        try:
            data[key] = value.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(value).decode()
    return {name: part for name, part in (("data", data), ("binaryData", binary)) if part}


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the service account")
    parser.add_argument("--duration", type=seconds, default=0.0, help="how long it is good for")
    parser.add_argument("--audience", action="append", default=[], help="for whom (repeatable)")
    parser.add_argument(
        "--bound-object-kind", choices=_BINDABLE, default="", help="good as long as this object is"
    )
    parser.add_argument("--bound-object-name", default="", metavar="NAME", help="its name")
    parser.add_argument("--bound-object-uid", default="", metavar="UID", help="its uid")
    forms.add_to(parser, (*forms.DATA, "jsonpath", "jsonpath-file"))


def _run_token(args: argparse.Namespace) -> int:
    if bool(args.bound_object_kind) != bool(args.bound_object_name):
        raise WrongUsage("--bound-object-kind and --bound-object-name belong together")
    return session.run(args, _create_token)


async def _create_token(api: Api, args: argparse.Namespace) -> int:
    """Print a token for a service account; it is stored nowhere."""
    account = (await Discovery(api).of_kind("v1", "ServiceAccount")).path(
        api.namespace, args.name, "token"
    )
    spec: Record = {"audiences": args.audience} if args.audience else {}
    if args.duration:
        spec["expirationSeconds"] = round(args.duration)
    if args.bound_object_kind:
        spec["boundObjectRef"] = {
            "apiVersion": "v1", "kind": args.bound_object_kind,
            **given(name=args.bound_object_name, uid=args.bound_object_uid),
        }  # fmt: skip
    body = {"apiVersion": f"{AUTHENTICATION_GROUP}/v1", "kind": "TokenRequest", "spec": spec}
    async with api.naming(account):
        answer = await api.send("POST", account, body)
    if args.output:
        forms.show(args.output, answer)
    else:
        print(raw.text(answer, "status", "token"))
    return 0


NAMESPACE = verb("v1", "Namespace", _nothing, "orchctl create namespace shop")
ACCOUNT = verb("v1", "ServiceAccount", _nothing, "orchctl create serviceaccount web -n shop")
CONFIG_MAP = verb(
    "v1", "ConfigMap", _config_map,
    "orchctl create configmap settings --from-literal mode=fast --from-file web.conf", add_data,
)  # fmt: skip
TOKEN = Verb(_add_token, _run_token, "orchctl create token web -n shop --duration 1h")
