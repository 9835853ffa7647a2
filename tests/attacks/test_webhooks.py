"""Webhooks that keep to no protocol: their policy answers who is asked about, others feel nothing.

The attacker serves a webhook that an administrator trusted, for what one tenant writes.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import harness
from tests.attacks.harness import OPERATOR, TENANT, Answer, Attacked, head
from tests.attacks.hostile_webhook import FORGED, WAYS, Served, hostile

pytestmark = pytest.mark.alone

CONFIGURATIONS = "/apis/admissionregistration.orch.io/v1"
MAPS, PODS = (f"/api/v1/namespaces/{TENANT}/{kind}" for kind in ("configmaps", "pods"))
POLICIES = ("Fail", "Ignore")
SEATS = 4  # for changes, of the whole server
HELD = 100  # writes by each of two users
TENANTS = (TENANT, "tenant-2")
AT_ONCE = 32  # requests to one webhook
LATE_S = 5  # what the writes that are held wait for
LIMIT_MS = 500.0  # of p99: writes that had to wait for a seat would take 5 s
POLICY = "apiVersion: audit.orch.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"

TIMEOUT_S = 3
LATE = f"it did not answer within its {TIMEOUT_S} s"
CUT = "failed to call webhook"
REFUSED = "Internal error occurred: failed calling webhook"
# What a webhook that counts makes of a creation: code, and words of the answer.
EXPECTED: dict[str, tuple[int, str]] = {
    "allows": (201, ""),
    "denies": (400, "denied the request without explanation"),
    "is slow": (201, ""),
    "hangs": (500, LATE),
    "drips": (500, LATE),
    "drips its head": (500, LATE),
    "sends without end": (500, "more than 3 MiB"),
    "sends tiny chunks": (500, "chunks of the answer are too small"),
    "sends headers without end": (500, CUT),
    "sends many headers": (500, CUT),
    "continues without end": (500, LATE),
    "is a gigabyte": (500, "more than 3 MiB"),
    "is packed": (500, "more than 3 MiB"),
    "is large and right": (201, ""),
    "has many values": (500, "too large"),
    "is deep": (500, "the answer is"),
    "has a long number": (500, "the answer is not JSON"),
    "redirects": (500, "the server answered 307"),
    "redirects with an answer": (500, "the server answered 302"),
    "upgrades": (500, "the server answered 101"),
    "says nothing": (500, CUT),
    "says half": (500, CUT),
    "is no web server": (500, CUT),
    "is empty": (500, "the answer is not JSON"),
    "is of no kind": (500, "kind is 'Pod', expected 'AdmissionReview'"),
    "is of another version": (500, "apiVersion is 'v2'"),
    "has another uid": (500, "response.uid is 'other'"),
    "has no uid": (500, "kind is None"),
    "is a list": (500, "the answer is not an object"),
    "says yes in words": (500, "response.allowed is neither true nor false"),
    "fails with lines": (500, REFUSED),
    "has a kind of lines": (500, REFUSED),
    "denies with lines": (400, "denied the request"),
    "patches double": (500, "patch"),
    "patches copy": (500, "patch"),
    "patches containers": (422, "spec.containers"),
    "patches spread": (413, "20000 values"),
    "patches shuffle": (201, ""),
    "patches deep": (500, "patch"),
    "patches much": (422, ""),
}
# They answered what a client may hear, so that `Ignore` changes nothing.
JUDGED = ("denies", "denies with lines", "patches containers", "patches spread", "patches much")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("webhooks")
    (directory / "policy.yaml").write_text(POLICY)
    flags = (
        f"--max-requests-inflight={2 * SEATS}",
        f"--max-mutating-requests-inflight={SEATS}",
        f"--audit-policy-file={directory / 'policy.yaml'}",
        f"--audit-log-path={directory / 'audit.log'}",
    )
    with harness.attacked(directory, *flags, users=TENANTS[1:]) as running:
        for user in TENANTS[1:]:
            harness.grant(running, user, namespace=TENANT, role="edit")
        yield running


@contextmanager
def configured(target: Attacked, served: Served, *ways: str, timeout_s: int) -> Iterator[None]:
    """Each way twice, by policy, for objects that are labelled with both."""
    authority = base64.b64encode(Path(target.server.ca_file).read_bytes()).decode()
    with ExitStack() as stack:
        for policy in POLICIES:
            for kind in ("Mutating", "Validating"):
                hooks = [
                    hook(way, policy, authority, served.port, timeout_s)
                    for way in ways
                    if way.startswith("patches") == (kind == "Mutating")
                ]
                path = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations"
                name = policy.lower()
                target.make(path, {"metadata": {"name": name}, "webhooks": hooks})
                stack.callback(target.ask, OPERATOR, "DELETE", f"{path}/{name}")
        yield


def hook(way: str, policy: str, authority: str, port: int, timeout_s: int) -> dict[str, Any]:
    rule = {
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["configmaps", "pods"],
    }  # fmt: skip
    url = f"https://127.0.0.1:{port}/{slug(way)}"
    return {
        "name": f"{slug(way)}.{policy.lower()}.example.com",
        "clientConfig": {"url": url, "caBundle": authority},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"way": slug(way), "policy": policy}},
        "failurePolicy": policy,
        "timeoutSeconds": timeout_s,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def slug(way: str) -> str:
    return way.lower().replace(" ", "-")


def written(name: str, way: str, policy: str) -> dict[str, Any]:
    labels = {"way": slug(way), "policy": policy}
    metadata = {"name": name, "labels": labels, "finalizers": ["example.com/a"]}
    spec = {"containers": [{"name": "a", "image": "b"}]}  # unknown to a ConfigMap, as data to a Pod
    return {"metadata": metadata, "data": {"a": "b"}, "spec": spec}


def test_a_webhook_that_answers_anything_is_judged_by_its_policy_and_stalls_nobody(
    target: Attacked,
) -> None:
    answers: dict[tuple[str, str], Answer] = {}

    def write(way: str, policy: str) -> None:
        made = written(f"{slug(way)}.{policy.lower()}", way, policy)
        path = PODS if way == "patches containers" else MAPS
        answers[way, policy] = target.ask(TENANT, "POST", path, made)

    late = [(way, each) for way in WAYS for each in POLICIES if EXPECTED[way][1] == LATE]
    logged = len(target.server.log())
    with (
        hostile(target) as served,
        configured(target, served, *WAYS, timeout_s=TIMEOUT_S),
        target.witnessed() as seen,
        ThreadPoolExecutor(len(late)) as waiting,
        ThreadPoolExecutor(4) as threads,
    ):
        writes = [
            (waiting if (way, each) in late else threads).submit(write, way, each)
            for way in WAYS
            for each in POLICIES
        ]
        for done in writes:
            done.result()
    wrong = [
        (way, policy, answer.status, answer.body[:300])
        for (way, policy), answer in answers.items()
        if not is_right(way, policy, answer)
    ]
    assert not wrong, "\n".join(map(str, wrong))
    harness.no_long_stall(seen)
    assert seen.refused + seen.errors == 0, seen
    assert served.asked == dict.fromkeys(WAYS, len(POLICIES)), "no call is repeated"
    no_line_is_forged(target, logged)


def is_right(way: str, policy: str, answer: Answer) -> bool:
    code, words = EXPECTED[way]
    if policy == "Ignore" and way not in JUDGED:
        return answer.status == 201
    return answer.status == code and words in answer.body.decode()


def no_line_is_forged(target: Attacked, logged: int) -> None:
    log = target.server.log()[logged:]
    assert log.count("hangs") > 0
    assert not [line for line in log.splitlines() if line.startswith(FORGED)]
    assert not set("\x00\x1b\x0b\u2028") & set(log)
    assert max(map(len, log.splitlines())) < 4_000
    for line in (target.server.directory / "audit.log").read_bytes().splitlines():
        assert json.loads(line)["kind"] == "Event"


def test_two_hundred_writes_that_a_hanging_webhook_holds_take_nothing_from_others(
    target: Attacked,
) -> None:
    """Of two users, with fewer seats than the webhook may hold requests at a time."""
    with (
        hostile(target) as served,
        configured(target, served, "hangs", timeout_s=LATE_S),
        ExitStack() as stack,
    ):
        opened = [(policy, stack.enter_context(target.open())) for policy in POLICIES * HELD]
        with target.witnessed() as seen:
            began_s = time.monotonic()
            for number, (policy, connection) in enumerate(opened):
                connection.sendall(creation(number, policy))
            codes = [(policy, code_of(connection)) for policy, connection in opened]
            took_s = time.monotonic() - began_s
    print(seen)
    assert Counter(codes) == {("Fail", 500): HELD, ("Ignore", 201): HELD}
    assert LATE_S <= took_s < 4 * LATE_S, "each waits for its own time only"
    assert served.most_at_once >= AT_ONCE > SEATS
    harness.others_undisturbed(seen, limit_ms=LIMIT_MS)
    harness.no_long_stall(seen)


def creation(number: int, policy: str) -> bytes:
    body = json.dumps(written(f"held-{number}", "hangs", policy)).encode()
    return head(TENANTS[number % len(TENANTS)], "POST", MAPS, len(body)) + body


def code_of(connection: ssl.SSLSocket) -> int:
    return int(connection.recv(65_536).split()[1])
