"""Peak memory of a conditional sweep of the cart-pole at N = 256, M = 1024, T = 50: wanted under 2 GiB."""

import resource
import time

import jax

import nestbed as nb


def main():
    system = nb.systems.load("cart_pole")
    policy = nb.policies.PRBS(system)
    settings = {"horizon": 50, "trajectories": 256, "particles": 1024, "belief": "ibis"}
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    reference = nb.sweep(jax.random.key(0), system, policy, **settings).reference
    for seed in (1, 2):
        start = time.perf_counter()
        result = nb.sweep(jax.random.key(seed), system, policy, reference=reference, **settings)
        jax.block_until_ready(result)
        seconds = time.perf_counter() - start
        reference = result.reference
        del result
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print("conditional sweep, cart-pole, N = 256, M = 1024, T = 50, beliefs of every step kept")
    print(f"  peak memory {peak:.2f} GiB of the whole process ({idle:.2f} GiB before), wanted under 2; {seconds:.2f} s")


if __name__ == "__main__":
    main()
