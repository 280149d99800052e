"""Requests made up from the server's own description: each is answered, and none by a failure of the server."""

import pytest
from hypothesis import HealthCheck, given, settings

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.web

EXAMPLES, PATIENCE = 25, 60.0
"""Requests of each kind and address, and seconds that one may take."""


def test_no_request_makes_the_server_fail_or_hang(serve):
    server = serve()
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    told = []
    for found in schema.get_all_operations():
        operation = found.ok()
        told.append(operation.label)
        _try(operation)
    assert len(told) >= 18


def _try(operation):
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def one(case):
        answer = case.call(timeout=PATIENCE)
        assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, case.as_curl_command())
        if answer.status_code >= 400:
            assert isinstance(answer.json()["error"], str)

    one()
