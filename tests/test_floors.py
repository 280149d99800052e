"""The contract that each floor imports only from those below it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def contracts(root):
    lint = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(lint, cwd=root, env={"PYTHONPATH": f"{root / 'src'}:{root}"}, capture_output=True, text=True)


def test_an_upward_import_is_caught(tmp_path):
    for name in ("src", "paper"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert contracts(tmp_path).returncode == 0
    planted = tmp_path / "src/nestbed/numerics/weights.py"
    planted.write_text(planted.read_text() + "\nfrom nestbed.smc import sweep\n")
    broken = contracts(tmp_path)
    assert broken.returncode == 1
    assert "nestbed.numerics is not allowed to import nestbed.smc" in broken.stdout
