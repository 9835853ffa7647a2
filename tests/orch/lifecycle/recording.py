"""Records real histories anew: what real controllers were shown while hollow nodes had faults.

python -m tests.orch.lifecycle.recording [NAME…] writes tests/fixtures/histories/NAME.jsonl.

Each has an API server, controllers and nine hollow nodes in three zones, in processes of their own
and at the default times: all of them take 30 minutes, nearly all of it waiting.
"""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from orch.lifecycle.decide.records import Settings
from orch.wire import names
from tests.e2e import apiserver
from tests.e2e.apiserver import ApiServer
from tests.e2e.harness import ROOT, eventually
from tests.orch.lifecycle import histories
from tests.orch.lifecycle.histories import Look

ZONES, PER_ZONE = ("a", "b", "c"), 3
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PODS = "/api/v1/namespaces/default/pods"
# By the first word of a pod's name, as in the model: how it tolerates.
TOLERATIONS: dict[str, list[dict[str, Any]]] = {
    "default": [],
    "brief": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
    "never": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    "forever": [{"operator": "Exists"}],
}


class World:
    """What a scenario can do to the cluster."""

    def __init__(self, folder: Path, api: ApiServer) -> None:
        self.api = api
        self._folder = folder
        self._tls = ssl.create_default_context(cafile=api.ca_file)
        self._tls.load_cert_chain(api.admin.cert_file, api.admin.key_file)
        self._running: list[subprocess.Popen[str]] = []
        self._controls: dict[str, str] = {}  # zone → address

    def call(self, method: str, path: str, body: Any = None) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.api.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind},
        )
        with urllib.request.urlopen(request, timeout=60, context=self._tls) as answer:
            return json.loads(answer.read())

    def controller(self, *flags: str) -> subprocess.Popen[str]:
        """One more; the first to come leads."""
        tap = self._folder / f"tap-{len(self._running)}.jsonl"
        kubeconfig = f"--kubeconfig={self._folder / 'kubeconfig'}"
        return self._start("tests.orch.lifecycle.tapped", str(tap), kubeconfig,
                           "--secure-port=0", *flags)  # fmt: skip

    def nodes(self) -> None:
        """Nine hollow ones, in zones, with a pod of each kind."""
        for zone in ZONES:
            hollow = self._start("nodeagent.main", "hollow", f"--name-prefix={zone}-",
                                 f"--kubeconfig={self._folder / 'kubeconfig'}",
                                 f"--count={PER_ZONE}")  # fmt: skip
            assert hollow.stdout
            self._controls[zone] = hollow.stdout.readline().split()[-1]
        for zone in ZONES:
            for number in range(PER_ZONE):
                self.furnish(f"{zone}-{number:05d}")

    def furnish(self, node: str) -> None:
        """Say the zone, and place a ready pod of each kind that is not there."""
        eventually(lambda: self._ready(node), within_s=120, what=f"{node} is Ready", poll_s=0.5)
        labels = {names.LABEL_ZONE: node[0]}
        self.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
        there = {pod["metadata"]["name"] for pod in self.call("GET", PODS)["items"]}
        for kind, tolerations in TOLERATIONS.items():
            if (name := f"{kind}-{node}") not in there:
                self._place(name, node, tolerations)

    def fault(self, kind: str, zone: str, nodes: int = 1) -> list[str]:
        """Which nodes have it now."""
        return list(json.loads(self._post(zone, f"/faults?kind={kind}&count={nodes}")))

    def heal(self) -> None:
        for zone in ZONES:
            self._post(zone, "/heal")

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def looks(self) -> list[Look]:
        """What all the controllers were shown, in the order of time, from 0 on."""
        taps = (histories.read(tap)[1] for tap in self._folder.glob("tap-*.jsonl"))
        looks = sorted((look for tap in taps for look in tap), key=lambda k: k.view.stamp.now_s)
        begun_s = looks[0].view.stamp.now_s
        return [_since(begun_s, look) for look in looks]

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            process.wait(60)

    def _ready(self, node: str) -> bool:
        items = self.call("GET", "/api/v1/nodes")["items"]
        found = [one for one in items if one["metadata"]["name"] == node]
        conditions = found[0]["status"].get("conditions", []) if found else []
        return any((c["type"], c["status"]) == ("Ready", "True") for c in conditions)

    def _place(self, name: str, node: str, tolerations: Sequence[dict[str, Any]]) -> None:
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "busybox:1"}],
                "tolerations": tolerations}  # fmt: skip
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.call("POST", PODS, pod)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.call("PATCH", f"{PODS}/{name}/status", {"status": status})

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        with (self._folder / "processes.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._running.append(process)
        return process

    def _post(self, zone: str, path: str) -> bytes:
        request = urllib.request.Request(f"{self._controls[zone]}{path}", method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())


def _since(begun_s: float, look: Look) -> Look:
    stamp = replace(look.view.stamp, now_s=look.view.stamp.now_s - begun_s)
    return replace(look, view=replace(look.view, stamp=stamp))


# --- what happens: each ends with nodes that are not all alike, which the replay then settles


def silent(world: World) -> None:
    """One node, until its pods have gone; then it is back."""
    world.controller()
    world.nodes()
    world.wait(15)
    world.fault("silent", "a")
    world.wait(385)
    world.heal()
    world.wait(30)
    world.fault("silent", "b")


def unsteady(world: World) -> None:
    """Ready to and fro, a clock an hour ahead, answers two seconds late."""
    world.controller()
    world.nodes()
    world.fault("flapping", "a")
    world.fault("skewed", "b")
    world.fault("slow", "c")
    world.wait(120)
    world.heal()
    world.wait(20)


def restart(world: World) -> None:
    """The only controller is killed while a node is silent; the next begins from nothing."""
    first = world.controller("--leader-elect=false")
    world.nodes()
    world.fault("silent", "a")
    world.wait(40)
    first.kill()
    world.wait(5)
    world.controller("--leader-elect=false")
    world.wait(90)


def leaders(world: World) -> None:
    """A killed leader is followed when its claim has run out, a stopped one at once."""
    first = world.controller()
    world.nodes()
    second = world.controller()
    world.wait(10)
    world.fault("silent", "b")
    world.wait(20)
    first.kill()
    world.wait(40)
    world.controller()
    world.wait(20)
    second.terminate()
    world.wait(80)
    world.heal()
    world.wait(20)


def outage(world: World) -> None:
    """The API server stands still for longer than a view may be old."""
    world.controller("--leader-elect=false")
    world.nodes()
    world.fault("silent", "a")
    world.wait(30)
    world.api.process.send_signal(signal.SIGSTOP)
    world.wait(40)
    world.api.process.send_signal(signal.SIGCONT)
    world.wait(90)


def zone(world: World) -> None:
    """All of one zone, and back."""
    world.controller()
    world.nodes()
    world.fault("silent", "c", PER_ZONE)
    world.wait(120)
    world.heal()
    world.wait(20)
    world.fault("silent", "b", PER_ZONE)


def blackout(world: World) -> None:
    """Every zone; all come back, and one of them is silent again."""
    world.controller()
    world.nodes()
    for one in ZONES:
        world.fault("silent", one, PER_ZONE)
    world.wait(90)
    world.heal()
    world.wait(30)
    world.fault("silent", "a", PER_ZONE)


def deletion(world: World) -> None:
    """A node that has gone loses its object, and so does one whose agent lives."""
    world.controller()
    world.nodes()
    (gone,) = world.fault("silent", "a")
    world.wait(5)
    world.call("DELETE", f"/api/v1/nodes/{gone}")
    world.call("DELETE", "/api/v1/nodes/b-00001")
    world.furnish("b-00001")
    world.wait(60)
    world.heal()
    world.furnish(gone)
    world.wait(20)
    world.call("DELETE", f"/api/v1/nodes/{world.fault('silent', 'c')[0]}")


def never(world: World) -> None:
    """A node that a user made and no agent ever reports for."""
    world.controller()
    world.nodes()
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "d-00000"}}
    world.call("POST", "/api/v1/nodes", made)
    world.wait(80)


