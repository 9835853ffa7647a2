from __future__ import annotations

import base64
from typing import Any

from orch.ctl import describe_config, sheet

META = {"name": "x", "namespace": "d", "uid": "u"}


def _after_the_head(lines: list[str]) -> list[str]:
    return sheet.aligned(lines).splitlines()[4:]


def test_a_secret_shows_sizes_and_never_values() -> None:
    data = {"password": base64.b64encode(b"hunter2").decode(), "odd": "hunter3-is-no-base64!"}
    lines = describe_config.secret({"metadata": META, "type": "Opaque", "data": data})
    assert _after_the_head(lines) == [
        "", "Type:  Opaque", "", "Data", "====", "odd:       21 bytes", "password:  7 bytes",
    ]  # fmt: skip


def test_a_config_map_shows_its_texts_and_sizes() -> None:
    record = {
        "metadata": META,
        "data": {"b": "3", "a.conf": "one\ntwo"},
        "binaryData": {"c": "AAAA"},
    }
    assert _after_the_head(describe_config.config_map(record)) == [
        "", "Data", "====", "a.conf:", "----", "one", "two", "", "b:", "----", "3", "",
        "", "BinaryData", "====", "c: 3 bytes",
    ]  # fmt: skip


def test_a_namespace_shows_its_phase_and_conditions() -> None:
    conditions = [{"type": "T", "status": "True", "reason": "r", "message": "m"}]
    status: dict[str, Any] = {"phase": "Terminating", "conditions": conditions}
    lines = describe_config.namespace({"metadata": {"name": "x"}, "status": status})
    assert lines[:4] == [
        "Name:\tx",
        "Labels:\t<none>",
        "Annotations:\t<none>",
        "Status:\tTerminating",
    ]
    assert lines[-1] == "  T\tTrue\tMon, 01 Jan 0001 00:00:00 +0000\tr\tm"
    assert describe_config.namespace({"status": {"phase": "Active"}})[-1] == "Status:\tActive"


def test_an_account_shows_which_of_its_secrets_are_missing() -> None:
    record = {"metadata": META, "secrets": [{"name": "s"}, {"name": "gone"}]}
    token = {
        "metadata": {"name": "t", "annotations": {
            "kubernetes.io/service-account.name": "x", "kubernetes.io/service-account.uid": "u"}},
        "type": "kubernetes.io/service-account-token",
    }  # fmt: skip
    secrets = [{"metadata": {"name": "s"}}, token, {**token, "type": "Opaque"}]
    assert _after_the_head(describe_config.service_account(record, secrets)) == [
        "Image pull secrets:  <none>",
        "Mountable secrets:   s",
        "                     gone (not found)",
        "Tokens:              t",
    ]
    unseen = _after_the_head(describe_config.service_account(record, None))
    assert unseen[1:] == ["Mountable secrets:   s", "                     gone",
                          "Tokens:              <none>"]  # fmt: skip
