"""`orchctl api-versions`: the groups the server has, in the versions it has them in."""

from __future__ import annotations

import argparse

from orch.ctl import session
from orch.ctl.api import Api
from orch.ctl.failures import visible
from orch.wire import raw

EXAMPLES = """
orchctl api-versions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None beyond the global options."""


def run(args: argparse.Namespace) -> int:
    return session.run(args, _list)


async def _list(api: Api, args: argparse.Namespace) -> int:
    core = raw.value(await api.get("/api"), "versions") or []
    groups = raw.records(await api.get("/apis"), "groups")
    found = [raw.text(one, "groupVersion") for g in groups for one in raw.records(g, "versions")]
    print("\n".join(visible(text) for text in sorted([*map(str, core), *found])))
    return 0
