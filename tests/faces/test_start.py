"""Starting up: light imports, the compilation cache, the command line, the README."""

import os
import re
import sys
from pathlib import Path

import pytest

from children import run
from nestbed.belief.registry import BELIEFS
from nestbed.faces.cli.registry import COMMANDS
from nestbed.policies.registry import BASELINES
from nestbed.systems.registry import SYSTEMS
from nestbed.training.registry import METHODS

ROOT = Path(__file__).parents[2]


def python(code, **environment):
    """Run code in a new process that inherits nothing this one told jax."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return run(sys.executable, "-c", code, env={**inherited, **environment})


def test_import_is_light():
    assert python("import sys, nestbed; sys.exit('jax' in sys.modules)").returncode == 0


def test_help_does_not_load_jax():
    asked = "sys.argv[1:] = {}\ntry: main()\nexcept SystemExit: pass\n"
    pages = [asked.format([*command, "--help"]) for command in ([], *([name] for name in COMMANDS))]
    code = f"import sys\nfrom nestbed.faces.cli.app import main\n{''.join(pages)}sys.exit('jax' in sys.modules)"
    told = python(code)
    assert told.returncode == 0, told.stderr
    for listed in (*COMMANDS, *SYSTEMS, *METHODS, *BASELINES, *BELIEFS, "nestbed evaluate chirp --system cart_pole"):
        assert listed in told.stdout


@pytest.mark.parametrize("order", ["import jax, nestbed as nb", "import nestbed as nb, jax"])
def test_float64_whatever_is_imported_first(order):
    told = python(f"{order}\nimport jax.numpy as jnp\nprint(jnp.ones(1).dtype)")
    assert told.stdout.strip() == "float64"


@pytest.mark.slow
def test_compiled_programs_are_kept(tmp_path):
    code = (
        "import jax, nestbed as nb; s = nb.systems.load('linear_pendulum');"
        "nb.eig(jax.random.key(0), s, nb.policies.Random(s), horizon=2, trajectories=2, belief='exact')"
    )
    assert python(code, XDG_CACHE_HOME=str(tmp_path), JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0").returncode == 0
    assert list((tmp_path / "nestbed" / "compiled").iterdir())


def test_command_line(command, tmp_path):
    told = command(
        *[
            "compare",
            "linear_pendulum",
            "--seeds",
            "2",
            "--trajectories",
            "2",
            "--belief",
            "exact",
            "--horizon",
            "3",
        ],
        *["--out", str(tmp_path / "new" / "folder")],
    )
    assert told.returncode == 0, told.stderr
    assert "prbs" in told.stdout
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["comparison.csv", "comparison.png"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["compare", "cartpole"], "did you mean 'cart_pole'"),
        (["compare", "cart_pole", "--baselines", "randm"], "did you mean 'random'"),
        (["compare", "cart_pole", "--particles", "0"], "particles is 0"),
        (["compare", "cart_pole", "--baselines"], "there is nothing to compare"),
        (["compare", "cart_pole", "--seed", "99999999999999999999"], "whole number from 0 to"),
        (["compare", "cart_pole", "--out", "/proc/none"], "cannot write to the folder /proc/none"),
    ],
)
def test_command_line_mistakes(command, arguments, told):
    result = command(*arguments)
    assert result.returncode == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_a_full_disk_is_told_after_the_table(monkeypatch, tmp_path, capsys):
    from nestbed.faces import figures
    from nestbed.faces.cli.compare import compare
    from nestbed.faces.cli.evaluation import Options
    from nestbed.numerics.errors import NestbedError

    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figures, "information_gain", full)
    options = Options(seeds=2, trajectories=2, belief="exact", horizon=3, out=tmp_path)
    with pytest.raises(NestbedError, match=r"could not save to .*No space left on device.*choose another --out"):
        compare("linear_pendulum", options=options)
    assert "prbs" in capsys.readouterr().out


def test_systems_are_listed(command):
    told = command("systems")
    assert all(name in told.stdout for name in ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link"))


GUIDE = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("systems", "run", "train"))]
"""Pages whose code runs as it stands."""


def test_what_the_documents_link_to_is_there():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert "://" in link or (page.parent / link).is_file(), f"{page.name}: {link}"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_guide_runs():
    quick = [block for page in GUIDE for block in blocks(page) if "nb.train" not in block and "oven = " not in block]
    assert len(quick) >= 3
    told = python("\n".join(quick))
    assert told.returncode == 0, told.stderr
    assert "nats" in told.stdout
    prose = " ".join(re.sub(r"```.*?```", "", (ROOT / "docs" / "train.md").read_text(), flags=re.DOTALL).split())
    for name, words in {"random": "nats for random inputs", "prbs": "nats for PRBS, and the best constant"}.items():
        printed = re.search(rf"^{name} (\S+) nats", told.stdout, flags=re.MULTILINE)[1]
        written = re.search(rf"(\S+) {words}", prose)[1]
        assert float(written) == pytest.approx(float(printed), abs=0.02)


@pytest.mark.slow
def test_the_guide_trains_and_learns_of_hidden_states():
    for page in GUIDE:
        told = python("\n".join(blocks(page)))
        assert told.returncode == 0, f"{page.name}: {told.stderr}"
    assert "learned:" in told.stdout
