"""Results that are kept line by line, so that a benchmark goes on where it was stopped."""

import json


def each(file, names, compute):
    """Yield the result for each name; those that the file holds are not computed again."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    known = {entry["name"]: entry["result"] for entry in map(json.loads, lines)}
    for name in names:
        if name not in known:
            known[name] = compute(name)
            with file.open("a") as stream:
                stream.write(json.dumps({"name": name, "result": known[name]}) + "\n")
        yield known[name]
