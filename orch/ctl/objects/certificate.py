"""`orchctl certificate approve|deny`: decides on requests for certificates."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from orch.component.process import clock
from orch.component.terminal import one_line
from orch.ctl import api, changes
from orch.ctl.api import Api, segment
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed
from orch.wire import raw, times
from orch.wire.records.authentication import APPROVED, DENIED
from orch.wire.records.kinds import SIGNING_REQUESTS


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="requests, as 'orchctl get csr'")
    parser.add_argument("--message", default="", help="why, for whoever asked")


async def _decide(kind: str, api: Api, args: argparse.Namespace) -> int:
    async def decide(name: str) -> None:
        path = SIGNING_REQUESTS.path(name=segment(name))
        request = await api.read(path)
        known = [dict(one) for one in raw.records(request, "status", "conditions")]
        decided = [raw.text(one, "type") for one in known]
        other = DENIED if kind == APPROVED else APPROVED
        if other in decided:
            raise CommandFailed(f"{name} is {other.lower()} already: it has to be asked for anew")
        if kind not in decided:
            await api.send("PUT", f"{path}/approval", _with(request, known, kind, args.message))
        print(f"certificatesigningrequest/{one_line(name)} {kind.lower()}")

    return await changes.each(args.names, decide)


def _with(
    request: dict[str, Any], known: list[dict[str, Any]], kind: str, message: str
) -> dict[str, Any]:
    now = times.format_time(clock.utc_now())
    condition = {
        "type": kind,
        "status": "True",
        "reason": "OrchctlApprove" if kind == APPROVED else "OrchctlDeny",
        "message": message or f"{kind.lower()} by orchctl certificate",
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }
    status = {**raw.mapping(request, "status"), "conditions": [*known, condition]}
    return {**request, "status": status}


def _verb(kind: str, example: str) -> Verb:
    return Verb(_add, partial(api.run, action=partial(_decide, kind)), example)


APPROVE = _verb(APPROVED, "orchctl certificate approve node-csr-5d1c")
DENY = _verb(DENIED, "orchctl certificate deny node-csr-5d1c --message 'not one of ours'")