SCENARIOS: dict[str, Callable[[World], None]] = {
    one.__name__: one
    for one in (silent, unsteady, restart, leaders, outage, zone, blackout, deletion, never)
}


@contextmanager
def _world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="recording-") as name:
        folder = Path(name)
        with apiserver.running(folder) as api:
            world = World(folder, api)
            try:
                yield world
            finally:
                world.stop()


def _renumbered(text: str) -> str:
    """Short uids: they are only compared."""
    numbers = count(1)
    short: dict[str, str] = {}

    def shorten(found: str) -> str:
        return short.setdefault(found, f"u{next(numbers)}")

    return UID.sub(lambda match: shorten(match.group()), text)


def main(wanted: Sequence[str]) -> int:
    unknown = set(wanted) - set(SCENARIOS)
    if unknown:
        print(f"no history {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
        return 2
    histories.FOLDER.mkdir(exist_ok=True)
    for name in wanted or SCENARIOS:
        with _world() as world:
            SCENARIOS[name](world)
            world.wait(10)
            looks = world.looks()
        path = histories.FOLDER / f"{name}.jsonl"
        histories.write(path, Settings(), looks)
        path.write_text(_renumbered(path.read_text()))
        print(f"{path.name}: {len(looks)} decisions, {path.stat().st_size} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
