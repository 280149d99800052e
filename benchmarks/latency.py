"""How long a live session keeps its rig waiting.

    python benchmarks/latency.py policy             # a policy alone
    python benchmarks/latency.py steps [SYSTEM …]   # suggest + update with guided beliefs, about step 50 and step 500
    python benchmarks/latency.py loop               # 20 Hz, 1000 steps, the simulated rig in another process

Milliseconds; all that was compiled after `session.warm()` is counted.
"""

import multiprocessing
import sys
import tempfile
import time

import jax
import numpy as np

import nestbed as nb

SESSIONS, LAST, AROUND = 5, 520, 20
"""Sessions, their experiments, and how many before and after a step count as being about it."""
ABOUT = (50, 500)
SYSTEMS = ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link")
RATE, SAMPLES = 20.0, 1000
LOOP = "nonlinear_pendulum"

compiled = [0]
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.__setitem__(0, compiled[0] + event.endswith("backend_compile_duration"))
)


def quantiles(seconds):
    """Return the median, the 99 % quantile and the longest, in milliseconds."""
    found = 1e3 * np.quantile(seconds, [0.5, 0.99, 1.0])
    return f"median {found[0]:.2f}, p99 {found[1]:.2f}, longest {found[2]:.2f} ms"


def policy_alone():
    system = nb.systems.load(LOOP)
    for policy in (nb.policies.PRBS(system), nb.policies.Recurrent(jax.random.key(0), system)):
        step, carry, y, u = jax.jit(policy.step), policy.init(), np.zeros(2), np.zeros(1)
        keys, times = [*jax.random.split(jax.random.key(1), 2000)], []
        for key in keys:
            begun = time.perf_counter()
            carry, u = step(key, carry, y, u)
            u = np.asarray(u, float)
            times.append(time.perf_counter() - begun)
        print(f"{type(policy).__name__}.step on {LOOP}: {quantiles(times[10:])} of {len(times) - 10}", flush=True)


def one_session(system, key, directory, gaps):
    """Return the seconds that suggest + update took at each step, and what was compiled meanwhile."""
    rig = nb.rigs.Simulated(system, jax.random.fold_in(key, 1))
    rig.reset()
    rig.apply(np.array(system.rest_design))  # compiles
    policy = nb.policies.PRBS(system)
    with nb.Session(system, policy, key, horizon=LAST, directory=directory, gaps=gaps) as session:
        session.warm()
        session.update(rig.reset())
        before, times = compiled[0], []
        for _ in range(LAST):
            begun = time.perf_counter()
            u = session.suggest()
            between = time.perf_counter()
            y = rig.apply(u)
            again = time.perf_counter()
            session.update(y)
            times.append(time.perf_counter() - again + between - begun)
    return np.array(times), compiled[0] - before


def steps(names):
    for name in names or SYSTEMS:
        system = nb.systems.load(name)
        for kind in ("in memory", "on disk", "on disk, made for gaps"):
            rows, count = [], 0
            for i in range(SESSIONS):
                with tempfile.TemporaryDirectory() as folder:
                    place = None if kind == "in memory" else folder
                    times, more = one_session(system, jax.random.key(i), place, kind.endswith("gaps"))
                rows.append(times)
                count += more
            for step in ABOUT:
                near = np.concatenate([times[step - AROUND : step + AROUND] for times in rows])
                print(f"{name}, {kind}, step {step}: {quantiles(near)} of {len(near)}", flush=True)
            print(f"{name}, {kind}: {count} programs compiled after warm()", flush=True)


def _other_process(pipe, name, rate, samples):
    """Be the rig: a sample at every tick of its own clock, under the design that came last; tell how it was served."""
    system = nb.systems.load(name)
    rig, u = nb.rigs.Simulated(system, jax.random.key(1)), np.array(system.rest_design)
    rig.reset()
    rig.apply(u)
    first = rig.reset()
    pipe.send(None)  # ready
    pipe.recv()
    pipe.send((0, first, u))
    begun, answers, ticks = time.monotonic(), [], []
    for number in range(1, samples + 1):
        sampled, tick, answered = time.monotonic(), begun + number / rate, -1
        while answered < number - 1 and pipe.poll(max(0.0, tick - time.monotonic())):
            answered, wanted = pipe.recv()
        if answered == number - 1:
            u = wanted
            answers.append(time.monotonic() - sampled)
        time.sleep(max(0.0, tick - time.monotonic()))
        ticks.append(time.monotonic() - tick)
        pipe.send((number, rig.apply(u), u))
    pipe.send((answers, ticks))


def loop():
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=_other_process, args=(other, LOOP, RATE, SAMPLES))
    process.start()
    system = nb.systems.load(LOOP)
    with tempfile.TemporaryDirectory() as folder:
        options = {"horizon": SAMPLES, "directory": folder, "gaps": True}
        with nb.Session(system, nb.policies.PRBS(system), jax.random.key(0), **options) as session:
            session.warm()
            pipe.recv()
            pipe.send(None)
            before = compiled[0]
            number, y, _ = pipe.recv()
            session.update(y)
            while number < SAMPLES:
                pipe.send((number, session.suggest()))
                waiting = True
                while waiting and number < SAMPLES:
                    number, y, applied = pipe.recv()
                    session.update(y, applied=applied, time=number * system.step)
                    waiting = pipe.poll()
            answers, ticks = pipe.recv()
            missed = SAMPLES - len(answers)
            print(f"{LOOP}, {RATE:g} Hz, {SAMPLES} samples, on disk: {missed} not answered in time")
            print(f"from a sample to the next design: {quantiles(answers)} of {len(answers)}")
            print(f"the rig's own ticks were late by: {quantiles(np.maximum(ticks, 0.0))}")
            print(f"{compiled[0] - before} programs compiled after warm(); {len(session.warnings)} warnings")
    process.join()


def main():
    what, *names = sys.argv[1:] or ["all"]
    if what in ("policy", "all"):
        policy_alone()
    if what in ("steps", "all"):
        steps(names)
    if what in ("loop", "all"):
        loop()


if __name__ == "__main__":
    main()
