"""Certificates beside the published estimators, guided beliefs beside IBIS, and 2 to 20 parameters.

python benchmarks/certificate.py gains|sweeps|chain [RUNS]

`gains` takes a folder with trained policies, RUNS/<system> for each system; without one the learned policies are left
out. Compiling is not in any of the seconds.
"""

import sys
import time
from pathlib import Path

import jax
import numpyro.distributions as dist

import nestbed as nb
from nestbed.evaluation.contrastive_bounds import bounds

SYSTEMS = ("linear_pendulum", "nonlinear_pendulum", "cart_pole", "double_link")
ACCURACY = 0.03


def timed(work, repeats=3):
    """Return what some work gives for the last key, and the least seconds that it takes once compiled."""
    work(jax.random.key(0))
    seconds = []
    for seed in range(repeats):
        start = time.perf_counter()
        found = work(jax.random.key(seed))
        seconds.append(time.perf_counter() - start)
    return found, min(seconds)


def gains(runs):
    print(f"nats: certificate (L = 64, interval ± {ACCURACY}); sPCE, sNMC (16 records, L = 10⁶); sweeps (400 records)")
    for name in SYSTEMS:
        system = nb.systems.load(name)
        policies = {"random": nb.policies.Random(system), "prbs": nb.policies.PRBS(system)}
        if runs is not None:
            policies["io_smc2"] = nb.load_run(runs / name).policy.mean()
        for label, policy in policies.items():
            one, seconds = timed(
                lambda key: nb.certificate(key, system, policy, accuracy=ACCURACY)  # noqa: B023
            )
            low, high = one.interval
            print(
                f"{name:18s} {label:8s} {one.mean:7.3f} ± {0.5 * (high - low):.3f}  gap {one.upper - one.lower:.4f}  "
                f"{one.records:6d} records {seconds:5.2f} s",
                end="",
                flush=True,
            )
            both, seconds = timed(lambda key: bounds(key, system, policy, outer=16), 1)  # noqa: B023
            print(f" | sPCE {both.spce.mean:6.2f} sNMC {both.snmc.mean:8.2f} {seconds:5.1f} s", end="", flush=True)
            for particles in (1024, 8192):
                count = 400 if particles == 1024 else 64
                swept, seconds = timed(
                    lambda key: nb.eig(key, system, policy, trajectories=count, particles=particles, belief="ibis"),  # noqa: B023
                    1,
                )
                print(f" | M = {particles} {swept.mean:6.2f} ± {swept.standard_error:.2f} {seconds:5.1f} s", end="")
            print(flush=True)


def sweeps(_):
    print("nb.eig, PRBS, 512 records: seconds, estimate, difference from the certificate")
    for name, particles in (("nonlinear_pendulum", 1024), ("cart_pole", 8192), ("double_link", 1024)):
        system = nb.systems.load(name)
        policy = nb.policies.PRBS(system)
        truth = nb.certificate(jax.random.key(9), system, policy, accuracy=0.02).mean
        found = {}
        for belief, size in (("ibis", particles), ("guided", 64)):
            settings = {"trajectories": 512, "belief": belief, "particles": size}
            one, found[belief] = timed(lambda key: nb.eig(key, system, policy, **settings), 3)  # noqa: B023
            print(
                f"{name:18s} {belief:6s} M = {size:4d} {found[belief]:7.3f} s  {one.mean:6.2f} ± "
                f"{one.standard_error:.2f}  {one.mean - truth:+.2f}",
                flush=True,
            )
        print(f"{name:18s} ratio {found['ibis'] / found['guided']:.1f}", flush=True)


def chain(_):
    print("a chain of masses, springs and dampers with unknown stiffness and damping: random forces, T = 50")
    for masses in (1, 2, 5, 10):
        system = Chain.of(masses)
        start = time.perf_counter()
        nb.certificate(jax.random.key(0), system, nb.policies.Random(system), records=256)
        first = time.perf_counter() - start
        found, seconds = timed(
            lambda key: nb.certificate(key, system, nb.policies.Random(system), records=1024)  # noqa: B023
        )
        print(
            f"{2 * masses:2d} parameters: {found}, gap {found.upper - found.lower:.4f}, ESS share "
            f"{found.ess.mean():.2f} / {found.ess.min():.2f}, {int(found.mixed.sum())} mixtures, {seconds:.2f} s, "
            f"first call {first:.1f} s",
            flush=True,
        )


class Chain(nb.System):
    """Masses in a row between springs and dampers, pushed at the first."""

    masses = 1
    designs = nb.Box(force=(-1.0, 1.0))
    step = 0.1
    defaults = nb.Defaults(horizon=50)

    @classmethod
    def of(cls, masses):
        """Return a chain of so many masses."""
        prior = {f"stiffness_{i}": dist.LogNormal(0.0, 0.3) for i in range(masses)}
        prior |= {f"damping_{i}": dist.LogNormal(-1.0, 0.3) for i in range(masses)}
        state = tuple(f"position_{i}" for i in range(masses)) + tuple(f"velocity_{i}" for i in range(masses))
        return cls(masses=masses, state=state, prior=prior, diffusion=(0.01,) * masses + (0.05,) * masses)

    state = ("position_0", "velocity_0")
    prior = {"stiffness_0": dist.LogNormal(0.0, 0.3), "damping_0": dist.LogNormal(-1.0, 0.3)}
    diffusion = (0.01, 0.05)

    def drift(self, x, u, theta):
        n = self.masses
        position, velocity = x[:n], x[n:]
        stiffness, damping = theta[:n], theta[n:]
        stretch = [position[i] - (position[i - 1] if i else 0.0) for i in range(n)]
        rate = [velocity[i] - (velocity[i - 1] if i else 0.0) for i in range(n)]
        pull = [stiffness[i] * stretch[i] + damping[i] * rate[i] for i in range(n)]
        push = [-pull[i] + (pull[i + 1] if i + 1 < n else u.force) for i in range(n)]
        return (*velocity, *push)


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["sweeps"]
    {"gains": gains, "sweeps": sweeps, "chain": chain}[part](Path(rest[0]) if rest else None)
