"""Run folders spoiled at random, by someone who knows what is in them."""

import io
import json
import os
import re
import shutil
import warnings
import zipfile

import numpy as np

TEXTS = ("run.json", "config.toml", "metrics.jsonl")
ARRAYS = ("checkpoint.npz", "checkpoint_before.npz", "policy_last.npz", "policy_best.npz")
FILES = (*TEXTS, *ARRAYS, "curve.png", ".lock")
DEEP = "[" * 100_000
VALUES = (
    *("null", "true", '""', '"x"', '"\\u001b[31mred[/] $\\\\frac$"', '"\\ud800"', "-1", "0", "1.5", "9" * 400),
    *("9" * 5000, "1e999", "-1e999", "NaN", "1e300", "-1e300", "[]", "{}", "[[[1]]]", DEEP, '"' + "y" * 100_000 + '"'),
    *("99999999999999999999", "1000000000000", "-0.0", '{"a": null}', "[null]", "4294967296", "2147483648"),
)
TOML = (
    *("nan", "inf", "-inf", "-1", "0", "1" + "0" * 30, "1" + "0" * 12, '""', '"x"', '"\\u001b[2J"', "true", "[]", "{}"),
    *("1979-05-27", "[1, 2]", "[[1]]", "[" * 5000, "9" * 5000, "[" + "1, " * 15_000 + "1]", "2147483648", "1e300"),
)


