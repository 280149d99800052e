"""The plan of the whole paper, made once."""

import pytest

from paper.cells import plan
from paper.studies import FULL, SYSTEMS


@pytest.fixture(scope="session")
def full_plan():
    return plan(tuple(SYSTEMS), FULL, 5)
