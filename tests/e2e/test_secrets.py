"""A secret in every place of the three programs that takes one, and it is shown nowhere.

Real processes at their most talkative, two with JSON logs and one with text, which say the same:
every page in every form, what they log, the audit log, the offline commands and the debug bundle
are searched. What records, errors and parsers show of secrets is a property each: test_secret.py,
test_kubeconfig.py, tests/nodeagent/commands/test_debug.py.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import ssl
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.process import clock
from orch.up.layout import issue_certificates
from tests import preloaded
from tests.e2e.harness import eventually
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime
from tests.orch.server.authn.test_credential_files import cheap
from tests.preloaded import Copy

pytestmark = [pytest.mark.may_block, pytest.mark.timeout(600), pytest.mark.seconds(10)]

PATIENCE_S = 120
NODE = "n1"
# What each is for; every one is really used by a program or sent to it.
SECRETS = {
    use: f"canary-{use}-0123456789abcdef"
    for use in (
        "node-token", "manager-password", "url-password", "url-query", "header", "bad-token",
        "bad-password", "object", "mistaken",
    )
}  # fmt: skip
STRUCTURED = "application/json;v=v1alpha1;g=config.orch.io;as="
ACCEPTED = ("*/*", "application/json", "application/openmetrics-text", f"{STRUCTURED}Statusz",
            f"{STRUCTURED}Flagz")  # fmt: skip
HEALTH = ("/healthz", "/livez", "/readyz")
COMMON = ("/metrics", "/metrics/slis", "/statusz", "/flagz", *HEALTH,
          *(f"{path}?verbose=" for path in HEALTH))  # fmt: skip
PAGES = {
    "apiserver": (*COMMON, "/configz", "/version", "/openapi/v3", "/apis", "/no/such",
                  f"/api/v1/nodes/{NODE}", f"/api/v1/nodes/{NODE}/proxy/configz",
                  f"/api/v1/nodes/{NODE}/proxy/flagz"),
    "manager": (*COMMON, "/configz", "/no/such"),
    "agent": (*COMMON, "/configz", "/pressure", "/stats/summary", "/metrics/resource", "/pods",
              "/runningpods/", "/metrics/containerstats", "/metrics/probes", "/checkpoint",
              "/containerLogs/a/b/c", "/no/such"),
    "read-only": ("/metrics", "/stats/summary", "/pods", "/healthz", "/configz"),
    "health": ("/healthz", "/configz"),
}  # fmt: skip
MODULES = {"apiserver": "orch.server.main", "manager": "orch.lifecycle.main",
           "agent": "nodeagent.main"}  # fmt: skip
HEAD = {"apiVersion": "nodeagent.config.orch.io/v1beta1", "kind": "NodeAgentConfiguration"}


class PodsAddress:
    """The server behind `staticPodURL`: remembers what it was told, answers with errors."""

    def __init__(self) -> None:
        self.told: set[str] = set()
        answers = iter((500, 302))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.told |= {handler.path, *handler.headers.values()}
                handler.send_response(next(answers, 200))
                handler.send_header("Location", "http://:x")
                handler.end_headers()
                handler.wfile.write(b"kind: [")

            def log_message(handler, *_: object) -> None:
                """Not on the test's output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @contextmanager
    def serving(self) -> Iterator[int]:
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        try:
            yield self.server.server_port
        finally:
            self.server.shutdown()
            thread.join()
            self.server.server_close()


