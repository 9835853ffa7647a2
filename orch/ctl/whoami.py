"""`orchctl auth whoami`: the name, groups and extra values the server knows the caller by."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from orch.ctl import forms, printing, session
from orch.ctl.api import Api
from orch.wire import raw
from orch.wire.names import AUTHENTICATION_GROUP

EXAMPLES = """
orchctl auth whoami
orchctl auth whoami --as system:serviceaccount:shop:web -o json
"""
_PATH = f"/apis/{AUTHENTICATION_GROUP}/v1/selfsubjectreviews"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms.add_to(parser, (*forms.DATA, "jsonpath", "jsonpath-file"))


def run(args: argparse.Namespace) -> int:
    return session.run(args, _whoami)


async def _whoami(api: Api, args: argparse.Namespace) -> int:
    body = {"apiVersion": f"{AUTHENTICATION_GROUP}/v1", "kind": "SelfSubjectReview"}
    answer = await api.send("POST", _PATH, body)
    if args.output:
        forms.show(args.output, answer)
    else:
        rows = [("ATTRIBUTE", "VALUE"), *_rows(raw.mapping(answer, "status", "userInfo"))]
        print("\n".join(printing.columns(rows)))
    return 0


def _rows(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("Username", raw.text(user, "username")), ("UID", raw.text(user, "uid"))]
    rows.append(("Groups", _list(user.get("groups"))))
    extra = raw.mapping(user, "extra")
    rows += [(f"Extra: {key}", _list(value)) for key, value in sorted(extra.items())]
    return [(title, value) for title, value in rows if value]


def _list(values: Any) -> str:
    return f"[{' '.join(map(str, values))}]" if isinstance(values, list) and values else ""
