"""Commands of kubectl on objects: each function tries one, and what must come of it."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.harness import eventually
from tests.e2e.kubectlworld import Run, World
from tests.e2e.miniagent import LINES


def reading(w: World) -> None:
    w.made("got")
    assert "pod/got" in w("get", "pods", "-l", "app=web", "-o", "name").splitlines()
    header, row = w("get", "po", "got", "-o", "wide").splitlines()
    assert header.split()[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert w.node in row
    selector = f"--field-selector=spec.nodeName={w.node},metadata.name=got"
    assert w("get", "pods", selector, "-o", "name") == "pod/got"
    assert json.loads(w("get", "pod", "got", "-o", "json"))["metadata"]["namespace"] == w.namespace
    w.gone("got")


def describe(w: World) -> None:
    w.made("told")
    assert "busybox:1" in w("describe", "pod", "told")
    assert "AgentReady" in w("describe", "node", w.node)
    w.gone("told")


def create(w: World) -> None:
    w("create", "-f", "-", stdin=w.pod("created"))
    w.run("delete", "pod", "created", "--grace-period=0", "--force")
    w("create", "configmap", "c", "--from-literal=a=1")
    w("create", "secret", "generic", "s", "--from-literal=k=v")
    w("create", "serviceaccount", "robot")
    assert w.value("secret/s", ".data.k") == "dg=="
    w("delete", "configmap/c", "secret/s", "serviceaccount/robot")


def quotas(w: World) -> None:
    w("create", "quota", "q", "--hard=count/secrets=1,requests.cpu=2,orch.io/bytes=1Mi")
    eventually(
        lambda: "count/secrets: 0/1" in w("get", "quota", "q"), within_s=20, what="it is measured"
    )
    w("create", "secret", "generic", "one")
    refused = w.run("create", "secret", "generic", "two", code=1).stderr
    assert "exceeded quota: q, requested: count/secrets=1, used: count/secrets=1" in refused
    header, row = w("get", "quota", "q").splitlines()
    assert header.split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "count/secrets: 1/1, orch.io/bytes: " in row
    rows = [line.split() for line in w("describe", "quota", "q").splitlines()]
    assert ["count/secrets", "1", "1"] in rows
    assert "count/secrets" in w.kubectl("describe", "namespace", w.namespace)
    w("create", "quota", "scoped", "--hard=pods=1", "--scopes=BestEffort")
    assert w.value("quota/scoped", ".spec.scopes") == '["BestEffort"]'
    w("delete", "quota/q", "quota/scoped", "secret/one")
    item = {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    w("apply", "-f", "-", stdin=json.dumps({**limits, "spec": {"limits": [item]}}))
    assert ["Container", "cpu", "-", "2", "1", "1", "-"] in [
        line.split() for line in w("describe", "limits", "l").splitlines()
    ]
    w("delete", "limits/l")


def priority_classes(w: World) -> None:
    name = f"{w.namespace}-high"
    w("create", "priorityclass", name, "--value=1000", "--description=for tests")
    header, row = w("get", "priorityclass", name).splitlines()
    assert header.split() == ["NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"]
    assert row.split()[1:3] == ["1000", "false"]
    assert "for tests" in w("describe", "pc", name)
    manifest = w.pod("urgent").replace("spec:", f"spec:\n  priorityClassName: {name}", 1)
    w("create", "-f", "-", stdin=manifest)
    assert w.value("pod/urgent", ".spec.priority") == "1000"
    forged = w.pod("forged").replace("spec:", "spec:\n  priority: 2147483647", 1)
    refused = w.run("create", "-f", "-", stdin=forged, code=1).stderr
    assert "the integer value of priority (2147483647) must not be provided" in refused
    w.gone("urgent")
    w.kubectl("delete", "pc", name)


def misspelt(w: World) -> None:
    wrong = w.pod("wrong").replace("image:", "imagee:")
    refused = w.run("create", "-f", "-", stdin=wrong, code=1).stderr
    assert 'unknown field "spec.containers[0].imagee"' in refused


def running_a_pod(w: World) -> None:
    w("run", "quick", "--image=busybox:1", "--restart=Never")
    assert w.value("pod/quick", ".spec.restartPolicy") == "Never"
    w.gone("quick")


def apply(w: World) -> None:
    manifest = w.pod("applied")
    assert w("apply", "-f", "-", stdin=manifest) == "pod/applied created"
    changed = manifest.replace("busybox:1", "busybox:2").replace("app: web", "tier: front")
    assert w("apply", "-f", "-", stdin=changed) == "pod/applied configured"
    assert w("apply", "-f", "-", stdin=changed) == "pod/applied unchanged"
    assert w.value("pod/applied", ".metadata.labels") == '{"tier":"front"}'
    w.gone("applied")


def diff(w: World) -> None:
    w("apply", "-f", "-", stdin=w.pod("differing"))
    changed = w.pod("differing").replace("busybox:1", "busybox:2")
    assert "busybox:2" in w("diff", "-f", "-", stdin=changed, code=1)
    assert w.value("pod/differing", ".spec.containers[0].image") == "busybox:1"
    w.gone("differing")


def replacing(w: World) -> None:
    w.made("replaced")
    shown = w("get", "pod", "replaced", "-o", "json")
    w("replace", "-f", "-", stdin=shown.replace("busybox:1", "busybox:3"))
    assert w.value("pod/replaced", ".spec.containers[0].image") == "busybox:3"
    w.gone("replaced")


def patching(kind: str, patch: str) -> Run:
    def run(w: World) -> None:
        name = w.made(f"patched-{kind}")
        w("patch", "pod", name, "--type", kind, "-p", patch)
        assert w.value(f"pod/{name}", ".metadata.labels.how") == kind
        w.gone(name)

    return run


def patching_status(w: World) -> None:
    w.made("reported")
    w("patch", "pod", "reported", "--subresource=status", "-p", '{"status":{"phase":"Running"}}')
    assert "Running" in w("get", "pod", "reported")
    w.gone("reported")


def debugging(w: World) -> None:
    w.made("debugged")
    for name, more in (("one", ("--target=c",)), ("two", ())):
        w.run("debug", "debugged", "--image=busybox:1", "-c", name, *more)
    path = ".spec.ephemeralContainers[*]['name', 'targetContainerName']"
    assert w.value("pod/debugged", path) == "one two c"
    done = w.run("debug", "debugged", "--image=i", "-c", "x", "--target=nobody", code=1)
    assert "targetContainerName: Not found" in done.stderr
    w.gone("debugged")


def debugging_beside(w: World) -> None:
    w.made("copied")
    w.run("debug", "copied", "--image=busybox:1", "-c", "x", "--copy-to=copy", "--share-processes")
    assert w.value("pod/copy", ".spec.shareProcessNamespace") == "true"
    assert w.value("pod/copy", ".spec.containers[*].name") == "c x"
    assert w.value("pod/copy", ".spec.containers[0].resources.requests.cpu") == "1"
    w.run("debug", f"node/{w.node}", "--image=busybox:1")
    shown = "{.metadata.name} {.spec.volumes[0].hostPath.path}"
    debugger = f"{{range .items[?(@.spec.hostNetwork==true)]}}{shown}{{end}}"
    name, path = w("get", "pods", "-o", f"jsonpath={debugger}").split()
    assert path == "/"
    for pod in ("copied", "copy", name):
        w.gone(pod)


def editing(w: World) -> None:
    w.made("edited")
    editor = w.server.directory / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/busybox:1/busybox:4/ "$1"\n')
    editor.chmod(0o755)
    done = subprocess.run(
        w.kubectl.command("-n", w.namespace, "edit", "pod", "edited"),
        env={"KUBE_EDITOR": str(editor), "PATH": "/usr/bin:/bin", "HOME": str(w.server.directory)},
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert w.value("pod/edited", ".spec.containers[0].image") == "busybox:4"
    w.gone("edited")


def deleting(w: World) -> None:
    w("create", "configmap", "one")
    w("create", "configmap", "two")
    assert "deleted" in w("delete", "configmap", "one")
    w("delete", "configmap", "--all")
    assert w("get", "configmaps", "-o", "name") == ""


def cascade(w: World) -> None:
    for how, kept in (("background", False), ("foreground", False), ("orphan", True)):
        w("create", "configmap", "owner")
        uid = w.value("configmap/owner", ".metadata.uid")
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
        metadata = {"name": "owned", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
        owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        w("create", "-f", "-", stdin=json.dumps(owned))
        w("delete", "configmap", "owner", f"--cascade={how}")
        wanted = "configmap/owned" if kept else ""
        eventually(
            lambda wanted=wanted: w("get", "configmaps", "-o", "name") == wanted,
            within_s=20, what=f"what the owner left after {how}",
        )  # fmt: skip
    assert w.value("configmap/owned", ".metadata.ownerReferences") in ("", "[]")
    w("delete", "configmap", "owned")


def label(w: World) -> None:
    w("label", "node", w.node, "x=y")
    assert w("get", "no", w.node, "-L", "x", "--no-headers").endswith("y")
    w("label", "node", w.node, "x-")


def annotate(w: World) -> None:
    w("annotate", "node", w.node, "note=z")
    assert w.value(f"node/{w.node}", ".metadata.annotations.note") == "z"


def cordon(w: World) -> None:
    w("cordon", w.node)
    assert "Ready,SchedulingDisabled" in w("get", "no", w.node)
    w("uncordon", w.node)
    assert "SchedulingDisabled" not in w("get", "no", w.node)


def taint(w: World) -> None:
    w("taint", "node", w.node, "a=b:NoSchedule")
    assert w.value(f"node/{w.node}", ".spec.taints[0].key") == "a"
    w("taint", "node", w.node, "a-")
    assert w.value(f"node/{w.node}", ".spec.taints") == ""


def drain(w: World) -> None:
    node = f"{w.node}-drained"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    w("create", "-f", "-", stdin=json.dumps(body))
    w("create", "-f", "-", stdin=w.pod("drained").replace(w.node, node))
    w.set_status("drained", phase="Succeeded")  # so that no agent need end it
    out = w.run("drain", node, "--force", "--timeout=30s").stdout
    assert "pod/drained evicted" in out or "pod/drained deleted" in out  # deleted by 1.20
    assert "drained" not in w("get", "pods", "-o", "name")
    assert "SchedulingDisabled" in w("get", "node", node)
    w.kubectl("delete", "node", node)


def wait(w: World) -> None:
    w.made("awaited")
    w.set_status("awaited", conditions=[{"type": "Ready", "status": "True"}])
    assert w("wait", "pod/awaited", "--for=condition=Ready", "--timeout=10s").endswith("met")
    w.gone("awaited")


def wait_for_the_end(w: World) -> None:
    w.run("wait", "pod/not-there", "--for=delete", "--timeout=10s")


def events(w: World) -> None:
    w.made("eventful")
    uid = w.value("pod/eventful", ".metadata.uid")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": w.namespace, "name": "eventful"}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "eventful.1"}, "type": "Normal",
        "involvedObject": {**about, "uid": uid}, "reason": "Started", "message": "it started",
    }  # fmt: skip
    w("create", "-f", "-", stdin=json.dumps(event))
    assert "it started" in w("events", "--for=pod/eventful")
    assert "it started" in w("describe", "pod", "eventful")
    chosen = "--field-selector=regarding.name=eventful"
    shown = w("get", "events.events.orch.io", chosen, "-o", "jsonpath={.items[*].note}")
    assert shown == "it started"
    assert "pod/eventful" in w("get", "events.events.orch.io")
    assert w("get", "event", "eventful.1", "-o", "jsonpath={.apiVersion}") == "v1"
    w.gone("eventful")
    w("delete", "event", "eventful.1")


def logs(w: World) -> None:
    w.made("speaking")
    assert w("logs", "speaking").splitlines() == LINES
    assert w("logs", "speaking", "-c", "c", "--tail=1", "--timestamps").endswith(f"Z {LINES[-1]}")
    assert w("logs", "-f", "speaking").splitlines() == LINES
    refused = w.run("logs", "speaking", "-c", "other", code=1).stderr
    assert "container other is not valid for pod speaking" in refused
    w.gone("speaking")


def raw_paths(w: World) -> None:
    assert w("get", "--raw", "/healthz") == "ok"
    assert "orch_healthcheck{" in w("get", "--raw", "/metrics/slis")


def api_resources(w: World) -> None:
    rows = [line.split() for line in w("api-resources", "--no-headers").splitlines()]
    assert {"nodes", "pods", "leases", "roles", "configmaps"} <= {row[0] for row in rows}
    assert "v1" in w("api-versions").splitlines()


def explain(w: World) -> None:
    assert "containerPort" in w("explain", "pod.spec.containers.ports")
    assert "-required-" in w("explain", "node.spec.taints")


def dry_run(w: World) -> None:
    w("create", "-f", "-", "--dry-run=server", stdin=w.pod("unmade"))
    w.run("get", "pod", "unmade", code=1)


def namespace(w: World) -> None:
    name = f"{w.namespace}-other"
    w.kubectl("create", "namespace", name)
    assert "Active" in w.kubectl("get", "ns", name)
    w.kubectl("delete", "namespace", name)
    w.kubectl.run("get", "namespace", name, code=1)