class World:
    """The programs, their files, and everything they have shown."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self.folder = folder
        self.pki = issue_certificates(folder / "pki", NODE, now=clock.utc_now())
        self.ports = {name: free_port() for name in PAGES}
        self.shown: dict[str, str] = {}
        self.pods = PodsAddress()
        self._hashed = cheap(SECRETS["manager-password"])

    def needles(self) -> dict[str, str]:
        """What must not be shown: the secrets, as they are and as they travel, and all keys."""
        basic = (f"manager:{SECRETS['manager-password']}", f"user:{SECRETS['url-password']}")
        keys = {path.name: path.read_text().splitlines()[1] for path in self.folder.rglob("*.key")}
        encoded = {text: base64.b64encode(text.encode()).decode() for text in basic}
        data = {"data": base64.b64encode(SECRETS["object"].encode()).decode()}
        return {**SECRETS, **keys, **encoded, **data, "hash": self._hashed}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def apiserver(self) -> list[str]:
        tokens = self.write(
            "tokens.csv", f"{SECRETS['node-token']},system:node:{NODE},7,system:nodes\n"
        )
        passwords = self.write("basic.csv", f"{self._hashed},manager,8,system:masters\n")
        policy = {
            "apiVersion": "audit.orch.io/v1",
            "kind": "Policy",
            "rules": [{"level": "Metadata"}],
        }
        pki = self.pki
        return [
            "--bind-address=127.0.0.1", f"--secure-port={self.ports['apiserver']}", "-v=6",
            f"--data-dir={self.folder / 'data'}", f"--client-ca-file={pki.ca_file}",
            f"--tls-cert-file={pki.apiserver.cert_file}",
            f"--tls-private-key-file={pki.apiserver.key_file}",
            f"--nodeagent-certificate-authority={pki.ca_file}",
            f"--nodeagent-client-certificate={pki.proxy.cert_file}",
            f"--nodeagent-client-key={pki.proxy.key_file}", "--node-proxy-allow-loopback",
            f"--service-account-signing-key-file={pki.service_account.key_file}",
            f"--token-auth-file={tokens}", f"--basic-auth-file={passwords}",
            f"--audit-policy-file={self.write('policy.yaml', yaml.safe_dump(policy))}",
            f"--audit-log-path={self.folder / 'audit.log'}", "--feature-gates=AllAlpha=true",
            "--logging-format=json",
        ]  # fmt: skip

    def manager(self) -> list[str]:
        kubeconfig = self._kubeconfig(
            "manager.kubeconfig", username="manager", password=SECRETS["manager-password"]
        )
        return [
            f"--kubeconfig={kubeconfig}", f"--secure-port={self.ports['manager']}",
            f"--client-ca-file={self.pki.ca_file}", "--feature-gates=AllAlpha=true",
            "--log-level=debug", "--logging-format=json",
        ]  # fmt: skip

    def agent(self, pods_port: int = 0) -> list[str]:
        if pods_port:
            self._configure_agent(pods_port)
        kubeconfig = self._kubeconfig("node.kubeconfig", token=SECRETS["node-token"])
        return [
            f"--config={self.folder / 'agent.yaml'}", f"--config-dir={self.folder / 'conf.d'}",
            f"--kubeconfig={kubeconfig}", f"--root-dir={self.folder / 'root'}",
            f"--lock-file={self.folder / 'lock'}", f"--hostname-override={NODE}",
            "--node-ip=127.0.0.1",
        ]  # fmt: skip

    def _configure_agent(self, pods_port: int) -> None:
        (self.folder / "conf.d").mkdir()
        user = f"user:{SECRETS['url-password']}"
        config = {
            "address": "127.0.0.1",
            "port": self.ports["agent"],
            "readOnlyPort": self.ports["read-only"],
            "healthzPort": self.ports["health"],
            "tlsCertFile": self.pki.nodeagent.cert_file,
            "tlsPrivateKeyFile": self.pki.nodeagent.key_file,
            "authentication": {"x509": {"clientCAFile": self.pki.ca_file}},
            "containerRuntimeEndpoint": f"unix://{self.folder / 'cri.sock'}",
            "podLogsDir": str(self.folder / "podlogs"),
            "staticPodURL": f"http://{user}@127.0.0.1:{pods_port}/pods?key={SECRETS['url-query']}",
            "staticPodURLHeader": {"X-Token": [SECRETS["header"]]},
            "httpCheckFrequency": "500ms",
            "featureGates": {"AllAlpha": True},
            "logging": {"level": "debug", "format": "text"},
        }
        self.write("agent.yaml", yaml.safe_dump({**HEAD, **config}))

    def _kubeconfig(self, name: str, **credentials: str) -> Path:
        server = f"https://127.0.0.1:{self.ports['apiserver']}"
        config = ClientConfig(server=server, ca_file=self.pki.ca_file, **credentials)  # type: ignore[arg-type]
        write_kubeconfig(str(self.folder / name), config)
        return self.folder / name

    def log(self, program: str) -> str:
        return (self.folder / f"{program}.log").read_text()

    def ask(
        self, where: str, path: str, *, known: bool = True, data: Any = None, **headers: str
    ) -> int:
        """Ask a page, keep all of the answer, and return its status."""
        plain = where in ("read-only", "health")
        url = f"http{'' if plain else 's'}://127.0.0.1:{self.ports[where]}{path}"
        context = ssl.create_default_context(cafile=self.pki.ca_file)
        if where == "manager":  # whose certificate is made up
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if known:
            context.load_cert_chain(self.pki.admin.cert_file, self.pki.admin.key_file)
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(url, data=body, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=60, context=None if plain else context)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = f"{answer.headers}{answer.read().decode()}"
            self.shown[f"{where} {path} {headers} {answer.status}"] = text
            return int(answer.status)

    def run(self, *arguments: str) -> None:
        """One of the agent's offline commands, with the flags of the running agent."""
        done = preloaded.run("nodeagent.main", *arguments, *self.agent(), timeout_s=PATIENCE_S)
        assert "Traceback" not in done.stderr
        self.shown[" ".join(arguments)] = done.stdout + done.stderr


