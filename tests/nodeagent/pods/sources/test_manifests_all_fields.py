"""No field of a Pod is silently ignored: a walk over all of them.

Three lists are held together: the fields of the reference's PodSpec (release 1.36), those of the
OpenAPI document that is served, and those of the records. A field of a record is one that the
product reads; any other has its row in the tables below, and does what its row says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from nodeagent.pods.sources import manifests
from orch.component import yaml_file
from orch.server.discovery import openapi
from orch.wire.podrules import validation
from orch.wire.records.kinds import RESOURCES
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.orch.wire.podrules.test_volumes import NOT_OFFERED

ROOT = Path(__file__).resolve().parents[4]
REFERENCE = ROOT / "tests/fixtures/reference_pod_fields.json"
UNKNOWN_KEPT = "x-kubernetes-preserve-unknown-fields"
PREFIX = "#/components/schemas/"

# What has no meaning for an agent: other programs read it, or the API server has acted on it.
ELSEWHERE = {
    "Affinity.podAffinity": "schedulers",
    "Affinity.podAntiAffinity": "schedulers",
    "NodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": "schedulers",
    "PodSpec.automountServiceAccountToken": "the API server adds volumes",
    "PodSpec.enableServiceLinks": "there are no Services whose variables could be set",
    "PodSpec.preemptionPolicy": "schedulers",
    "PodSpec.priorityClassName": "the API server sets `priority`",
    "PodSpec.schedulerName": "schedulers",
    "PodSpec.schedulingGates": "a pod that has any is bound to no node",
    "PodSpec.serviceAccount": "the API server sets `serviceAccountName`",
    "PodSpec.topologySpreadConstraints": "schedulers",
}
# Choices of how something is done whose outcome is the same here: docs/pods.md says so.
SAME_OUTCOME = {"PodSecurityContext.fsGroupChangePolicy", "PodSecurityContext.seLinuxChangePolicy"}
# Refused by the API server and of a static pod, with this path.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "Container.volumeDevices": (
        {"container": {"volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]}},
        "spec.containers[0].volumeDevices",
    ),
    "PodSpec.os": ({"os": {"name": "windows"}}, "spec.os.name"),
    "PodSpec.resourceClaims": (
        {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]},
        "spec.resourceClaims",
    ),
    **{
        f"ProjectedSource.{name}": (
            {"volumes": [{"name": "v", "projected": {"sources": [{name: {"path": "p"}}]}}]},
            f"spec.volumes[0].projected.sources[0].{name}",
        )
        for name in ("clusterTrustBundle", "podCertificate")
    },
    "ResourceRequirements.claims": (
        {"container": {"resources": {"claims": [{"name": "c"}]}}},
        "spec.containers[0].resources.claims[0]",
    ),
    **{
        f"Volume.{kind}": ({"volumes": [{"name": "v", **source}]}, f"spec.volumes[0].{kind}")
        for source in NOT_OFFERED
        for kind in source
    },
}
# Named by the event FieldsIgnored, and of a static pod in the log.
TOLD: dict[str, tuple[dict[str, Any], str]] = {
    "PodSecurityContext.windowsOptions": (
        {"securityContext": {"windowsOptions": {"hostProcess": True}}},
        "spec.securityContext.windowsOptions",
    ),
    "SecurityContext.windowsOptions": (
        {"container": {"securityContext": {"windowsOptions": {"runAsUserName": "u"}}}},
        "spec.containers[0].securityContext.windowsOptions",
    ),
    "PodSpec.schedulingGroup": ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
    "PodSpec.workloadRef": ({"workloadRef": {"name": "w"}}, "spec.workloadRef"),
}


@cache
def schemas() -> dict[str, Any]:
    document = orjson.loads(openapi.documents(RESOURCES)["/openapi/v3/api/v1"])
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def component_of(schema: dict[str, Any]) -> str:
    """The component that a property, or each item of a list, refers to; "" for none."""
    for part in (schema, *schema.get("allOf", ()), schema.get("items", {})):
        if "$ref" in part:
            return str(part["$ref"]).removeprefix(PREFIX)
    return ""


def walk(component: str, seen: set[str]) -> Iterator[tuple[str, str, bool]]:
    """Record, field, and whether the record has it, for all that a component leads to."""
    if component in seen:
        return
    seen.add(component)
    record = component.rpartition(".")[2]
    for name, schema in schemas()[component]["properties"].items():
        below = component_of(schema)
        open_form = UNKNOWN_KEPT in schema or UNKNOWN_KEPT in schema.get("items", {})
        yield record, name, bool(below) or not open_form or name in DECLARED_ANY
        if below:
            yield from walk(below, seen)


DECLARED_ANY = ("overhead",)  # amounts: of any type in the record
OWN_FIELDS = list(walk("io.orch.pods.PodSpec", set()))


@cache
def words_of_the_product() -> frozenset[str]:
    """Attributes and texts in code that is no record: what reads a field has its name."""
    found: set[str] = set()
    for top in ("nodeagent", "orch/wire", "orch/server"):
        for path in (ROOT / top).rglob("*.py"):
            if "records" in path.parts or path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


def made_of(fields: dict[str, Any]) -> Pod:
    rest = dict(fields)
    metadata = {"namespace": "default"}
    return pod(container_data("app", **rest.pop("container", {})), metadata=metadata, **rest)


def test_the_tables_name_each_field_that_no_record_has() -> None:
    listed = {*ELSEWHERE, *SAME_OUTCOME, *REFUSED, *TOLD}
    beyond = {f"{record}.{name}" for record, name, declared in OWN_FIELDS if not declared}
    assert beyond - listed == set(), "say what becomes of them"
    assert len(OWN_FIELDS) > 200, "the walk leads somewhere"


@pytest.mark.slow
def test_what_a_record_has_is_read_somewhere() -> None:
    words = words_of_the_product()
    unread = {
        f"{record}.{name}"
        for record, name, declared in OWN_FIELDS
        if declared and name not in words
    }
    assert unread - TOLD.keys() == set()


def test_every_field_of_the_reference_is_known() -> None:
    """Below what the records do not have, nothing needs to be known: the whole of it is told."""
    reference = orjson.loads(REFERENCE.read_bytes())
    missing: list[str] = []
    seen: set[tuple[str, str]] = set()

    def compare(theirs: str, own: str) -> None:
        if (theirs, own) in seen:
            return
        seen.add((theirs, own))
        record, properties = own.rpartition(".")[2], schemas()[own]["properties"]
        for name, leads_to in reference[theirs].items():
            if name not in properties:
                missing.append(f"{record}.{name}")
            elif leads_to and (below := component_of(properties[name])):
                compare(leads_to, below)

    compare("PodSpec", "io.orch.pods.PodSpec")
    assert {name for name in missing if name not in TOLD and name not in REFUSED} == set()
    assert len(seen) > 40


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_field_is_refused_by_server_and_agent_with_its_path(name: str) -> None:
    fields, path = REFUSED[name]
    wanted = made_of(fields)
    document = wanted.to_wire()
    by_server = validation.creation_causes(document["metadata"], document["spec"])
    assert path in [cause.field for cause in by_server]
    assert path in [field for field, _ in manifests.problems(wanted)]


@pytest.mark.parametrize("name", sorted(TOLD))
def test_a_field_that_does_nothing_is_named(name: str) -> None:
    fields, path = TOLD[name]
    told = [yaml_file.show_path(found) for found, _ in manifests.unknown_fields(made_of(fields))]
    assert told == [path]


def test_what_others_read_is_not_told_but_documented() -> None:
    page = (ROOT / "docs/pods.md").read_text()
    for name in (*ELSEWHERE, *SAME_OUTCOME):
        assert f"`{name.partition('.')[2]}`" in page, name
