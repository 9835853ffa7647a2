"""The logins that a pod's pull secrets, and others, have for an image; pure.

Formats, matching and order are the reference's (K:pkg/credentialprovider keyring.go, config.go):
an entry is for a host, whose parts may have globs, and all images whose path begins with the
entry's; the most specific entries come first. Nothing of a secret's content is in an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from nodeagent.pods.spec.references import ObjectData
from nodeagent.runtime.base import Login
from orch.component.secret import Secret

LOGINS = 16  # so many are tried for one pull; the reference has no bound
CONTENT_BYTES = 1 << 20  # what an API server takes as a secret
_LOCATION_CHARS = 1024

# The key that each type of secret has its logins in.
_KEYS = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}
_DEFAULT_DOMAIN, _DEFAULT_HOST = "docker.io", "index.docker.io"


class KeyringError(Exception):
    """A secret, or a file like one, is not what it should be; the text names it."""


class RegistryLogin(NamedTuple):
    """For all images whose names begin with `place`: host, port and path."""

    place: str
    login: Login


class _Entry(NamedTuple):
    place: str
    source: str  # what errors call the secret or file
    values: Any


_Placed = TypeVar("_Placed", RegistryLogin, _Entry)


def logins(image: str, secrets: Iterable[tuple[str, ObjectData]]) -> Sequence[Login]:
    """For the image, the first to try first; `secrets` are named. KeyringError.

    An entry without a user is left out: runtimes refuse it.
    """
    entries = [entry for name, data in secrets for entry in _entries(name, data)]
    return _distinct(_login(entry) for entry in _matching(entries, image))


def logins_of_file(image: str, name: str, content: bytes) -> Sequence[Login]:
    """The same of a file of that name, as `docker login` writes it. KeyringError."""
    entries = list(_parsed(name, content, in_auths=True))
    return _distinct(_login(entry) for entry in _matching(entries, image))


def has_logins(secret: ObjectData) -> bool:
    """Whether the type of the secret is one that holds logins."""
    return secret.type in _KEYS


def fitting(found: Sequence[RegistryLogin], image: str) -> Sequence[Login]:
    """Those for the image, the first to try first."""
    return _distinct(one.login for one in _matching(found, image))


def _matching(entries: Sequence[_Placed], image: str) -> Sequence[_Placed]:
    repository = repository_of(image)
    matching = [entry for entry in entries if matches(entry.place, repository)]
    if not matching and repository.startswith(f"{_DEFAULT_DOMAIN}/"):
        matching = [entry for entry in entries if entry.place == _DEFAULT_HOST]
    return sorted(matching, key=_place, reverse=True)  # equal ones keep their order


def _place(entry: RegistryLogin | _Entry) -> str:
    return entry.place


def _distinct(found: Iterable[Login]) -> Sequence[Login]:
    return list(dict.fromkeys(login for login in found if login.user))[:LOGINS]


def repository_of(image: str) -> str:
    """The image's full name, with domain and without tag and digest."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    first, slash, rest = name.partition("/")
    named = any(sign in first for sign in ".:") or first == "localhost" or first.lower() != first
    if not slash or not named:
        first, rest = _DEFAULT_DOMAIN, name
    if first == _DEFAULT_HOST:
        first = _DEFAULT_DOMAIN
    if first == _DEFAULT_DOMAIN and "/" not in rest:
        rest = f"library/{rest}"
    return f"{first}/{rest}"


def matches(place: str, repository: str) -> bool:
    """Whether an entry for `place` is for the repository; `*` stands within a part of the host."""
    host, _, path = place.partition("/")
    wanted_host, _, wanted_path = repository.partition("/")
    labels, port = _labels(host)
    wanted, wanted_port = _labels(wanted_host)
    return (
        port == wanted_port
        and len(labels) == len(wanted)
        and wanted_path.startswith(path)
        and all(map(_fits, labels, wanted))
    )


def _labels(host: str) -> tuple[list[str], str]:
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name, port = host, ""
    return name.split("."), port


def _fits(glob: str, label: str) -> bool:
    first, *rest = glob.split("*")
    if not rest:
        return glob == label
    *middle, last = rest
    at, end = len(first), len(label) - len(last)
    if at > end or not label.startswith(first) or not label.endswith(last):
        return False
    for part in middle:
        found = label.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _entries(name: str, secret: ObjectData) -> Iterator[_Entry]:
    key = _KEYS.get(secret.type, "")
    content = secret.data.get(key, b"")
    if not content:
        return
    source = f'secret "{name}": {key}'
    yield from _parsed(source, content, in_auths=secret.type.endswith("json"))


def _parsed(source: str, content: bytes, *, in_auths: bool) -> Iterator[_Entry]:
    if len(content) > CONTENT_BYTES:
        raise KeyringError(f"{source} is larger than {CONTENT_BYTES} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise KeyringError(f"{source} is not JSON") from None
    if in_auths and isinstance(found, dict):
        found = found.get("auths") or {}
    if not isinstance(found, dict):
        raise KeyringError(f"{source} has no map of registries")
    for location, values in found.items():
        if place := place_of(location):
            yield _Entry(place, source, values)


def place_of(location: str) -> str:
    """Host, port and path of an entry; "" for one that is ignored since it is no address."""
    if len(location) > _LOCATION_CHARS:
        return ""
    text = location if location.startswith(("https://", "http://")) else f"https://{location}"
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    host, path = parts.netloc.rpartition("@")[2], parts.path
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return host + path if path != "/" else host


def _login(entry: _Entry) -> Login:
    """With an empty user where the entry has none."""
    values = entry.values or {}
    fields = _texts(values) if isinstance(values, dict) else None
    if fields is None:
        raise KeyringError(f"{entry.source}: an entry has values that are no texts")
    user, password, auth = fields
    if auth:
        try:
            user, password = _decoded(auth)
        except ValueError:
            text = "the auth of an entry is not base64 of user:password"
            raise KeyringError(f"{entry.source}: {text}") from None
    return Login(user, Secret(password))


def _texts(values: Mapping[str, Any]) -> tuple[str, str, str] | None:
    user, password, auth = (values.get(key) or "" for key in ("username", "password", "auth"))
    if isinstance(user, str) and isinstance(password, str) and isinstance(auth, str):
        return user, password, auth
    return None


def _decoded(auth: str) -> tuple[str, str]:
    """ValueError."""
    text = auth.strip()
    padding = "" if text.endswith("=") else "=" * (-len(text) % 4)
    user, colon, password = base64.b64decode(text + padding, validate=True).decode().partition(":")
    if not colon:
        raise ValueError("no colon")
    return user, password