@contextmanager
def running(world: World, program: str, arguments: list[str]) -> Iterator[Copy]:
    with (world.folder / f"{program}.log").open("wb") as log:
        process = preloaded.start(
            MODULES[program], *arguments, stdout=log, stderr=log, cwd=world.folder
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


def ready(world: World, program: str) -> None:
    def answers() -> bool:
        try:
            return world.ask(program, "/healthz") == 200
        except urllib.error.URLError:
            return False

    eventually(answers, within_s=PATIENCE_S, what=f"{program}: {world.log(program)[-2000:]}")


async def test_no_secret_is_shown(tmp_path: Path, free_port: Callable[[], int]) -> None:
    world = World(tmp_path, free_port)
    runtime = CriServer(FakeRuntime(), tmp_path / "cri.sock")
    await runtime.start()
    try:
        await asyncio.to_thread(run_everything, world)
    finally:
        await runtime.stop()
    needles = world.needles()
    assert len(needles) > len(SECRETS) + 8
    found = {(use, name) for name, text in world.shown.items() for use in needles
             if needles[use] in text}  # fmt: skip
    assert found == set()


def run_everything(world: World) -> None:
    with ExitStack() as stack:
        stack.enter_context(running(world, "apiserver", world.apiserver()))
        ready(world, "apiserver")
        pods_port = stack.enter_context(world.pods.serving())
        stack.enter_context(running(world, "manager", world.manager()))
        agent = stack.enter_context(running(world, "agent", world.agent(pods_port)))
        ready(world, "agent")
        ready(world, "manager")
        secrets_are_in_use(world)
        strangers_try(world)
        for where, paths in PAGES.items():
            for path in paths:
                formed = path in ("/statusz", "/flagz", "/metrics")
                for accept in ACCEPTED if formed else ("*/*",):
                    world.ask(where, path, Accept=accept)
        reloads_what_is_wrong(world, agent)
        offline(world)
    for program in MODULES:
        world.shown[f"log of {program}"] = world.log(program)
    world.shown["audit log"] = (world.folder / "audit.log").read_text()
    assert all(world.shown[f"log of {program}"] for program in MODULES)


def secrets_are_in_use(world: World) -> None:
    """The programs got where they are by them: else nothing would be shown in any case."""
    node = f"/api/v1/nodes/{NODE}"
    eventually(lambda: world.ask("apiserver", node) == 200, within_s=PATIENCE_S, what="the Node")
    lease = "/apis/coordination.orch.io/v1/namespaces/orch-system/leases/orch-controller-manager"
    eventually(lambda: world.ask("apiserver", lease) == 200, within_s=PATIENCE_S, what="a leader")
    basic = base64.b64encode(f"user:{SECRETS['url-password']}".encode()).decode()
    expected = {f"/pods?key={SECRETS['url-query']}", SECRETS["header"], f"Basic {basic}"}
    eventually(lambda: expected <= world.pods.told, within_s=PATIENCE_S, what="the pods' address")
    made = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
            "stringData": {"key": SECRETS["object"]}}  # fmt: skip
    path = "/api/v1/namespaces/default/secrets"
    answer = world.ask("apiserver", path, data=made, **{"Content-Type": "application/json"})
    assert answer == 201
    world.shown.clear()  # who made the object was shown it


def strangers_try(world: World) -> None:
    bad = base64.b64encode(f"manager:{SECRETS['bad-password']}".encode()).decode()
    for where in ("apiserver", "agent", "manager"):
        for credential in (f"Bearer {SECRETS['bad-token']}", f"Basic {bad}"):
            assert world.ask(where, "/metrics", known=False, Authorization=credential) == 401
    known = f"Bearer {SECRETS['node-token']}"
    assert world.ask("agent", "/metrics", known=False, Authorization=known) == 403
    world.ask("agent", f"/metrics?token={SECRETS['bad-token']}")
    world.shown = {
        name.replace(SECRETS["bad-token"], "…"): text for name, text in world.shown.items()
    }


def reloads_what_is_wrong(world: World, agent: Copy) -> None:
    wrong = "\n".join(f"{key}: {text}" for key, text in HEAD.items())
    path = world.folder / "conf.d" / "10.conf"
    for text in (f"!{SECRETS['mistaken']}", f"[{SECRETS['mistaken']}]", f'"{SECRETS["mistaken"]}'):
        before = world.log("agent").count("the configuration is not reloaded")
        path.write_text(f"{wrong}\nstaticPodURLHeader: {{A: {text}, B: 1}}\n")
        agent.send_signal(signal.SIGHUP)
        end_s = time.monotonic() + PATIENCE_S
        while world.log("agent").count("the configuration is not reloaded") == before:
            assert time.monotonic() < end_s
            time.sleep(0.05)
    for form in ("yaml", "json"):
        world.run("config", "validate", "-o", form)
    path.unlink()


def offline(world: World) -> None:
    world.run("config", "view", "--origin")
    world.run("config", "view", "-o", "json")
    world.run("config", "validate", "--host")
    world.run("doctor")
    archive = world.folder / "bundle.tar.gz"
    world.run(
        "debug", "bundle", f"--output={archive}", f"--log-file={world.folder / 'agent.log'}",
        f"--client-certificate={world.pki.admin.cert_file}",
        f"--client-key={world.pki.admin.key_file}",
    )  # fmt: skip
    with tarfile.open(archive) as tar:
        members = {one.name: tar.extractfile(one) for one in tar}
        bodies = {name: file.read().decode() for name, file in members.items() if file}
    assert {"pages-configz", "pages/configz.txt"} & {name.partition("/")[2] for name in bodies}
    assert "nodeagentconfig" in "".join(bodies.values())
    world.shown |= {f"bundle {name}": text for name, text in bodies.items()}
