"""Server-side apply as an unmodified kubectl asks for it."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.kubectlworld import World

_CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, labels: {app: web}}
data: {one: "1", two: "2"}
"""


def _config(name: str) -> str:
    return _CONFIG.replace("NAME", name)


def _fails(w: World, *arguments: str, stdin: str) -> str:
    return w.run(*arguments, stdin=stdin, code=1).stderr


def _managers(w: World, what: str) -> dict[tuple[str, str], object]:
    kind, _, name = what.partition("/")
    shown = json.loads(w("get", "--raw", f"/api/v1/namespaces/{w.namespace}/{kind}s/{name}"))
    entries = shown["metadata"].get("managedFields", ())
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


def twice(w: World) -> None:
    pod = w.pod("sided")
    apply = ("apply", "--server-side", "-f", "-")
    assert w(*apply, stdin=pod) == "pod/sided serverside-applied"
    version = w.value("pod/sided", ".metadata.resourceVersion")
    assert w(*apply, stdin=pod) == "pod/sided serverside-applied"
    assert w.value("pod/sided", ".metadata.resourceVersion") == version
    w(*apply, stdin=pod.replace("app: web", "tier: front"))
    assert w.value("pod/sided", ".metadata.labels") == '{"tier":"front"}'
    assert list(_managers(w, "pod/sided")) == [("kubectl", "Apply")]
    w.gone("sided")


def conflict(w: World) -> None:
    config = _config("disputed")
    w("create", "-f", "-", stdin=config)
    changed = config.replace('"2"', '"3"')
    apply = ("apply", "--server-side", "-f", "-")
    told = _fails(w, *apply, stdin=changed)
    assert 'Apply failed with 1 conflict: conflict with "kubectl-create"' in told
    assert ".data.two" in told
    w(*apply, "--force-conflicts", stdin=changed)
    assert w.value("configmap/disputed", ".data.two") == "3"
    other = (*apply, "--field-manager=other")
    assert 'conflict with "kubectl"' in _fails(w, *other, stdin=config)
    assert w(*other, stdin=changed) == "configmap/disputed serverside-applied"
    managers = _managers(w, "configmap/disputed")
    assert managers[("other", "Apply")] == managers[("kubectl", "Apply")]
    w("delete", "configmap", "disputed")


def migration(w: World) -> None:
    """From the client's own merging to the server's, and back."""
    config = _config("moved")
    w("apply", "-f", "-", stdin=config)
    fewer = config.replace(', two: "2"', "").replace('one: "1"', 'one: "changed"')
    w("apply", "--server-side", "-f", "-", stdin=fewer)
    assert w.value("configmap/moved", ".data.one") == "changed"
    w.run("apply", "-f", "-", stdin=config.replace('"2"', '"again"'))
    assert w.value("configmap/moved", ".data") == '{"one":"1","two":"again"}'
    w("delete", "configmap", "moved")


def difference(w: World) -> None:
    config = _config("differing")
    diff = ("diff", "--server-side", "-f", "-")
    assert 'two: "2"' in w(*diff, stdin=config, code=1)
    w("apply", "--server-side", "-f", "-", stdin=config)
    assert w(*diff, stdin=config) == ""
    assert '+  two: "3"' in w(*diff, stdin=config.replace('"2"', '"3"'), code=1)
    assert w.value("configmap/differing", ".data.two") == "2"
    w("delete", "configmap", "differing")


def dry_run(w: World) -> None:
    apply = ("apply", "--server-side", "--dry-run=server", "-f", "-")
    assert (
        w(*apply, stdin=_config("tried")) == "configmap/tried serverside-applied (server dry run)"
    )
    assert "NotFound" in _fails(w, "get", "configmap", "tried", stdin="")
    wrong = _config("tried").replace("\ndata:", "\ndota:")
    told = _fails(w, "apply", "--server-side", "-f", "-", stdin=wrong)
    assert 'unknown field "dota"' in told, told


def set_of_objects(w: World) -> None:
    """An applyset: what is left out of it the next time is deleted."""
    both = f"{_config('first')}---{_config('second')}"
    first = _apply_set(w, both)
    assert "configmap/second serverside-applied" in first
    after = _apply_set(w, _config("first"))
    assert "configmap/second pruned" in after
    assert w("get", "configmap", "-l", "app=web", "-o", "name") == "configmap/first"
    w("delete", "configmap", "first")
    w("delete", "secret", "parts")


def _apply_set(w: World, manifest: str) -> str:
    command = w.kubectl.command(
        "-n", w.namespace, "apply", "--server-side", "--prune", "--applyset=parts", "-f", "-"
    )
    environment = {
        "KUBECTL_APPLYSET": "true",
        "PATH": "/usr/bin:/bin",
        "HOME": str(w.server.directory),
    }
    done = subprocess.run(
        command, input=manifest, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(w: World) -> None:
    """The record is there, and hidden unless asked for; an edited object goes back with it."""
    w("create", "configmap", "recorded", "--from-literal=a=1")
    assert "managedFields" not in w("get", "configmap", "recorded", "-o", "yaml")
    assert list(_managers(w, "configmap/recorded")) == [("kubectl-create", "Update")]
    whole = w("get", "configmap", "recorded", "-o", "json", "--show-managed-fields")
    w("replace", "-f", "-", stdin=whole.replace('"a": "1"', '"a": "2"'))
    assert _managers(w, "configmap/recorded")[("kubectl-replace", "Update")] == {
        "f:data": {"f:a": {}}
    }
    w("delete", "configmap", "recorded")
