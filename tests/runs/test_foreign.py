"""Run folders from elsewhere: whatever is in them, they get one sentence and reach nothing outside."""

import contextlib
import dataclasses
import io
import json
import os
import random
import resource
import shutil
import signal
import stat
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import mutations
import nestbed as nb
from nestbed.evaluation import comparison
from nestbed.faces import figures
from nestbed.faces.cli import settings, sources
from nestbed.faces.cli import train as training
from nestbed.faces.cli.compare import compare
from nestbed.faces.cli.evaluation import Options
from nestbed.faces.cli.show import show
from nestbed.faces.terminal import bars, tables
from nestbed.faces.terminal.training import runs as print_runs
from nestbed.numerics import progress, storage, text
from nestbed.runs import folder as runs
from nestbed.runs import train as runs_train
from toys import TRAINING

LEAK = f"{Path(__file__).parents[1] / 'toys.py'}:LinearLeak"
SMALL = dataclasses.replace(TRAINING, iterations=2)
SYSTEM = nb.systems.load(LEAK)
NAMES = (*mutations.FILES, "checkpoint_damaged.npz")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "leak"
    nb.train(jax.random.key(0), SYSTEM, SMALL, out=place)
    return place


@pytest.fixture
def folder(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "inside" / "run"))


@pytest.fixture
def outside(tmp_path):
    """What must stay as it is."""
    place = tmp_path / "outside"
    (place / "more").mkdir(parents=True)
    for name in ("file", "more/file"):
        (place / name).write_text("precious")
    return place


def seen(place):
    """Return all that can be said of what is in a folder."""
    found = {}
    for at in sorted([place, *place.rglob("*")]):
        held = at.lstat()
        content = at.read_bytes() if stat.S_ISREG(held.st_mode) else b""
        found[at] = (held.st_mode, held.st_mtime_ns, held.st_size, content)
    return found


def resume(folder):
    return nb.train(jax.random.key(0), SYSTEM, SMALL, out=folder, resume=True)


READERS = {
    "load_run": lambda folder: nb.load_run(folder, SYSTEM),
    "load_policy": lambda folder: [nb.load_policy(folder / name, SYSTEM) for name in runs.POLICIES],
    "log": lambda folder: print_runs([runs.load_log(folder)]),
    "show": show,
    "evaluate": lambda folder: sources.policy(str(folder), LEAK, None),
    "evaluate a file": lambda folder: sources.policy(str(folder / "policy_last.npz"), LEAK, None),
    "compare": lambda folder: sources.trained([folder], SYSTEM),
    "places": lambda folder: settings.unchanged(
        next(iter(training.folders(folder, None, None, True).values())), True, None, {}
    ),
    "resume": resume,
}


# Links.


def put(file, kind, target):
    file.unlink(missing_ok=True)
    file.symlink_to(target) if kind == "link" else os.mkfifo(file)


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", NAMES)
def test_no_file_of_a_run_may_be_a_link_or_a_pipe(folder, outside, name, kind):
    put(folder / name, kind, outside / "file")
    before = seen(outside)
    with pytest.raises(nb.NestbedError, match=rf"{name} is a {kind}, but only plain files"):
        resume(folder)
    if name != ".lock":  # nobody else looks at it
        with pytest.raises(nb.NestbedError, match=rf"{name} is a {kind}, but only plain files"):
            show(folder)
    assert seen(outside) == before


def test_the_folder_itself_may_be_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert resume(tmp_path / "link").iteration == 2


def test_a_new_run_does_not_write_through_links(tmp_path, outside):
    for name in ("config.toml", "curve.png"):
        place = tmp_path / f"with {name}"
        place.mkdir()
        (place / name).symlink_to(outside / "none")
        before = seen(outside)
        with pytest.raises(nb.NestbedError, match=f"{name} is a link"):
            nb.train(jax.random.key(0), SYSTEM, SMALL, out=place)
        assert seen(outside) == before


def test_links_put_there_while_training_are_not_written_through(folder, outside):
    """Between looking and opening: the system itself refuses."""
    run = nb.load_run(folder, SYSTEM)
    put(folder / "metrics.jsonl", "link", outside / "file")
    before = seen(outside)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "plain", lambda file: None)
        with pytest.raises(nb.NestbedError, match="could not save"):
            runs.record(run, folder)
        with pytest.raises(OSError, match="symbolic links"):
            storage.read_bytes(folder / "metrics.jsonl", 100)
    assert seen(outside) == before


def test_folders_within_a_run_may_not_be_links(folder, outside):
    (folder / "tensorboard").symlink_to(outside)
    with pytest.raises(nb.NestbedError, match="tensorboard is a link, where a folder is expected"):
        training.train(LEAK, out=folder, resume=True, quiet=True, tensorboard=True)
    several = folder.parent / "several"
    several.mkdir()
    (several / "seed_0").symlink_to(folder)
    for read in (show, READERS["compare"], READERS["places"]):
        with pytest.raises(nb.NestbedError, match="seed_0 is a link, where a folder is expected"):
            read(several)


