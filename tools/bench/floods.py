"""Others' requests beside a flood: their p99 while a server is flooded, and while it is not.

Two API servers on one machine. A node and a tenant ask the first (`tests/attacks/witness.py`)
while nobody floods, while one user floods the second, and while the same flood meets the first:
`BENCH_FLOODS_ROUNDS` times by turns, `BENCH_FLOODS_SECONDS` each. The difference between the last
two is the server's doing; that between the first two is the machine's, which has to run the flood.
`BENCH_FLOODS_ONLY=writes` runs only floods with that in their name.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from tests.attacks import harness
from tests.attacks.flood import flooding
from tests.attacks.harness import MALLORY, TENANT, Attacked, Seen, head
from tools.bench.slow_clients import raise_open_files
from tools.bench.table import Table

SECONDS = float(os.environ.get("BENCH_FLOODS_SECONDS") or 15)
ROUNDS = int(os.environ.get("BENCH_FLOODS_ROUNDS") or 3)
ONLY = os.environ.get("BENCH_FLOODS_ONLY", "")
CLIENTS = 200
FLAGS = ("--max-connections=2000", "--max-namespace-mib=960")  # so that no write is refused
ACCOUNTS = tuple(f"system:serviceaccount:{TENANT}:a{number}" for number in range(1000))
TENANTS = tuple(f"{TENANT}-{number}" for number in range(10))  # each in a namespace of that name
_REVIEWS = "/apis/authorization.orch.io/v1/selfsubjectaccessreviews"
_REVIEW = b'{"spec":{"nonResourceAuthorizationAttributes":{"path":"/","verb":"get"}}}'
_OBJECTS = f"/api/v1/namespaces/{TENANT}/configmaps"
_OTHERS = f"/api/v1/namespaces/{TENANT}/secrets"  # what is patched is not among those listed
_DATA = {f"k{n}": "x" * 100 for n in range(100)}
_PATCHED = {"patched": _DATA, "large": {f"k{n}": "x" * 5000 for n in range(100)}}
_APPLIED = {"large": _PATCHED["large"], "wide": {f"k{n}": "x" * 40 for n in range(9000)}}
_WRITTEN = json.dumps({"metadata": {"generateName": "w"}, "data": _DATA}).encode()
_PATCHES = [json.dumps({"data": {"k0": f"{number:04}"}}).encode() for number in range(CLIENTS)]


def _applies(which: str) -> list[bytes]:
    """The whole of an object of each tenant, two forms of it by turns."""
    path = f"/api/v1/namespaces/{{}}/secrets/{which}?fieldManager=f&force=true"
    asked = []
    for k0 in ("a", "b"):
        made = {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": which},
            "data": {**_APPLIED[which], "k0": k0},
        }  # fmt: skip
        body = json.dumps(made).encode()
        asked += [_ask(name, "PATCH", path.format(name), body) for name in TENANTS]
    return [one.replace(b"application/json", b"application/apply-patch+yaml") for one in asked]


def _ask(user: str, method: str, path: str, body: bytes = b"") -> bytes:
    return head(user, method, path, len(body)) + body


def _patches(name: str) -> list[bytes]:
    asked = [_ask(TENANT, "PATCH", f"{_OTHERS}/{name}", body) for body in _PATCHES]
    return [one.replace(b"application/json", b"application/merge-patch+json") for one in asked]


FLOODS = {
    "a user without rights": [
        _ask(MALLORY, "POST", _REVIEWS, _REVIEW), _ask(MALLORY, "GET", "/api/v1/pods"),
    ],
    "a thousand service accounts": [_ask(name, "POST", _REVIEWS, _REVIEW) for name in ACCOUNTS],
    "a tenant's lists": [_ask(TENANT, "GET", _OBJECTS)],
    "a tenant's watches": [_ask(TENANT, "GET", f"{_OBJECTS}?watch=true")],
    "a tenant's patches": _patches("patched"),
    "a tenant's large objects": _patches("large"),
    "a tenant's writes": [_ask(TENANT, "POST", _OBJECTS, _WRITTEN)],
    "ten tenants' writes": [
        _ask(name, "POST", f"/api/v1/namespaces/{name}/configmaps", _WRITTEN) for name in TENANTS
    ],
    "ten tenants' large applies": _applies("large"),
    "ten tenants' wide applies": _applies("wide"),
    "wrong tokens": [_ask("nobody", "GET", "/api")],
    "new connections": [
        _ask(MALLORY, "GET", "/api").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    ],
}  # fmt: skip


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    raise_open_files()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        target, other = _servers(Path(name), stack)
        for what, requests in FLOODS.items():
            if ONLY in what:
                _measure(table, what, requests, target, other)
    print(f"\n{table.markdown()}")
    return table.missed


def _servers(directory: Path, stack: ExitStack) -> tuple[Attacked, Attacked]:
    """The one that is witnessed, and another with the same users and objects."""
    target, other = (_server(directory / name, stack) for name in ("first", "second"))
    return target, other


def _server(directory: Path, stack: ExitStack) -> Attacked:
    directory.mkdir()
    server = stack.enter_context(harness.attacked(directory, *FLAGS, users=ACCOUNTS + TENANTS))
    for name in TENANTS:
        server.make("/api/v1/namespaces", {"metadata": {"name": name}})
        harness.grant(server, name, namespace=name, role="edit")
    for name, data in _PATCHED.items():
        server.make(_OTHERS, {"metadata": {"name": name}, "data": data})
    return server


def _measure(
    table: Table, what: str, requests: list[bytes], target: Attacked, other: Attacked
) -> None:
    rest, elsewhere, here = list[Seen](), list[Seen](), list[Seen]()
    answered = Counter[int]()
    for _ in range(ROUNDS):
        rest.append(_witnessed(target, nullcontext(answered)))
        elsewhere.append(_witnessed(target, flooding(other, requests, CLIENTS, SECONDS)))
        flood = flooding(target, requests, CLIENTS, SECONDS)
        here.append(_witnessed(target, flood, answered))
    calm, beside, flooded = (
        statistics.median(s.p99_ms for s in r) for r in (rest, elsewhere, here)
    )
    table.row(f"{what}: others' p99, of that at rest", flooded / calm, at_most=3, unit=" x")
    table.row(f"{what}: of that beside the same flood of another", flooded / beside, at_most=3,
              unit=" x")  # fmt: skip
    table.note(
        f"{what}: others' p99 at rest, beside, flooded, ms",
        "; ".join(", ".join(f"{s.p99_ms:.1f}" for s in r) for r in (rest, elsewhere, here)),
    )
    table.note(f"{what}: requests answered a second", f"{answered.total() / SECONDS / ROUNDS:.0f}")
    table.row(f"{what}: others refused or cut off", sum(s.refused + s.errors for s in here),
              at_most=0)  # fmt: skip
    table.row(f"{what}: a Lease late by", max(s.lease_late_s for s in here), at_most=5, unit=" s")


def _witnessed(
    target: Attacked,
    flood: AbstractContextManager[Counter[int]],
    counted: Counter[int] | None = None,
) -> Seen:
    with target.witnessed() as seen, flood as answers:
        time.sleep(SECONDS)
    if counted is not None:
        counted.update(answers)
    return seen


if __name__ == "__main__":
    main()
