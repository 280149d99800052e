"""Requests made up from the server's own description: each is answered, and none by a failure of the server."""

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.web

EXAMPLES, PATIENCE = 25, 60.0
"""Requests of each kind and address, and seconds that one may take."""
START = {"id": "monday", "system": "linear_pendulum", "policy": "prbs", "horizon": 9, "particles": 16, "seed": 0}


def test_no_request_makes_the_server_fail_or_hang(serve):
    """About half of them are about a session that there is."""
    server = serve()
    assert httpx.post(f"{server.address}/sessions", json=START).status_code == 201
    schema = schemathesis.openapi.from_url(f"{server.address}/openapi.json")
    every = sorted((found.ok() for found in schema.get_all_operations()), key=lambda each: "abort" in each.label)
    told = [_try(operation) for operation in every]
    assert len(told) >= 18
    assert any(status == 200 for statuses in told for status in statuses)
    assert any(status == 422 for statuses in told for status in statuses)
    assert httpx.get(f"{server.address}/sessions").status_code == 200
    assert server.process.poll() is None


def _try(operation):
    """Send requests to one address, and return the statuses of their answers."""
    statuses = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(), known=st.booleans())
    def one(case, known):
        if known and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = START["id"]
        answer = case.call(timeout=PATIENCE)
        statuses.append(answer.status_code)
        assert answer.status_code < 500 or answer.status_code == 503, (answer.status_code, case.as_curl_command())
        if answer.status_code >= 400:
            assert isinstance(answer.json()["error"], str)

    one()
    return statuses
