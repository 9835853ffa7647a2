from __future__ import annotations

from orch.ctl import permissions


def test_rules_are_taken_apart_put_together_and_sorted() -> None:
    resources = [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        {
            "verbs": ["get"],
            "apiGroups": ["g.io"],
            "resources": ["x/y"],
            "resourceNames": ["n", "m"],
        },
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    ]
    paths = [{"verbs": ["get", "head"], "nonResourceURLs": ["/a", "/b"]}]
    assert permissions.rows([*resources, *paths]) == [
        ("*.*", "[]", "[]", "[*]"),
        ("", "[/a]", "[]", "[get]"),
        ("", "[/b]", "[]", "[get]"),
        ("x.g.io/y", "[]", "[m]", "[get]"),
        ("x.g.io/y", "[]", "[n]", "[get]"),
        ("", "[/a]", "[]", "[head]"),
        ("", "[/b]", "[]", "[head]"),
        ("pods", "[]", "[]", "[list get]"),
        ("pods/log", "[]", "[]", "[list]"),
    ]


def test_nothing_allowed_is_no_row() -> None:
    assert permissions.rows([]) == []
