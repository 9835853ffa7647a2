"""`orchctl token`: the tokens by which machines join, which are Secrets in the system namespace."""

from __future__ import annotations

import argparse
import secrets
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from orch.client.kubeconfig import ClientConfig
from orch.component.certificates import public_key_hash
from orch.component.process import clock
from orch.component.terminal import one_line
from orch.ctl import api, changes
from orch.ctl.api import Api
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.options import seconds
from orch.ctl.output import formats, printing
from orch.wire import bootstrap_tokens, raw
from orch.wire.bootstrap_tokens import ALPHABET, GROUP, PREFIX, TOKEN, TOKEN_ID, TYPE
from orch.wire.names import SYSTEM_NAMESPACE
from orch.wire.records.kinds import SECRETS
from orch.wire.tables.layout import since

DAY_S = 86400.0


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wanted", metavar="TOKEN", nargs="?", default="", help="default: a new one")
    parser.add_argument(
        "--ttl", type=seconds, default=DAY_S, metavar="TIME",
        help="how long machines can join with it: 1h, 24h; 0 is forever",
    )  # fmt: skip
    parser.add_argument("--description", default="", help="what it is for")
    parser.add_argument(
        "--groups", action="append", default=[], metavar="GROUP",
        help="further group of those machines, system:bootstrappers:… (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--print-join-command", action="store_true", help="print the whole command for the machine"
    )


def _run_create(args: argparse.Namespace) -> int:
    if args.wanted and not TOKEN.fullmatch(args.wanted):
        raise WrongUsage("a token is six characters of a-z and 0-9, a dot, and sixteen more")
    for group in args.groups:
        if not GROUP.fullmatch(group):
            raise WrongUsage(f"--groups {group!r} is not below system:bootstrappers:")
    return api.run(args, _create)


async def _create(api: Api, args: argparse.Namespace) -> int:
    picked = ["".join(secrets.choice(ALPHABET) for _ in range(length)) for length in (6, 16)]
    token = args.wanted or ".".join(picked)
    # Read before anything is made: without it the command could not be printed.
    command = _join_command(api.transport.config, token) if args.print_join_command else token
    end = clock.utc_now() + timedelta(seconds=args.ttl) if args.ttl else None
    secret = bootstrap_tokens.secret_of(
        token, end, description=args.description, groups=args.groups
    )
    await api.send("POST", SECRETS.path(SYSTEM_NAMESPACE), secret)
    print(command)
    return 0


def _join_command(config: ClientConfig, token: str) -> str:
    """CommandFailed when the kubeconfig does not tell the CA."""
    try:
        pem = config.ca_data or Path(config.ca_file).read_bytes()
        pin = public_key_hash(pem)
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"the kubeconfig names no certificate authority that can be read ({error}): name it"
            " with --certificate-authority"
        ) from None
    return f"nodeagent join {config.server} --token {token} --ca-hash {pin}"


def _add_list(parser: argparse.ArgumentParser) -> None:
    formats.add_to(parser, formats.DATA)


async def _list(api: Api, args: argparse.Namespace) -> int:
    """The tokens without their secret parts."""
    now = clock.utc_now()
    rows = []
    records = []
    for secret in await api.items(SECRETS.path(SYSTEM_NAMESPACE)):
        values = bootstrap_tokens.values_of(secret)
        if raw.text(secret, "type") != TYPE or not values.get("token-id"):
            continue
        end = values.get("expiration", "")
        state = "expired" if bootstrap_tokens.is_past(end, now) else "usable"
        record: dict[str, Any] = {
            "id": values["token-id"],
            "state": state,
            "expiration": end or None,
            "groups": values.get("auth-extra-groups", "").split(",")
            if values.get("auth-extra-groups")
            else [],
            "description": values.get("description", ""),
        }
        records.append(record)
        age = since(raw.text(secret, "metadata", "creationTimestamp"), now)
        rows.append((record["id"], state, end or "never", age, record["description"] or "<none>"))
    if args.output:
        formats.show(args.output, records)
    elif rows:
        shown = [tuple(map(one_line, row)) for row in sorted(rows)]
        print("\n".join(printing.columns([("ID", "STATE", "ENDS", "AGE", "DESCRIPTION"), *shown])))
    else:
        print("No tokens found: 'orchctl token create' makes one")
    return 0


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="+", help="a token, or the part before its dot")


async def _delete(api: Api, args: argparse.Namespace) -> int:
    async def delete(given: str) -> None:
        token_id = given.partition(".")[0]
        if not TOKEN_ID.fullmatch(token_id):  # not quoted: it may be a secret
            raise WrongUsage("the id of a token is six characters of a-z and 0-9")
        await api.call("DELETE", SECRETS.path(SYSTEM_NAMESPACE, PREFIX + token_id))
        print(f"token {token_id} deleted")

    return await changes.each(args.ids, delete)


CREATE = Verb(
    _add_create, _run_create,
    "orchctl token create --print-join-command\norchctl token create --ttl 1h --description rack-7",
)  # fmt: skip
LIST = Verb(_add_list, partial(api.run, action=_list), "orchctl token list")
DELETE = Verb(_add_delete, partial(api.run, action=_delete), "orchctl token delete abc123")
