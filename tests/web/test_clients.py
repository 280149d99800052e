"""The clients of docs/serve.md, as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.web
CLIENTS = Path(__file__).parents[2] / "examples" / "clients"


@pytest.mark.parametrize("command", [(sys.executable, CLIENTS / "client.py"), ("sh", CLIENTS / "client.sh")])
def test_a_client_goes_through_its_session(serve, command):
    server = serve()
    done = subprocess.run([*command, server.address], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert '"parameters"' in done.stdout or "experiments are done" in done.stdout
    again = subprocess.run([*command, server.address], capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr  # the session is there already, and over


def test_the_client_is_short():
    lines = (CLIENTS / "client.py").read_text().splitlines()
    assert len([line for line in lines[1:] if line.strip()]) <= 20