def spoil(folder, outside, draw):
    """Change one to three things; return their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that do not fit, which is the point
        return [draw.choice(KINDS)(folder, outside, draw) for _ in range(draw.choice((1, 1, 1, 2, 3)))]


def bytes_flipped(folder, outside, draw):
    file = _pick(folder, draw, FILES)
    data = bytearray(_content(file))
    for _ in range(draw.choice((1, 1, 5, 100))):
        if data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    _put(file, bytes(data))
    return f"bytes flipped in {file.name}"


def cut(folder, outside, draw):
    file = _pick(folder, draw, FILES)
    data = _content(file)
    _put(file, data[: draw.randrange(len(data) + 1)])
    return f"{file.name} cut"


def removed(folder, outside, draw):
    file = _pick(folder, draw, FILES)
    clear(file)
    return f"{file.name} removed"


def garbage(folder, outside, draw):
    file = _pick(folder, draw, FILES)
    _put(file, draw.choice((b"", b"\0" * 1000, b"\xff\xfe" * 50, DEEP.encode(), b"{}", b"PK\5\6" + bytes(18))))
    return f"garbage in {file.name}"


def json_value(folder, outside, draw):
    """Put something else in the place of one value, or of one name."""
    file = _pick(folder, draw, ("run.json", "metrics.jsonl"))
    text = _content(file).decode(errors="replace")
    places = list(re.finditer(r'"[^"\n]*"|-?[0-9][-+.eE0-9]*|\[[^\[\]]*\]|\{[^{}]*\}', text))
    if places:
        place = draw.choice(places)
        text = text[: place.start()] + draw.choice(VALUES) + text[place.end() :]
    _put(file, text.encode())
    return f"a value changed in {file.name}"


def json_field(folder, outside, draw):
    """Set one of the fields that are relied on."""
    file = folder / "run.json"
    try:
        about = json.loads(_content(file))
        place, name = draw.choice([(about, "key"), (about, "system"), *((about["system"], n) for n in about["system"])])
        place[name] = json.loads(draw.choice([value for value in VALUES if len(value) < 100]))
    except (ValueError, TypeError, KeyError):
        return "nothing"
    _put(file, json.dumps(about).encode())
    return f"{name} changed in run.json"


def lines(folder, outside, draw):
    file = folder / "metrics.jsonl"
    rows = _content(file).splitlines(keepends=True)
    if rows:
        i = draw.randrange(len(rows))
        draw.choice((lambda: rows.insert(i, rows[i]), lambda: rows.pop(i), rows.reverse, lambda: rows.extend(rows)))()
    _put(file, b"".join(rows))
    return "lines of metrics.jsonl moved"


def toml_value(folder, outside, draw):
    file = folder / "config.toml"
    rows = _content(file).decode(errors="replace").splitlines()
    if rows:
        i = draw.randrange(len(rows))
        rows[i] = f"{rows[i].partition('=')[0]}= {draw.choice(TOML)}"
    _put(file, "\n".join(rows).encode())
    return "a value changed in config.toml"


def no_file(folder, outside, draw):
    """Put a link, a pipe or a folder in the place of a file."""
    name = draw.choice((*FILES, "checkpoint_damaged.npz", "tensorboard", "seed_0", ".run.json.part", ".writable"))
    file = folder / name
    clear(file)
    targets = (outside / "file", outside / "file", outside, outside / "none", file, "/dev/zero", "/dev/full", folder)
    match draw.randrange(4):
        case 0 | 1:
            file.symlink_to(draw.choice(targets))
        case 2:
            os.mkfifo(file)
        case 3:
            (file / "more").mkdir(parents=True)
    return f"{name} is no file"


def arrays(folder, outside, draw):
    """Change the arrays of a file: their names, types, sizes, or what the archive says of them."""
    file = _pick(folder, draw, ARRAYS)
    try:
        with np.load(io.BytesIO(_content(file))) as held:
            found = {name: held[name] for name in held}
    except Exception:
        return "nothing"
    name = draw.choice([*found, *[name for name in ("about", "run", "iteration") if name in found] * 3])
    value, kind = found[name], draw.randrange(9)
    match kind:
        case 0:
            found.pop(name)
        case 1:
            found[name + "x"] = found.pop(name)
        case 2:
            texts, numbers = ("U9", "O"), ("f8", "f4", "i8", "c16", "?")  # text becomes no number
            other = draw.choice((*texts, "S9", *(() if value.dtype.kind in "US" else numbers)))
            found[name] = value.astype(other, casting="unsafe")
        case 3:
            found[name] = draw.choice((value[None], value.ravel(), np.zeros((0, 3)), np.zeros((1000, 1000))))
        case 4:
            found[name] = (
                np.full_like(value, draw.choice((np.nan, np.inf, -1, 1e300))) if value.dtype.kind in "f" else value
            )
        case 5:
            if value.dtype.kind in "iu":
                found[name] = np.full_like(
                    value, draw.choice((np.iinfo(value.dtype).min, np.iinfo(value.dtype).max, 3))
                )
            elif value.dtype.kind == "U":
                found[name] = np.array(
                    draw.choice((DEEP, "{}", '{"system": {}, "policy": {}}', _changed(str(value), draw)))
                )
    stream = io.BytesIO()
    np.savez(stream, **found)
    if kind >= 6:
        stream = _archive(stream, name, kind, draw)
    _put(file, stream.getvalue())
    return f"{name} of {file.name} changed ({kind})"


def _changed(text, draw):
    """Return a policy's description with one value changed."""
    places = list(re.finditer(r'"[^"]*"|-?[0-9][-.e0-9]*', text))
    place = draw.choice(places) if places else re.match("", text)
    return text[: place.start()] + draw.choice([value for value in VALUES if len(value) < 1000]) + text[place.end() :]


def _archive(stream, name, kind, draw):
    """Return an archive with a bomb in it, or a lie about an array's size."""
    made = io.BytesIO()
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            data, packed = old.read(entry), zipfile.ZIP_STORED
            if entry == f"{name}.npy":
                if kind == 6:  # much more than it should be
                    data, packed = data + bytes(2**25), draw.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
                if kind == 7:  # a shape that is not there
                    data = re.sub(rb"'shape': \([^)]*\)", b"'shape': (99999999999,)", data)
            new.writestr(entry, data, packed)
        if kind == 8:
            new.writestr("unused.npy", bytes(2**25), zipfile.ZIP_DEFLATED)
            new.comment = b"a comment"
    return made


def _pick(folder, draw, names):
    return folder / draw.choice(names)


def _content(file):
    return file.read_bytes() if file.is_file() and not file.is_symlink() else b""


def _put(file, data):
    clear(file)
    file.write_bytes(data)


def clear(file):
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)


KINDS = (
    bytes_flipped,
    cut,
    removed,
    garbage,
    json_value,
    json_value,
    json_field,
    lines,
    toml_value,
    no_file,
    arrays,
    arrays,
)
