"""`orchctl config` beside an unmodified `kubectl config`, each on a kubeconfig of its own."""

from __future__ import annotations

import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch.component.pki import Authority, Subject
from tests.e2e import orchctltable
from tests.e2e.apiserver import newest_kubectl
from tests.orch.ctl.conftest import run_command

KUBECTL = newest_kubectl()
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

BEGUN = """
apiVersion: v1
kind: Config
clusters:
- {name: c1, cluster: {server: "https://one", certificate-authority-data: Y2E=}}
- {name: c2, cluster: {server: "https://two"}}
users:
- {name: u1, user: {token: secret}}
- {name: u2, user: {username: jane, password: secret}}
contexts:
- {name: one, context: {cluster: c1, user: u1, namespace: shop}}
- {name: two, context: {cluster: c2, user: u2}}
current-context: one
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    authority = Authority(tmp_path_factory.mktemp("pki"), now=datetime.now(UTC))
    made = authority.issue(Subject("jane", "jane", ()))
    return {"CERT": made.cert_file, "KEY": made.key_file}


def both(tmp_path: Path, pair: dict[str, str], line: str) -> list[tuple[int, str, str, Any]]:
    """(exit code, output, errors, the file afterwards) of kubectl and of orchctl."""
    ends = []
    words = ["config", *shlex.split(line)]
    for key, path in pair.items():
        words = [word.replace(key, path) for word in words]
    file = tmp_path / "config"
    for name in ("kubectl", "orchctl"):
        file.write_text(BEGUN)
        if name == "kubectl":
            command = [str(KUBECTL), *words, f"--kubeconfig={file}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            told = (done.returncode, done.stdout, done.stderr)
        else:
            result = run_command(*words, f"--kubeconfig={file}")
            told = (result.code, result.out, result.err)
        ends.append((*told, kept(file)))
    return ends


def kept(file: Path) -> Any:
    """What a kubeconfig says, whatever the order of its entries."""
    data = orchctltable.without_empty(yaml.safe_load(file.read_text()))
    by_name = {"clusters", "users", "contexts"} & data.keys()
    return {**data, **{key: sorted(data[key], key=lambda one: one["name"]) for key in by_name}}


def printed(text: str, line: str) -> Any:
    if line in ("get-clusters", "get-users"):  # which kubectl prints in no order
        return sorted(text.splitlines())
    return orchctltable.normal(
        text, f"config {line} {'-o yaml' if line.startswith('view') else ''}"
    )


@pytest.mark.parametrize("line", orchctltable.CONFIG)
def test_the_same_words_print_and_leave_the_same(
    tmp_path: Path, pair: dict[str, str], line: str
) -> None:
    theirs, ours = both(tmp_path, pair, line)
    assert (ours[0], printed(ours[1], line)) == (theirs[0], printed(theirs[1], line))
    assert ours[3] == theirs[3]
    assert ours[2].count("\n") == theirs[2].count("\n")


@pytest.mark.parametrize("line", orchctltable.CONFIG_REFUSED)
def test_the_same_words_are_refused_and_change_nothing(
    tmp_path: Path, pair: dict[str, str], line: str
) -> None:
    theirs, ours = both(tmp_path, pair, line)
    assert (theirs[0], ours[0] in (1, 2), ours[1]) == (1, True, "")
    assert ours[2].count("\n") == 1
    assert ours[3] == orchctltable.without_empty(yaml.safe_load(BEGUN))
