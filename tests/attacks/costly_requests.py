"""Other requests that are costly, by group."""

from __future__ import annotations

from tests.attacks.costly import (
    BINDINGS,
    CORE,
    DRY,
    LONG_NAME,
    MANY,
    REVIEWS,
    ROLES,
    YAML,
    Attack,
    fields_of,
    named,
    pod,
    review,
    rules,
    selector,
    text,
)
from tests.attacks.harness import MALLORY, OPERATOR, TENANT, token

REQUESTS: dict[str, dict[str, Attack]] = {
    "roles": {
        "a role of 2 000 rules that are not held": Attack(
            TENANT, "POST", ROLES, lambda: named("greedy", rules=rules(2_000)), 403
        ),
        "a role of 7 800 parts that are not held": Attack(
            TENANT,
            "POST",
            ROLES,
            lambda: named("greedy", rules=rules(1_300, verbs=list("abcdef"))),
            403,
        ),
        "a role of 2 000 rules that are held": Attack(
            TENANT,
            "POST",
            ROLES,
            lambda: named("rich", rules=rules(2_000, resources=["pods"])),
            201,
        ),
        "a binding to many subjects": Attack(
            TENANT,
            "POST",
            BINDINGS,
            lambda: named(
                "crowd",
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[{"kind": "User", "name": f"u{n}"} for n in range(MANY)],
            ),
            201,
        ),
        "a binding to many others": Attack(
            TENANT,
            "PUT",
            f"{BINDINGS}/crowd",
            lambda: named(
                "crowd",
                roleRef={"kind": "ClusterRole", "name": "view"},
                subjects=[{"kind": "User", "name": f"v{n}"} for n in range(MANY)],
            ),
            200,
        ),
    },
    "reviews": {
        "a review of many numbers": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: text('{"spec":{"x":[0', ",0", 1_490_000, "]}}"),
            413,
        ),
        "a review of many lists": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: text('{"spec":{"x":[[]', ",[]", 990_000, "]}}"),
            413,
        ),
        "a review of an endless selector": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(labelSelector={"rawSelector": "a," * 1_490_000}),
            201,
        ),
        "a review of many requirements": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                labelSelector={"requirements": [{"key": "!" * 60, "operator": "Exists"}] * MANY}
            ),
            422,
        ),
        "a review of a long key": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                labelSelector={"requirements": [{"key": LONG_NAME, "operator": "Exists"}]}
            ),
            422,
        ),
        "a review of a long field": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                fieldSelector={
                    "requirements": [{"key": "k", "operator": "In", "values": ["=" * 28_000]}] * 100
                }
            ),
            201,
        ),
        "a review of many values": Attack(
            MALLORY,
            "POST",
            f"{REVIEWS}/selfsubjectaccessreviews",
            lambda: review(
                labelSelector={
                    "requirements": [
                        {"key": "a", "operator": "In", "values": [f"v{n}" for n in range(19_000)]}
                    ]
                }
            ),
            201,
        ),
        "a review of many groups that hold a large role and many small ones": Attack(
            TENANT,
            "POST",
            f"{REVIEWS}/namespaces/{TENANT}/localsubjectaccessreviews",
            lambda: {
                "metadata": {"namespace": TENANT},
                "spec": {
                    **review(namespace=TENANT, resource="pods", name="other")["spec"],
                    "groups": [f"g{n}" for n in range(MANY)],
                },
            },
            201,
        ),
        "a review of a token for an audience that is told in an error": Attack(
            OPERATOR,
            "POST",
            "/apis/authentication.orch.io/v1/tokenreviews",
            lambda: text(
                f'{{"spec":{{"token":"{token(MALLORY)}","audiences":["', "\x7f", 2_900_000, '"]}}'
            ),
            201,
        ),
        "a review of one's own rules": Attack(
            TENANT,
            "POST",
            f"{REVIEWS}/selfsubjectrulesreviews",
            lambda: {"spec": {"namespace": TENANT}},
            201,
        ),
    },
    "YAML": {
        "directives, each of which is compared with all": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"".join(b"%%TAG !%x! a\n" % n for n in range(34_000)) + b"--- {}",
            400,
            YAML,
        ),
        "a long prefix for each of many tags": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"%TAG !a! " + b"b" * 380_000 + text("\n--- [", "!a!b c,", 18_000, "d]"),
            400,
            YAML,
        ),
        "aliases of a long text": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"a: &a " + b"b" * 400_000 + text("\nc: [", "*a,", 18_000, "*a]"),
            400,
            YAML,
        ),
        "the longest text": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps" + DRY,
            lambda: b"metadata: {name: x}\ndata:\n a: |\n" + b"  b\n" * 130_000,
            201,
            YAML,
        ),
        "a number without end": Attack(
            TENANT,
            "POST",
            CORE + "/configmaps",
            lambda: b"a: 1." + b"1" * 520_000 + b"e",
            422,
            YAML,
        ),
    },
    "bodies": {
        "many values": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps",
            lambda: text('{"metadata":{},"data":{', '"a":"b",', 370_000, '"c":"d"}}'),
            413,
        ),
        "three megabytes of commas in a text": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: named("x", data={"a": ',[{"' * 250_000}),
            201,
        ),
        "deep nesting": Attack(
            TENANT, "POST", f"{CORE}/configmaps", lambda: b'{"a":' * 19_000, 400
        ),
        "many fields twice, below a long name": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps?dryRun=All&fieldValidation=Strict",
            lambda: text('{"' + "x" * 1_000_000 + '":{', '"abc":1,', 19_000, '"a":1}}'),
            400,
        ),
        "many unknown fields": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods?dryRun=All&fieldValidation=Strict",
            lambda: pod("x", tolerations=[{"x" * 60: n} for n in range(9_000)]),
            400,
        ),
        "many wrong values": Attack(
            TENANT, "POST", f"{CORE}/pods" + DRY, lambda: pod("x", containers=[1] * 19_000), 400
        ),
        "many missing values": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod("x", securityContext={"sysctls": [{}] * 9_000}),
            400,
        ),
        "a long name": Attack(
            TENANT, "POST", f"{CORE}/configmaps" + DRY, lambda: named(LONG_NAME), 422
        ),
        "many invalid labels": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {"metadata": {"labels": {f"-{n}": "-" for n in range(18_000)}}},
            422,
        ),
    },
    "pods": {
        "many invalid names": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod(
                "x", containers=[{"name": "a", "image": "b", "env": [{"name": "="}] * 9_000}]
            ),
            422,
        ),
        "many amounts": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod(
                "x",
                containers=[
                    {
                        "name": "a",
                        "image": "b",
                        "resources": {"limits": {f"a.b/r{n}": f"{n}.5Gi" for n in range(9_000)}},
                    }
                ],
            ),
            201,
        ),
        "many containers": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: pod("x", containers=[{"name": f"c{n}", "image": "b"} for n in range(1_000)]),
            201,
        ),
        "many variables": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods",
            lambda: pod(
                "variables",
                containers=[
                    {
                        "name": "a",
                        "image": "b",
                        "env": [
                            {
                                "name": f"v{n}",
                                "valueFrom": {"secretKeyRef": {"name": f"s{n}", "key": "k"}},
                            }
                            for n in range(3_000)
                        ],
                    }
                ],
            ),
            201,
        ),
        "many owners": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {
                "metadata": {
                    "name": "x",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": f"{n}"}
                        for n in range(3_900)
                    ],
                }
            },
            422,
        ),
        "many owners of one uid": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: {
                "metadata": {
                    "name": "x",
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Pod", "name": f"p{n}", "uid": "u" * 600}
                        for n in range(3_900)
                    ],
                }
            },
            201,
        ),
        "many values in YAML": Attack(
            TENANT,
            "POST",
            f"{CORE}/configmaps" + DRY,
            lambda: (
                b"metadata: {name: x}\ndata:\n"
                + b"".join(b"  k%d: v\n" % number for number in range(19_000))
            ),
            201,
            "application/yaml",
        ),
        "many fields in protobuf": Attack(
            TENANT,
            "POST",
            f"{CORE}/pods" + DRY,
            lambda: fields_of(b"\xb2\x01\x03\x0a\x01k", 5_900),
            201,
            "application/vnd.kubernetes.protobuf",
        ),
    },
    "headers": {
        "a stranger's content type of many parameters": Attack(
            "", "PATCH", "/api", lambda: None, 401, "a/b" + 8_000 * ";"
        ),
    },
    "lists": {
        "a large object for people": Attack(
            TENANT, "GET", f"{BINDINGS}/crowd?pretty=true", lambda: None, 200
        ),
        "a list of every object by many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?labelSelector=" + selector("!{}", 100),
            lambda: None,
            200,
        ),
        "a list by too many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?labelSelector=" + selector("!{}", 1_500),
            lambda: None,
            400,
        ),
        "a watch of every object by many terms": Attack(
            TENANT,
            "GET",
            f"{CORE}/configmaps?watch=1&timeoutSeconds=1&labelSelector=" + selector("!{}", 100),
            lambda: None,
            200,
        ),
        "a collection deleted": Attack(TENANT, "DELETE", f"{CORE}/configmaps", lambda: None, 200),
    },
}
