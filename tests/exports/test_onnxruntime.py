"""ONNX exports by onnxruntime, in an environment of its own that `make test-export` sets up: it has no nestbed."""

import os
import sys
from pathlib import Path

import foreign
import numpy as np
import pytest
from test_exports import CASES, TOLERANCE, known, off

import nestbed as nb

RUNTIME = Path(os.environ.get("NESTBED_ONNXRUNTIME", ".venv-export/bin/python")).absolute()
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import pathlib
import numpy as np, onnxruntime
import foreign
for folder in map(pathlib.Path, sys.argv[2:]):
    given = np.load(folder / "given.npz")
    session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    found = foreign.by_onnx(session, folder, given["y"], given["noise"], bool(given["single"]))
    np.save(folder / "found.npy", found)
assert "nestbed" not in sys.modules and "jax" not in sys.modules
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RUNTIME.exists(), reason="make test-export makes the environment of onnxruntime"),
]


def test_onnxruntime_does_what_the_policies_do(tmp_path):
    folders = {}
    for i, (name, case) in enumerate(CASES.items()):
        for single in TOLERANCE:
            folders[name, single] = folder = tmp_path / f"{i}_{single}"
            nb.export(case.policy, case.system, folder, format="onnx", single=single)
            y, noise, _ = known(name)
            np.savez(folder / "given.npz", y=y, noise=noise, single=single)
    done = foreign.run(RUNTIME, "-c", RUN, Path(foreign.__file__).parent, *folders.values())
    assert done.returncode == 0, done.stderr
    for (name, single), folder in folders.items():
        assert off(CASES[name], np.load(folder / "found.npy"), known(name)[2]) < TOLERANCE[single], name


@pytest.mark.parametrize("form", ["jax", "onnx", "csv"])
def test_the_snippet_of_the_readme_runs(form, tmp_path):
    case = CASES["held signal" if form == "csv" else "noisy feedback"]
    nb.export(case.policy, case.system, tmp_path, format=form)
    snippet = (tmp_path / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    done = foreign.run(RUNTIME if form == "onnx" else sys.executable, "-c", snippet, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "off" in done.stdout
