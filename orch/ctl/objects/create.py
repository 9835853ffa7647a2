"""`orchctl create -f`, new objects from files; `orchctl create token`, of a service account."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from orch.client.transport import given
from orch.ctl import api, changes, manifests
from orch.ctl.api import Api
from orch.ctl.command_table import Verb
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.ctl.output import formats
from orch.wire import raw
from orch.wire.names import AUTHENTICATION_GROUP

_BINDABLE = ("Pod", "Secret", "Node")


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)  # for the shell to complete
    manifests.add_filename(parser)
    changes.add_validate(parser)
    changes.add_write(parser, "cli-create")
    changes.add_output(parser)


def _run_files(args: argparse.Namespace) -> int:
    if args.words or not args.filename:
        raise WrongUsage("nothing to create: give the objects with -f FILE, or 'token NAME'")
    return api.run(args, partial(_create_all, manifests.named(args)))


async def _create_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def create(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        record = manifest.record
        if args.dry_run != "client":
            path = resource.path(manifest.namespace if resource.namespaced else "")
            record = await api.send("POST", path, record, params=changes.parameters(args))
        return record, "created"

    return await changes.each_manifest(found, create, api, args)


def _add_token(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="ACCOUNT", help="name of the service account")
    parser.add_argument("--duration", type=seconds, default=0.0, help="how long it is valid")
    parser.add_argument("--audience", action="append", default=[], help="for whom (repeatable)")
    parser.add_argument(
        "--bound-object-kind", choices=_BINDABLE, default="", help="valid while this object exists"
    )
    parser.add_argument("--bound-object-name", default="", metavar="NAME", help="its name")
    parser.add_argument("--bound-object-uid", default="", metavar="UID", help="its uid")
    formats.add_to(parser, formats.DATA)


def _run_token(args: argparse.Namespace) -> int:
    if bool(args.bound_object_kind) != bool(args.bound_object_name):
        raise WrongUsage("--bound-object-kind and --bound-object-name belong together")
    return api.run(args, _create_token)


async def _create_token(api: Api, args: argparse.Namespace) -> int:
    """Print a token for a service account; it is stored nowhere."""
    accounts = await Discovery(api).of_kind("v1", "ServiceAccount")
    path = accounts.path(api.namespace, args.name, "token")
    spec: dict[str, Any] = {"audiences": args.audience} if args.audience else {}
    if args.duration:
        spec["expirationSeconds"] = round(args.duration)
    if args.bound_object_kind:
        bound = given(name=args.bound_object_name, uid=args.bound_object_uid)
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": args.bound_object_kind, **bound}
    body = {"apiVersion": f"{AUTHENTICATION_GROUP}/v1", "kind": "TokenRequest", "spec": spec}
    async with api.suggesting(path):
        answer = await api.send("POST", path, body)
    if args.output:
        formats.show(args.output, answer)
    else:
        print(raw.text(answer, "status", "token"))
    return 0


FILES = Verb(
    _add_files, _run_files,
    "orchctl create -f pod.yaml\n"
    "orchctl create -f - --dry-run=server -o yaml\n"
    "orchctl create token web -n shop",
)  # fmt: skip
TOKEN = Verb(_add_token, _run_token, "orchctl create token web -n shop --duration 1h")
