"""Routes beside resources: discovery, OpenAPI, version, health, metrics."""

from __future__ import annotations

import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.http.sliced_response import compress, respond
from orch.server.discovery import openapi
from orch.server.discovery.published import Published
from orch.server.request import media
from orch.wire.names import MAJOR, MINOR, VERSION

if TYPE_CHECKING:
    from orch.server.authn.service_account_tokens import AccountTokens

_KEYS = "/openid/v1/jwks"
_NOT_SHARED = "no-cache, private"  # what is answered depends on who asks
_REVALIDATED = "public"
_LASTING = "public, immutable, max-age=31536000"
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes(
    published: Published,
    health: HealthChecks,
    sli: SliMetrics,
    page: Callable[[str], Awaitable[tuple[bytes, str]]],
) -> list[web.RouteDef]:
    """Every route that is not a resource's; `page` renders the metrics for an Accept header."""

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = await page(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return [
        *discovery_routes(published),
        *openapi_routes(published),
        *_both("/version", _fixed(_version())),
        *health.handlers(),
        web.get("/metrics", metrics),
        web.get("/metrics/slis", sli.show),
    ]


def discovery_routes(published: Published) -> list[web.RouteDef]:
    async def discover(request: web.Request) -> web.Response:
        accept, agent = (request.headers.get(name, "") for name in ("Accept", "User-Agent"))
        document = (await published.discovery()).find(request.path, accept, agent)
        if document is None:
            raise web.HTTPNotFound
        cache = _REVALIDATED if document.etag else _NOT_SHARED
        page = _Page(document.body, document.content_type, cache, document.etag)
        return page.answer(request)

    return [
        route
        for path in ("/api", "/api/{version}", "/apis", "/apis/{group}", "/apis/{group}/{version}")
        for route in _both(path, discover)
    ]


def index(others: Sequence[web.RouteDef], published: Published) -> web.RouteDef:
    """`GET /`: the paths of discovery and of these other routes, except those with variables."""
    served = {other.path for other in others if not other.path.startswith("/api")}
    fixed = {path for path in served if "{" not in path and not path.endswith("/")}

    async def answer(request: web.Request) -> web.Response:
        paths = {*fixed, *(await published.discovery()).paths, *await published.v3()}
        return _Page(orjson.dumps({"paths": sorted(paths)})).answer(request)

    return web.get("/", answer)


def openapi_routes(published: Published) -> list[web.RouteDef]:
    async def v2(request: web.Request) -> web.Response:
        if "openapi.spec.v2" in request.headers.get("Accept", ""):
            found = await published.v2_protobuf()
            return _Page(found.body, openapi.V2_PROTOBUF, etag=found.etag).answer(request)
        found = await published.v2_json()
        return _Page(found.body, etag=found.etag).answer(request)

    async def v3(request: web.Request) -> web.Response:
        found = (await published.v3()).get(request.path)
        if found is None:
            raise web.HTTPNotFound
        return _hashed(request, _Page(found.body, etag=found.etag))

    return [web.get("/openapi/v2", v2), web.get("/openapi/v3", v3),
            web.get("/openapi/v3/{path:.+}", v3)]  # fmt: skip


def _hashed(request: web.Request, page: _Page) -> web.Response:
    """Under its hash, as the index names it, the document never changes; under another one it is
    elsewhere.
    """
    asked, own_hash = request.query.get("hash"), page.etag.strip('"')
    if not asked:
        return page.answer(request)
    if asked == own_hash:
        return replace(page, cache=_LASTING).answer(request)
    location = f"{request.rel_url.raw_path}?hash={own_hash}"
    return web.Response(status=301, headers={"Location": location})


def openid_routes(accounts: AccountTokens | None) -> list[web.RouteDef]:
    """What others need to verify service accounts' tokens; nothing where there is no key, or an
    issuer by whose name nobody could find it.
    """
    if accounts is None or not accounts.issuer.startswith("https://"):
        return []
    configuration = {
        "issuer": accounts.issuer,
        "jwks_uri": f"{accounts.issuer.rstrip('/')}{_KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": accounts.algorithms,
    }
    public = "public, max-age=3600"
    keys = _fixed(
        orjson.dumps({"keys": accounts.public_keys()}), "application/jwk-set+json", public
    )
    return [
        *_both("/.well-known/openid-configuration",
               _fixed(orjson.dumps(configuration), cache=public)),
        *_both(_KEYS, keys),
    ]  # fmt: skip


def _both(path: str, handle: Handle) -> list[web.RouteDef]:
    """With and without a trailing slash."""
    return [web.get(path, handle), web.get(f"{path}/", handle)]


@dataclass(frozen=True, slots=True)
class _Page:
    """A document that is the same as long as the server runs; with an `etag`, clients may ask
    whether it still is.
    """

    body: bytes
    content_type: str = media.JSON
    cache: str = _NOT_SHARED
    etag: str = ""

    def answer(self, request: web.Request) -> web.Response:
        headers = {"Cache-Control": self.cache, "Vary": "Accept"}
        if self.etag:
            headers["ETag"] = self.etag
            if request.headers.get("If-None-Match") == self.etag:
                return web.Response(status=304, headers=headers)
        response = respond(200, self.body, {**headers, "Content-Type": self.content_type})
        compress(request, response)
        return response


def _fixed(body: bytes, content_type: str = media.JSON, cache: str = _NOT_SHARED) -> Handle:
    page = _Page(body, content_type, cache)

    async def answer(request: web.Request) -> web.Response:
        return page.answer(request)

    return answer


def _version() -> bytes:
    return orjson.dumps(
        {
            "major": MAJOR,
            "minor": MINOR,
            "gitVersion": VERSION,
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": f"python{platform.python_version()}",
            "compiler": platform.python_implementation().lower(),
            "platform": f"linux/{platform.machine()}",
        }
    )
