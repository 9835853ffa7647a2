"""K:pkg/credentialprovider/keyring_test.go, config_test.go and secrets/secrets_test.go."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from nodeagent.pods.images import keyring
from nodeagent.pods.images.keyring import KeyringError
from nodeagent.pods.spec.references import ObjectData

JSON, CFG = "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"
IMAGE = "registry.example.com:5000/team/app:1"


def secret(content: Any, kind: str = JSON) -> ObjectData:
    whole = {"auths": content} if kind == JSON else content
    key = ".dockerconfigjson" if kind == JSON else ".dockercfg"
    return ObjectData({key: json.dumps(whole).encode()}, type=kind)


def entry(user: str, password: str = "pw") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode(), "email": "a@b.c"}


def found(image: str, *secrets: ObjectData) -> list[tuple[str, str]]:
    named = [(f"s{number}", one) for number, one in enumerate(secrets)]
    return [(user, password.reveal()) for user, password in keyring.logins(image, named)]


@pytest.mark.parametrize(
    ("place", "repository", "matching"),
    [
        ("*.kubernetes.io", "prefix.kubernetes.io", True),
        ("prefix.*.io", "prefix.kubernetes.io", True),
        ("prefix.kubernetes.*", "prefix.kubernetes.io", True),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", True),
        ("a*b*c.io", "axbxc.io", True),
        ("a*b*c.io", "abc.io", True),
        ("a*b*c.io", "acb.io", False),
        ("ab*bc.io", "abc.io", False),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/blah", True),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", True),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", True),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", True),
        ("[::1]:5000", "[::1]:5000/app", True),
        ("[::1]", "[::1]:5000/app", False),
        ("*.kubernetes.io", "kubernetes.io", False),
        ("*.*.kubernetes.io", "prefix.kubernetes.io", False),
        ("*kubernetes.io", "prefix.kubernetes.io", False),
        ("*.kubernetes.io", "prefix.kubernetes.com", False),
        ("*-good.kubernetes.io", "prefix-bad.kubernetes.io", False),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/other", False),
        ("kubernetes.io/foo/bar", "kubernetes.io/foo", False),
        ("*.kubernetes.io:1111", "prefix.kubernetes.io:2222", False),
        ("*.kubernetes.io:1111", "prefix.kubernetes.io", False),
        ("prefix.kubernetes.io", "prefix.kubernetes.io:1111/app", False),
    ],
)
def test_an_entry_is_for_hosts_by_glob_and_for_paths_by_prefix(
    place: str, repository: str, matching: bool
) -> None:
    assert keyring.matches(place, repository) is matching


# github.com/distribution/reference: ParseNormalizedNamed
@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("app", "docker.io/library/app"),
        ("app:1", "docker.io/library/app"),
        ("team/app:1", "docker.io/team/app"),
        ("docker.io/app", "docker.io/library/app"),
        ("index.docker.io/team/app", "docker.io/team/app"),
        ("localhost/app:1", "localhost/app"),
        ("host:5000/app", "host:5000/app"),
        ("host.example/a/b/c:1@sha256:" + "0" * 64, "host.example/a/b/c"),
    ],
)
def test_an_image_has_a_domain_and_no_tag_when_it_is_looked_up(image: str, repository: str) -> None:
    assert keyring.repository_of(image) == repository


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("images.example.com", "images.example.com"),
        ("https://images.example.com/", "images.example.com"),
        ("http://images.example.com:5000", "images.example.com:5000"),
        ("https://index.docker.io/v1/", "index.docker.io"),
        ("images.example.com/v2/", "images.example.com"),
        ("images.example.com/v2/team", "images.example.com/team"),
        ("images.example.com/v2x/team", "images.example.com/v2x/team"),
        ("https://user@images.example.com/team", "images.example.com/team"),
        ("https://[", ""),
        ("x" * 2000, ""),
    ],
)
def test_an_entry_is_written_as_a_host_or_as_an_address(location: str, place: str) -> None:
    assert keyring.place_of(location) == place


HOST = "registry.example.com:5000"


@pytest.mark.parametrize(
    ("image", "secrets", "logins"),
    [
        (IMAGE, [], []),
        (IMAGE, [secret({HOST: entry("u", "a:b")})], [("u", "a:b")]),
        (IMAGE, [secret({HOST: entry("u")}, CFG)], [("u", "pw")]),
        (IMAGE, [secret({HOST: {"username": "u", "password": "p"}})], [("u", "p")]),
        (IMAGE, [secret({HOST: {**entry("u"), "username": "x"}})], [("u", "pw")]),
        (IMAGE, [secret({HOST: {"auth": "dTpwdw"}})], [("u", "pw")]),  # without its padding
        (IMAGE, [secret({"other.example.com": entry("u")})], []),
        (IMAGE, [secret({HOST: {}}), secret({HOST: None})], []),
        (  # the most specific first, then the secrets' order, none twice
            IMAGE,
            [
                secret({HOST: entry("host"), f"{HOST}/team": entry("team")}),
                secret({"*.example.com:5000": entry("glob"), HOST: entry("second")}),
                secret({HOST: entry("host")}),
            ],
            [("team", "pw"), ("host", "pw"), ("second", "pw"), ("glob", "pw")],
        ),
        ("app", [secret({"https://index.docker.io/v1/": entry("hub")})], [("hub", "pw")]),
        ("app", [secret({"docker.io": entry("hub")})], [("hub", "pw")]),
        (
            "app",
            [secret({"index.docker.io": entry("a"), "docker.io/library": entry("b")})],
            [("b", "pw")],
        ),
        (IMAGE, [secret({"https://index.docker.io/v1/": entry("hub")})], []),
        (IMAGE, [ObjectData({".dockercfg": b"{}"}, type=JSON)], []),
        (IMAGE, [ObjectData({".dockerconfigjson": b"no"}, type="Opaque")], []),
        (IMAGE, [ObjectData({".dockerconfigjson": b'{"credsStore": "x"}'}, type=JSON)], []),
    ],
)
def test_an_image_is_pulled_with_what_the_secrets_have_for_it(
    image: str, secrets: list[ObjectData], logins: list[tuple[str, str]]
) -> None:
    assert found(image, *secrets) == logins


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"s3cret", "is not JSON"),
        (b'{"auths":' * 100_000, "is not JSON"),
        (b"[]", "no map of registries"),
        (b'{"auths": "s3cret"}', "no map of registries"),
        (b" " * 2**20 + b"{}", "larger than"),
        (b'{"auths": {"%s": "s3cret"}}' % HOST.encode(), "values that are no texts"),
        (b'{"auths": {"%s": {"password": 3}}}' % HOST.encode(), "values that are no texts"),
        (b'{"auths": {"%s": {"auth": "czNjcmV0"}}}' % HOST.encode(), "not base64 of user"),
        (b'{"auths": {"%s": {"auth": "s3cret!"}}}' % HOST.encode(), "not base64 of user"),
        (b'{"auths": {"%s": {"auth": "/zo="}}}' % HOST.encode(), "not base64 of user"),
    ],
)
def test_a_secret_that_is_not_what_its_type_says_is_named_and_not_shown(
    content: bytes, said: str
) -> None:
    with pytest.raises(KeyringError, match=said) as caught:
        found(IMAGE, ObjectData({".dockerconfigjson": content}, type=JSON))
    assert str(caught.value).startswith('secret "s0": ')
    assert "s3cret" not in str(caught.value)


def test_so_many_logins_are_tried_and_a_megabyte_of_globs_is_read_in_no_time() -> None:
    many = {f"{'*' * 50}{number}*.example.com:5000": entry("u") for number in range(4_000)}
    assert found(IMAGE, secret(many)) == []
    many = {f"{HOST}/{'team/'[: number % 5]}": entry(f"u{number}") for number in range(5)}
    crowd = [secret({HOST: entry(f"v{number}")}) for number in range(40)]
    assert len(found(IMAGE, secret(many), *crowd)) == keyring.LOGINS
