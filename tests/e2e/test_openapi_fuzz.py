"""Requests made from the server's own OpenAPI documents: whatever fits them, no answer is a 500.

schemathesis generates them; names are often put to those of things that exist, so that requests
get further than "not found".
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.e2e.apiserver import ApiServer, running

pytestmark = pytest.mark.seconds(25)

IN_TEST, IN_SOAK = 2, 60  # requests per operation
EXISTING = "fuzzed"
NAMESPACE = "default"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("fuzz")
    key_file = directory / "pki" / "server.key"  # without one no tokens are issued: a 503
    with running(
        directory, "--serve-upstream-aliases", f"--service-account-signing-key-file={key_file}"
    ) as server:
        yield server
        assert "Traceback" not in server.log()


@pytest.fixture(scope="module")
def session(server: ApiServer) -> Iterator[requests.Session]:
    pki = server.directory / "pki"
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(pki / "ca.crt")
        session.cert = (str(pki / "admin.crt"), str(pki / "admin.key"))
        yield session


class Fuzz:
    """What was answered, by code, and what should not have been."""

    def __init__(self, session: requests.Session, base: str) -> None:
        self.session, self.base = session, base
        self.codes: Counter[int] = Counter()
        self.failures: list[str] = []
        self._turn = itertools.count()

    def document(self, path: str) -> Any:
        return self.session.get(self.base + path, timeout=30).json()

    def send(self, case: Any) -> None:
        turn = next(self._turn)
        self._aim(case, turn)
        prepared = case.as_transport_kwargs(base_url=self.base)
        answer = self.session.request(**prepared, timeout=30, allow_redirects=False)
        self.codes[answer.status_code] += 1
        if answer.status_code >= 500:
            self.failures.append(f"{prepared}: {answer.status_code} {answer.text[:300]}")

    @staticmethod
    def _aim(case: Any, turn: int) -> None:
        """Put names that exist into most requests; a watch would only last."""
        case.query.pop("watch", None)
        if turn % 4 and "namespace" in case.path_parameters:
            case.path_parameters["namespace"] = NAMESPACE
        if turn % 3 and "name" in case.path_parameters:
            case.path_parameters["name"] = EXISTING
        if turn % 2 and isinstance(case.body, dict):
            for field in ("kind", "apiVersion"):
                case.body.pop(field, None)
            metadata = case.body.setdefault("metadata", {})
            if isinstance(metadata, dict):
                metadata["name"] = EXISTING
                for field in ("namespace", "resourceVersion", "uid"):
                    metadata.pop(field, None)

    def run(self, examples: int, *, by_every_name: bool) -> None:
        """Groups with two names are asked by both, or only by the project's own."""
        paths = set(self.document("/openapi/v3")["paths"])
        aliases = {
            path for path in paths if path.replace(".k8s.io/", ".orch.io/") in paths - {path}
        }
        for path in sorted(paths if by_every_name else paths - aliases):
            schema = schemathesis.openapi.from_dict(self.document(f"/openapi/v3/{path}"))
            for found in schema.get_all_operations():
                self._operation(found.ok(), examples)

    def _operation(self, operation: Any, examples: int) -> None:
        @seed(examples)
        @given(case=operation.as_strategy())
        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def every(case: Any) -> None:
            self.send(case)

        every()


@pytest.mark.parametrize(
    "examples",
    [IN_TEST, pytest.param(IN_SOAK, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_no_request_that_fits_the_documents_is_answered_with_a_500(
    server: ApiServer, session: requests.Session, examples: int
) -> None:
    fuzz = Fuzz(session, f"https://127.0.0.1:{server.port}")
    fuzz.run(examples, by_every_name=examples == IN_SOAK)
    print(f"answers by code: {dict(sorted(fuzz.codes.items()))}")
    assert fuzz.failures == []
    assert fuzz.codes[200] > 20
    assert fuzz.codes[201] > 5
    assert fuzz.document("/version")["major"] == "1"
