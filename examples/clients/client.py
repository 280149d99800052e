"""Drive a rig through `nestbed serve`: python client.py http://127.0.0.1:8765 (its token, if any, in NESTBED_TOKEN)."""

import json
import os
import sys
import time
from urllib import error, request


def call(method, path, body=None):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('NESTBED_TOKEN', '')}"}
    wish = request.Request(sys.argv[1] + path, body and json.dumps(body).encode(), headers, method=method)
    try:
        return json.load(request.urlopen(wish, timeout=60))
    except OSError as problem:  # 503, or no answer: asked again, since a step counts once
        if isinstance(problem, error.HTTPError) and problem.code != 503:
            sys.exit(problem.read().decode())
        time.sleep(1)
        return call(method, path, body)


call("POST", "/sessions", {"id": "client", "system": "linear_pendulum", "policy": "chirp", "horizon": 5, "seed": 0})
while not (now := call("GET", "/sessions/client/design"))["done"]:
    y = {"angle": 0.01 * now["design"]["torque"], "velocity": 0.0}  # here the rig applies the design and is measured
    print(call("POST", "/sessions/client/measurements", {"step": now["step"], "y": y}))
print(now["done"], {each["name"]: each["mean"] for each in call("GET", "/sessions/client/posterior")["parameters"]})
