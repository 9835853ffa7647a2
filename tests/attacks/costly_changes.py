"""Patches and applies that are costly, by group."""

from __future__ import annotations

from tests.attacks.costly import (
    APPLY,
    AS,
    CORE,
    DRY,
    LONG,
    MANY,
    MERGE,
    PATCH,
    POD,
    STRATEGIC,
    Attack,
    pod,
    text,
    tolerations,
)
from tests.attacks.harness import TENANT

CHANGES: dict[str, dict[str, Attack]] = {
    "patches": {
        "a patch that removes many values": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: {
                "spec": {
                    "containers": [
                        {
                            "name": "a",
                            "$deleteFromPrimitiveList/args": [f"x{n}" for n in range(18_000)],
                        }
                    ]
                }
            },
            422,
            STRATEGIC,
        ),
        "a patch that arranges many elements": Attack(
            TENANT,
            "PATCH",
            POD + DRY,
            lambda: {"spec": {"volumes": [{"name": f"v{n}"} for n in range(9_000)]}},
            422,
            STRATEGIC,
        ),
        "a patch of one element again and again": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: {"spec": {"containers": [{"name": "a", "stdin": True}] * 6_000}},
            413,
            STRATEGIC,
        ),
        "a patch with retained keys": Attack(
            TENANT,
            "PATCH",
            POD + DRY,
            lambda: {
                "spec": {
                    "$retainKeys": [f"x{n}" for n in range(9_000)],
                    **{f"x{n}": "" for n in range(9_000)},
                }
            },
            422,
            STRATEGIC,
        ),
        "a patch with 20 000 tolerations": Attack(
            TENANT, "PATCH", POD, lambda: {"spec": {"tolerations": tolerations(20_000)}}, 413, MERGE
        ),
        "a patch with 4 500 tolerations": Attack(
            TENANT, "PATCH", POD, lambda: {"spec": {"tolerations": tolerations(MANY)}}, 200, MERGE
        ),
        "10 000 removals from the front of a list": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "remove", "path": "/spec/containers/0/args/0"}] * 10_000,
            413,
            PATCH,
        ),
        "10 000 removals from a sent list": Attack(
            TENANT,
            "PATCH",
            POD,
            lambda: text(
                '[{"op":"add","path":"/spec/x","value":[0',
                ",0",
                1_000_000,
                "]}" + ',{"op":"remove","path":"/spec/x/0"}' * 9_999 + "]",
            ),
            413,
            PATCH,
        ),
        "10 000 tests": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "test", "path": "/kind", "value": "Pod"}] * 10_000,
            200,
            PATCH,
        ),
        "a patch that makes a large object": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "add", "path": "/spec/x", "value": [0] * 50_000}],
            413,
            PATCH,
        ),
        "10 000 copies": Attack(
            TENANT,
            "PATCH",
            LONG + DRY,
            lambda: [{"op": "copy", "from": "/spec", "path": "/spec/x"}] * 6_000,
            413,
            PATCH,
        ),
    },
    "applies": {
        "19 000 fields": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: {"data": {f"k{n}": "" for n in range(19_000)}},
            201,
            APPLY,
        ),
        "9 000 fields of others": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/wide{AS}",
            lambda: {"data": {f"k{n}": "mine" for n in range(9_000)}},
            409,
            APPLY,
        ),
        "9 000 fields of others, by force": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/wide{AS}&force=true",
            lambda: {"data": {f"k{n}": "mine" for n in range(8_999, -1, -1)}},
            200,
            APPLY,
        ),
        "many fields in YAML": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: b"data:\n" + b"".join(b"  k%d: v\n" % number for number in range(19_000)),
            201,
            APPLY,
        ),
        "one element 6 000 times": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/pods/new{AS}",
            lambda: pod("new", containers=[{"name": "a", "image": "b"}] * 6_000),
            400,
            APPLY,
        ),
        "100 000 elements": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: {"metadata": {"finalizers": [f"a.b/{n}" for n in range(100_000)]}},
            413,
            APPLY,
        ),
        "a million lists": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: text('{"a":[[]', ",[]", 1_000_000, "]}"),
            413,
            APPLY,
        ),
        "elements in another order": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/pods/ordered{AS}",
            lambda: pod(
                "ordered",
                containers=[
                    {
                        "name": "a",
                        "image": "b",
                        "env": [{"name": f"v{n}", "value": ""} for n in range(4_000, 0, -1)],
                    }
                ],
            ),
            422,
            APPLY,
        ),
        "deep nesting": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: b'{"a":' * 150 + b"1" + b"}" * 150,
            400,
            APPLY,
        ),
        "three megabytes": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/new{AS}",
            lambda: {"data": {"a": "x" * 3_100_000}},
            422,
            APPLY,
        ),
        "managers with 30 000 fields": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/wide?dryRun=All",
            lambda: {
                "metadata": {
                    "managedFields": [
                        {
                            "manager": f"m{number}",
                            "operation": "Apply",
                            "apiVersion": "v1",
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {f'k:{{"n":{n}}}': {} for n in range(300)},
                        }
                        for number in range(100)
                    ]
                }
            },
            200,
            MERGE,
        ),
        "managers that own the same": Attack(
            TENANT,
            "PATCH",
            f"{CORE}/configmaps/wide?dryRun=All",
            lambda: {
                "data": {f"k{n}": "changed" for n in range(3_000)},
                "metadata": {
                    "managedFields": [
                        {
                            "manager": f"m{number}",
                            "operation": "Apply",
                            "apiVersion": "v1",
                            "fieldsType": "FieldsV1",
                            "fieldsV1": {"f:data": {f"f:k{n}": {} for n in range(180)}},
                        }
                        for number in range(90)
                    ]
                },
            },
            200,
            MERGE,
        ),
    },
}
