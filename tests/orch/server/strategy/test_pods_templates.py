"""Templates of pods are completed and checked as pods are, over the API."""

from __future__ import annotations

from typing import Any

from tests.orch.server.harness import Api

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PATH = "/api/v1/namespaces/default/podtemplates"


def template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx"}]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "web"},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": containers, **spec},
        },
    }


async def test_a_template_is_completed_as_a_pod_is_but_for_what_admission_adds(api: Api) -> None:
    created = await api.call("POST", PATH, template())
    assert created.status == 201
    spec = created.json["template"]["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert "tolerations" not in spec
    assert created.json["metadata"]["generation"] == 1


async def test_a_template_that_could_not_be_a_pod_is_refused_with_the_path(api: Api) -> None:
    wrong = template(containers=[{"name": "c!"}])
    refused = await api.call("POST", PATH, wrong)
    assert refused.status == 422
    fields = {cause["field"] for cause in refused.json["details"]["causes"]}
    assert fields == {f"template.spec.containers[0].{name}" for name in ("name", "image")}


async def test_a_changed_template_is_a_new_generation(api: Api) -> None:
    await api.call("POST", PATH, template())
    for labels, generation in (({"app": "web"}, 1), ({"app": "shop"}, 2)):
        patch = {"template": {"metadata": {"labels": labels}}}
        patched = await api.call("PATCH", f"{PATH}/web", patch, content_type=MERGE)
        assert patched.json["metadata"]["generation"] == generation
    deleted = await api.call("DELETE", f"{PATH}/web")
    assert deleted.json["kind"] == "PodTemplate"


async def test_a_strategic_patch_finds_a_container_by_its_name(api: Api) -> None:
    both = [{"name": "c", "image": "nginx"}, {"name": "d", "image": "nginx"}]
    await api.call("POST", PATH, template(containers=both))
    change = {"template": {"spec": {"containers": [{"name": "d", "image": "caddy"}]}}}
    patched = await api.call("PATCH", f"{PATH}/web", change, content_type=STRATEGIC)
    containers = patched.json["template"]["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("c", "nginx"), ("d", "caddy")]