def test_tables_do_not_write_through_links(tmp_path, outside):
    place = tmp_path / "results"
    place.mkdir()
    (place / "comparison.csv").symlink_to(outside / "file")
    before = seen(outside)
    with pytest.raises(nb.NestbedError, match=r"comparison.csv is a link"):
        compare(LEAK, baselines=("random",), options=Options(out=place))
    scores = comparison.Comparison([comparison.PolicyEstimate(np.zeros(2), steps=np.zeros((2, 2)), policy="a")])
    with pytest.raises(nb.NestbedError, match=r"comparison.csv is a link"):
        comparison.save_table(scores, place / "comparison.csv")
    assert seen(outside) == before


# What is written.


def test_what_is_written_beside_a_file_has_a_name_of_its_own_each_time(tmp_path, monkeypatch):
    names = []
    replaced = os.replace

    def spy(source, target):
        names.append(Path(source).name)
        replaced(source, target)

    monkeypatch.setattr(os, "replace", spy)
    old = os.umask(0o027)
    try:
        for _ in range(2):
            storage.write(tmp_path / "file", b"new")
    finally:
        os.umask(old)
    assert len({*names}) == 2
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert [place.name for place in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_is_removed(folder):
    left, other = folder / f".run.json.{'0f' * 8}.part", folder / ".my.part"
    for file in (left, other):
        file.write_text("x")
    resume(folder)
    assert other.exists()
    assert not left.exists()


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        storage.write(tmp_path / "file", b"new")
    assert not list(tmp_path.iterdir())


# What is read.


def repack(file, name, change, method=zipfile.ZIP_DEFLATED):
    """Write an archive anew with one member changed, or added."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        held = {entry: old.read(entry) for entry in old.namelist()}
        held[name] = change(held.get(name, b""))
        for entry, data in held.items():
            new.writestr(entry, data, method if entry == name else zipfile.ZIP_STORED)
    file.write_bytes(made.getvalue())


def memory(call):
    """Return the most memory that Python held during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_nobody_asked_for_is_not_unpacked(folder):
    file = folder / "policy_last.npz"
    repack(file, "unused.npy", lambda data: bytes(2**26))
    assert memory(lambda: nb.load_policy(file, SYSTEM)) < 2**25


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("name", ["about", "log_std"])
def test_no_more_is_unpacked_than_an_array_can_hold(folder, name, method):
    file = folder / "policy_last.npz"
    repack(file, f"{name}.npy", lambda data: data + bytes(2**26), method)

    def load():
        with pytest.raises(nb.NestbedError, match="is not a policy that nestbed can read: it is damaged"):
            nb.load_policy(file, SYSTEM)

    assert memory(load) < 2**25


def test_lies_about_sizes_are_damage(folder):
    file = folder / "policy_last.npz"
    whole = file.read_bytes()
    repack(file, "log_std.npy", lambda data: data.replace(b"(1,)", b"(9999999999,)").replace(b" " * 9 + b"\n", b"\n"))
    with pytest.raises(nb.NestbedError, match="does not take"):
        nb.load_policy(file, SYSTEM)
    contents = whole.rindex(b"PK\5\6") + 12
    file.write_bytes(whole[:contents] + (2**31).to_bytes(4, "little") + whole[contents + 4 :])
    with pytest.raises(nb.NestbedError, match="can read: it is damaged"):
        nb.load_policy(file, SYSTEM)


@pytest.mark.parametrize("name", mutations.TEXTS)
def test_a_file_of_text_is_not_read_beyond_its_limit(folder, name):
    with (folder / name).open("r+b") as stream:
        stream.truncate(2**34)  # takes no room on the disk
    with pytest.raises(nb.NestbedError, match=rf"{name} holds more than the [\d,]+ bytes"):
        runs.load_log(folder)


def test_a_system_in_a_run_is_named_by_an_identifier(folder):
    file = folder / "run.json"
    about = json.loads(file.read_text())
    for name in ("Linear Leak", "L" * 100_000):
        about["system"]["name"] = name
        file.write_text(json.dumps(about))
        with pytest.raises(nb.NestbedError, match=r"run.json is damaged"):
            runs.load_log(folder)


# What is shown.

EVIL = "a\x1b[31m\x9b2J\x07\u202e\u2066[bold]b[/] :smile: $\\frac$"
SHOWN = "a\\x1b[31m\\x9b2J\\x07\\u202e\\u2066[bold]b[/] :smile: $\\frac$"


def test_control_characters_are_written_out():
    assert text.visible(EVIL + "\n") == SHOWN + "\n"
    assert text.sentence("a\nb" + "c" * 10_000).startswith("a\\nbcc")
    assert len(text.sentence("c" * 10_000)) < 3000
    assert text.visible("\ud800 η ± IO-SMC²") == "\\ud800 η ± IO-SMC²"


def harmless(told):
    assert not {"\x1b", "\x9b", "\x07", "\u202e", "\u2066"} & {*told}
    assert "a\\x1b[31m" in told


def test_tables_and_bars_show_names_as_they_are(trained, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    log = runs.load_log(trained)
    log.about["system"]["name"] = EVIL
    print_runs([log])
    estimates = [comparison.PolicyEstimate(np.arange(2.0), policy=name) for name in (EVIL, "other")]
    tables.comparison(comparison.Comparison(estimates), EVIL, "caption")
    tables.evaluation([("EIG", estimates[0], "estimate")], EVIL, "caption")
    out = capsys.readouterr().out
    harmless(out)
    assert out.count(":smile:") >= 4
    assert out.count("[bold]b[/]") >= 4
    run = nb.load_run(trained, SYSTEM)
    with bars.Training([EVIL], 2, quiet=False) as watch:
        watch.of(EVIL)(run)
    harmless(capsys.readouterr().err)
    with bars.Evaluating([EVIL], 2) as advance:
        advance(progress.Step(EVIL, 1, 2))
        column = advance.bar.columns[0]
        harmless(column.render(advance.bar.tasks[0]).plain)


@pytest.fixture
def words(command):
    """Return all that a command says."""

    def call(*arguments):
        result = command(*arguments)
        return result.stdout + result.stderr

    return call


def test_errors_warnings_and_places_are_shown_as_they_are(folder, tmp_path, words, monkeypatch):
    name = EVIL.replace("/", "")
    harmless(words("show", tmp_path / name))
    harmless(words("show", f"--{EVIL}"))
    place = folder.rename(tmp_path / name)
    told = words("show", place)
    harmless(told)
    assert "Drawn in" in told
    (place / "checkpoint.npz").write_bytes(b"")

    def enough(*arguments, **settings):
        raise nb.NestbedError("this is far enough.")

    monkeypatch.setattr(runs_train, "_climb", enough)
    told = words("train", LEAK, "--out", place, "--resume", "--quiet")
    harmless(told)
    assert "is damaged, so the checkpoint before it is used" in told
    about = json.loads((place / "run.json").read_text())
    about["system"]["settings"][EVIL] = EVIL
    (place / "run.json").write_text(json.dumps(about))
    told = words("train", LEAK, "--out", place, "--resume", "--quiet")
    harmless(told)
    assert f"with {SHOWN} = {SHOWN}, but the system has None" in told


def test_names_in_pictures_are_not_formulas(trained, tmp_path):
    log = runs.load_log(trained)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.learning_curve([log], tmp_path / "curve.png", EVIL)
        estimate = comparison.PolicyEstimate(np.zeros(2), steps=np.zeros((2, 2)), policy=EVIL)
        figures.information_gain(comparison.Comparison([estimate]), SYSTEM, tmp_path / "gain.png", EVIL)
    assert (tmp_path / "gain.png").read_bytes()[1:4] == b"PNG"


# Folders spoiled at random.


@contextlib.contextmanager
def impatient(seconds):
    """Fail if something takes too long."""

    def late(number, frame):
        pytest.fail("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def most_memory():
    """Return the most bytes that this process has held at a time."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attempt(read, folder):
    """Return whether it could be read; only one kind of error may come out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(folder)
        except nb.NestbedError:
            return False
    return True


def fuzz(count, trained, tmp_path, outside):
    draw = random.Random(1)
    before, tally = seen(outside), dict.fromkeys(READERS, 0)
    for number in range(count):
        folder = tmp_path / "inside" / "run"
        shutil.copytree(trained, folder)
        done = mutations.spoil(folder, outside, draw)
        for name, read in READERS.items():
            peak = most_memory()
            with impatient(60):
                try:
                    tally[name] += attempt(read, folder)
                except BaseException as error:
                    raise AssertionError(f"folder {number}, {name}: {done}") from error
            assert most_memory() - peak < 2**28, f"folder {number}, {name}: {done}"
        assert seen(outside) == before, done
        mutations.clear(folder)
        if number % 100 == 99:
            jax.clear_caches()  # programs of a hundred folders
    return tally


@pytest.mark.slow
def test_spoiled_folders_get_a_sentence(trained, tmp_path, outside, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", lambda figure, stream, **options: stream.write(b"drawn"))
    tally = fuzz(60, trained, tmp_path, outside)
    assert all(0 < readable < 60 for readable in tally.values())


@pytest.mark.slow
def test_a_thousand_spoiled_folders_get_a_sentence(trained, tmp_path, outside):
    peak = most_memory()
    count = int(os.environ.get("NESTBED_FOLDERS", "1000"))
    tally = fuzz(count, trained, tmp_path, outside)
    grown = (most_memory() - peak) >> 20
    print(f"{count} folders; read nevertheless: {tally}; memory grew by {grown} MiB in all", file=sys.stderr)
