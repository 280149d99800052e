"""A pendulum of MuJoCo as a rig: its mass, length and damping are to be found out by pushing it.

    nestbed run examples/rigs/mujoco_pendulum.py:Swing --rig examples/rigs/mujoco_pendulum.py:rig

needs `pip install 'nestbed[mujoco]'`.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

import nestbed as nb

NOISE = 0.005
"""Standard deviation of the encoder, in rad."""
MODEL = """
<mujoco>
  <option timestep="0.002" integrator="RK4"/>
  <worldbody>
    <body>
      <joint name="hinge" type="hinge" axis="0 1 0" damping="{damping}"/>
      <geom type="sphere" pos="0 0 {place}" size="0.02" mass="{mass}"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge"/></actuator>
  <sensor><jointpos joint="hinge"/></sensor>
</mujoco>
"""


class Swing(nb.System):
    """A ball on a rod without mass; a motor turns it, an encoder shows its angle."""

    state = ("angle", "velocity")
    designs = nb.Box(torque=(-2.0, 2.0))
    prior = {
        "mass": dist.LogNormal(0.0, 0.3),
        "length": dist.LogNormal(-0.3, 0.2),
        "damping": dist.LogNormal(-1.5, 0.5),
    }
    start = {"angle": 0.0, "velocity": 0.0}
    sensors = {"angle": NOISE}
    limits = {"velocity": (-8.0, 8.0)}
    step, diffusion = 0.05, (0.0, 0.01)
    units = {
        "time": "s",
        "angle": "rad",
        "velocity": "rad/s",
        "torque": "N m",
        "mass": "kg",
        "length": "m",
        "damping": "N m s",
    }
    defaults = nb.Defaults(horizon=60)

    def drift(self, x, u, theta):
        """Return velocity and acceleration."""
        moment = u.torque - theta.damping * x.velocity - 9.81 * theta.mass * theta.length * jnp.sin(x.angle)
        return x.velocity, moment / (theta.mass * theta.length**2)


def rig(mass: float = 1.3, length: float = 0.6, damping: float = 0.3, seed: int = 0) -> nb.rigs.Mujoco:
    """Return a pendulum with these parameters, which the session does not know."""
    xml = MODEL.format(mass=mass, place=-length, damping=damping)
    return nb.rigs.Mujoco(xml, Swing.step, noise=NOISE, seed=seed)
