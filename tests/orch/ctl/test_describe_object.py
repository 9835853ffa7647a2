from __future__ import annotations

import base64
from typing import Any

from orch.ctl import describe_object
from orch.wire.names import ANNOTATION_LAST_APPLIED

META = {"name": "x", "namespace": "d", "labels": {"a": "b"}}


def test_the_head_leaves_out_what_only_programs_read() -> None:
    annotations = {ANNOTATION_LAST_APPLIED: "{…}", "note": "n"}
    pairs = dict(describe_object.head({"metadata": {**META, "annotations": annotations}}))
    assert pairs == {"Name": "x", "Namespace": "d", "Labels": ["a=b"], "Annotations": ["note=n"]}


def test_a_secret_shows_sizes_and_never_values() -> None:
    data = {"password": base64.b64encode(b"hunter2").decode(), "odd": "hunter3-is-no-base64!"}
    lines = describe_object.secret({"metadata": META, "type": "Opaque", "data": data})
    assert "  password:  7 bytes" in lines
    text = "\n".join(lines)
    assert not any(value in text for value in ("hunter", *data.values()))


def test_a_config_map_shows_its_data() -> None:
    data = {"a.conf": "one\ntwo\x1b[1m\n", "b": "3"}
    lines = describe_object.config_map(
        {"metadata": META, "data": data, "binaryData": {"c": "AAAA"}}
    )
    at = lines.index("  a.conf:")
    assert lines[at : at + 5] == ["  a.conf:", "    one", "    two\\x1b[1m", "  b:", "    3"]
    assert lines[-1] == "  c:  3 bytes"


def test_a_lease_shows_who_holds_it() -> None:
    spec = {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "t"}
    lines = describe_object.lease({"metadata": META, "spec": spec})
    assert [line.split(":")[0] for line in lines[-3:]] == [
        "Holder Identity", "Lease Duration Seconds", "Renew Time",
    ]  # fmt: skip
    assert lines[-3].endswith(" n1")


def test_a_service_account_and_a_namespace() -> None:
    lines = describe_object.service_account({"metadata": META, "secrets": [{"name": "s"}]})
    assert lines[-1].split() == ["Mountable", "secrets:", "s"]
    conditions = [{"type": "T", "status": "True", "message": "m"}]
    status = {"phase": "Terminating", "conditions": conditions}
    lines = describe_object.namespace({"metadata": META, "status": status})
    assert lines[-1].split() == ["T", "True", "m"]
    assert any(line.split() == ["Status:", "Terminating"] for line in lines)


def test_what_is_not_known_is_shown_whole() -> None:
    record: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {**META, "uid": "u", "managedFields": [1]},
        "spec": {"startTime": "t", "on": True, "parts": [{"a": 1}, "b"], "empty": {}},
        "text": "one\ntwo",
    }
    assert describe_object.anything(record)[3:] == [
        "Annotations:  <none>",
        "API Version:  example.com/v1",
        "Kind:         Widget",
        "Metadata:",
        "  Uid:  u",
        "Spec:",
        "  Start Time:  t",
        "  On:  true",
        "  Parts:",
        "    -",
        "      A:  1",
        "    -  b",
        "Text:  one",
        "    two",
    ]
