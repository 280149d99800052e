"""Digests of sources: what they are of, and what changes them."""

import pytest

from nestbed.runs import sources

FILES = {
    "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nestbed.far import x\n",
    "root.py": "from nestbed.inner.near import f\nimport numpy\ndef g():\n    from . import late\n    return late.x\n",
    "late.py": "x = 1\n",
    "far.py": "x = 2\n",
    "inner/__init__.py": "from nestbed.inner.beside import y\n",
    "inner/near.py": "from ..deep import z\nf = z\n",
    "inner/beside.py": "y = 3\n",
    "deep.py": "z = 4\n",
}


@pytest.fixture
def made(tmp_path):
    """Return how to write a package with some of its files changed."""
    count = iter(range(100))

    def make(changes=()):
        home = tmp_path / str(next(count))
        for name, text in {**FILES, **dict(changes)}.items():
            file = home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return home

    return make


def test_imports_are_followed_wherever_they_stand(made):
    found = sources.modules("nestbed.root", home=made())
    assert set(found) == {f"nestbed{name}" for name in ("", ".root", ".late", ".inner", ".inner.near", ".deep")}
    packaged = sources.modules("nestbed.inner", home=made())
    assert set(packaged) == {"nestbed", "nestbed.inner", "nestbed.inner.beside"}


@pytest.mark.parametrize("name", ["root.py", "late.py", "inner/near.py", "deep.py", "inner/__init__.py"])
def test_changed_code_changes_the_digest(made, name):
    homes = made(), made({name: FILES[name] + "w = 5\n"})
    one, other = (sources.digest("nestbed.root", home=home) for home in homes)
    assert one != other


@pytest.mark.parametrize(
    "text",
    [
        "# told\nx   =  1\n",
        '"""Told."""\n\nx = 1\n"""And of x."""\n',
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os\nx = 1\n",
    ],
)
def test_what_does_not_run_is_left_out(made, text):
    plain = "from typing import TYPE_CHECKING\nx = 1\n" if "TYPE" in text else "x = 1\n"
    homes = made({"late.py": plain}), made({"late.py": text})
    one, other = (sources.digest("nestbed.root", home=home) for home in homes)
    assert one == other


def test_a_body_of_text_alone_still_has_a_digest(made):
    text = 'class A:\n    """Told."""\n\n\ndef f():\n    """Told."""\n'
    told = sources.modules("nestbed.late", home=made({"late.py": text}))["nestbed.late"]
    assert told.split() == ["class", "A:", "pass", "def", "f():", "pass"]


def test_faces_and_strangers_are_not_in_the_digest_of_an_estimate():
    found = set(sources.modules("nestbed.evaluation.comparison", "nestbed.policies", "__main__", "numpy"))
    assert not found & sources.NUMBERLESS
    assert not any(name.startswith(("nestbed.faces", "nestbed.runs")) for name in found)
    assert {"nestbed.belief.ibis", "nestbed.likelihood.history", "nestbed.likelihood.observed"} <= found
    assert {"nestbed.smc.sweep", "nestbed.policies.prbs", "nestbed.numerics.noise"} <= found


def test_a_training_hangs_on_what_is_named_lazily():
    found = set(sources.modules("nestbed.runs.train", "nestbed.training.score_climbing"))
    assert {"nestbed.training.trainer", "nestbed.training.gradient"} <= found
    assert not {"nestbed.training.idad", "nestbed.planning.design"} & found  # of other methods
    assert {"nestbed.belief.exact", "nestbed.belief.ibis", "nestbed.smc.sweep", "nestbed.policies.recurrent"} <= found


def test_names_of_modules_in_strings_are_followed(made):
    lazy = made({"root.py": 'HOME = "nestbed.late:x"\n', "inner/__init__.py": FILES["__init__.py"]})
    assert set(sources.modules("nestbed.root", home=lazy)) == {"nestbed", "nestbed.root", "nestbed.late"}
    assert "nestbed.far" in sources.modules("nestbed.inner", home=lazy)


def test_a_file_alone_counts_without_what_it_imports(made, tmp_path):
    home, file = made(), tmp_path / "mine.py"
    plain = sources.digest("nestbed.deep", home=home)
    file.write_text("from nestbed.root import g\n")
    with_file = sources.digest("nestbed.deep", alone=file, home=home)
    assert with_file != plain
    assert with_file == sources.digest("nestbed.deep", alone=file, home=made({"root.py": "g = 2\n"}))


def test_what_is_called_numberless_is_there():
    """A module that was renamed must not slip into the digests."""
    for name in sources.NUMBERLESS:
        assert sources._file(name, sources.HOME) is not None, name
