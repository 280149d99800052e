"""One step in time: where the drift leads, and how the noise that comes in on the way is spread at its end.

Everything is written in components that broadcast. The mean goes by

- `euler`: x + h · drift, as the paper has it;
- `rk4`: the classical Runge–Kutta step;
- `exponential`: the exact step of the drift's linear part around x (local linearisation), which follows stiff drifts
  too;
- `rosenbrock`: a linearly implicit step of order three that forgets what is fast (L-stable): stiff drifts that bend
  within a step, for a third of the work;

each in `substeps` parts. Where a system does not say, it is one Euler step if that comes near enough to where many
small ones lead, else a Runge–Kutta step or a few if they do, else an exponential one; else a few of Rosenbrock's, or
exponential ones, in as few parts as do.

The noise of Euler's steps is what comes in: of variance h · diffusion², and independent between states unless the
diffusion is a matrix, whose columns are sources that enter several of them. The others carry it along the
drift: what enters one state within the step moves the others by its end, and what decays is forgotten. Its covariance
is that of the drift's linear part around x, at the middle of the prior: exact for linear drifts but for what the
parameters do to it, so that it is computed once per state and not for every parameter vector. Gradients through that
linear part are second derivatives of the drift, which take longer than all the rest: a search goes without.
"""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from nestbed.model import predictive
from nestbed.model.prior import Components
from nestbed.numerics import matrices, programs
from nestbed.numerics.errors import outside
from nestbed.numerics.matrices import Matrix

if TYPE_CHECKING:
    from nestbed.model.system import BaseSystem

T = TypeVar("T")

STIFF = ("exponential", "rosenbrock")
INTEGRATORS = ("euler", "rk4", *STIFF)
MISSED = 0.1
"""Share of the way that many small steps go, by which one Euler step may miss it."""
NOTICED = 0.3
"""Standard deviations of the noise by which a step must miss to be noticed."""
SMALL = {"exponential": 0.25, "rk4": 0.5, "rosenbrock": 0.5}
"""Length of a small step, in time constants of the fastest mode, that a few terms of a series follow: its mean to one
part in 10⁵, its covariance to one in 100."""
MOST_DOUBLINGS, SPARE = 16, 1
"""Doublings at most, and those beyond what was seen to be needed, for places where the drift is faster."""
REACH = 2.0
"""Length of a small step, in time constants, beyond which its series explodes."""
OFTEN, NEARLY_ALWAYS, TWICE = 0.9, 0.99, 2.0
"""Share of places where a step must not miss, and where one for stiff drifts must not miss by so many times more: what
it misses there changes with the parameters, so that posteriors get modes that the drift has not."""
CLOSE = 0.1
"""Share of what may be missed that makes no difference."""
CALM_PARTS, MORE_PARTS, IMPLICIT_PARTS, PARTS = (2, 4), (2, 4, 8), (1, 2, 3, 4, 6, 8, 12), (2, 4, 8, 16)
"""Parts that a Runge–Kutta step, the same of more than a `FEW` states, Rosenbrock's and an exponential one are tried
in: matrices of many states take longer than eight parts without."""
STABLE = 2.5
"""Length of a step, in time constants of the fastest mode, up to which Runge–Kutta steps do not explode."""
GROWTH = 1.0
"""Length of a part, in time constants of the fastest growth, up to which an implicit step does not turn it round."""
FEW = 3
"""States up to which the exponential step is one straight program, fast to run; with more, it is slow to compile."""
STRAIGHT = 8
"""Doublings up to which it is: compilers compute the shared parts of a longer one again for each use, without end."""


class Scheme(NamedTuple):
    """How a system is stepped."""

    integrator: str
    substeps: int
    doublings: int  # of a small step's length, to a part of a step: as many as the fastest mode needs


class Noise(NamedTuple):
    """What comes in within a step: covariance = L diag(v) Lᵀ with unit lower triangular L."""

    variance: tuple[Any, ...]  # v
    coupling: tuple[tuple[Any, ...], ...]  # rows of L left of the diagonal; none where states are independent

    @property
    def marginal(self) -> tuple[Any, ...]:
        """The variance of each state: the diagonal of the covariance."""
        if not self.coupling:
            return self.variance
        return tuple(
            sum((weight**2 * v for weight, v in zip(row, self.variance, strict=False)), start=own)
            for own, row in zip(self.variance, self.coupling, strict=True)
        )

    @property
    def covariance(self) -> Matrix:
        """L diag(v) Lᵀ, entry by entry; 0.0 where states share nothing."""
        size = len(self.variance)
        if not self.coupling:
            return tuple(tuple(self.variance[i] if i == j else 0.0 for j in range(size)) for i in range(size))
        rows = [(*row, 1.0) for row in self.coupling]
        return tuple(
            tuple(sum(rows[i][k] * rows[j][k] * self.variance[k] for k in range(min(i, j) + 1)) for j in range(size))
            for i in range(size)
        )

    def decorrelated(self, residuals: Components) -> Components:
        """Return L⁻¹ r: residuals of variance v, independent of each other."""
        if not self.coupling:
            return residuals
        found: list[Any] = []
        for residual, row in zip(residuals, self.coupling, strict=True):
            found.append(residual - sum(weight * other for weight, other in zip(row, found, strict=True)))
        return tuple(found)

    @property
    def coefficients(self) -> Matrix:
        """I − L⁻¹, rows left of the diagonal: how what is seen of other states predicts each; none if independent."""
        size = len(self.coupling)
        units: list[Any] = [tuple(float(i == j) for i in range(size)) for j in range(size)]
        columns = [self.decorrelated(unit) for unit in units]
        return tuple(tuple(-columns[j][i] for j in range(i)) for i in range(size))

    def correlated(self, normals: Components) -> Components:
        """Return L √v ε: noise with the covariance of the step."""
        scaled = [jnp.sqrt(v) * e for v, e in zip(self.variance, normals, strict=True)]
        if not self.coupling:
            return tuple(scaled)
        return tuple(
            sum((weight * other for weight, other in zip(row, scaled, strict=False)), start=own)
            for own, row in zip(scaled, self.coupling, strict=True)
        )


def change(
    system: "BaseSystem", x: Components, u: Components, theta: Components, length: Any | None = None
) -> Components:
    """Return how far one step moves each state in the mean; `length` is the system's own, or a shorter one."""
    length = system.step if length is None else length
    if system.one_euler_step:
        return tuple(length * rate for rate in system.rates(x, u, theta))
    return _moved(system, scheme(system), x, u, theta, length)


def explodes(system: "BaseSystem", x: Components, u: Components, theta: Components, end: Components) -> Any:
    """Return where a step comes to no number, in any of what it `end`s in, though the drift has one where it begins.

    Far from where the prior leads a drift may be too fast for the scheme: that is no fault of the equations.
    """

    def finite(values: Components) -> Any:
        return jnp.isfinite(sum(0.0 * jnp.asarray(value, float) for value in values))

    return finite(system.rates(x, u, theta)) & ~finite(end)


def _moved(
    system: "BaseSystem", how: Scheme, x: Components, u: Components, theta: Components, length: Any
) -> Components:
    length = length / how.substeps
    shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*x, *u, *theta)))
    start = tuple(jnp.broadcast_to(jnp.asarray(value, float), shape) for value in x)

    def part(now: Components, _: Any) -> tuple[Components, None]:
        if how.integrator in STIFF:
            moved, _ = _followed(system, how, now, u, theta, length)
        elif how.integrator == "rk4":
            moved = _runge_kutta(system, now, u, theta, length)
        else:
            moved = tuple(length * rate for rate in system.rates(now, u, theta))
        return tuple(value + step for value, step in zip(now, moved, strict=True)), None

    end = _in_parts(part, start, how.substeps)
    return tuple(value - before for value, before in zip(end, start, strict=True))


def _in_parts(part: Callable[[T, Any], tuple[T, None]], start: T, count: int) -> T:
    """Take the parts of a step one after the other."""
    if count == 1:
        return part(start, None)[0]
    # gradients make each part again: what they would have to remember is more than caches hold
    return jax.lax.scan(jax.checkpoint(part), start, length=count)[0]


def change_and_slopes(
    system: "BaseSystem", x: Components, u: Components, theta: Components, length: Any | None = None
) -> tuple[Components, Matrix]:
    """Return how far one step of a stiff scheme moves each state, and how that changes with where it starts.

    The linear part that the scheme hangs on is held in each part of the step: exact for linear drifts, and as near as
    the scheme itself for others. Its own slopes, which filters would differentiate twice more, compile for minutes.
    """
    how = scheme(system)
    length = (system.step if length is None else length) / how.substeps
    size = range(len(x))
    nothing = jnp.zeros_like(x[0])
    same = tuple(tuple(nothing + float(i == j) for j in size) for i in size)

    def part(so_far: tuple[Components, Matrix], _: Any) -> tuple[tuple[Components, Matrix], None]:
        now, along = so_far
        moved, slopes = _followed(system, how, now, u, theta, length, sloped=True)
        end = tuple(value + step for value, step in zip(now, moved, strict=True))
        return (end, matrices.plus(along, matrices.product(slopes, along))), None

    end, along = _in_parts(part, (x, same), how.substeps)
    slopes = tuple(tuple(along[i][j] - float(i == j) for j in size) for i in size)
    return tuple(value - before for value, before in zip(end, x, strict=True)), slopes


def _followed(
    system: "BaseSystem",
    how: Scheme,
    x: Components,
    u: Components,
    theta: Components,
    length: Any,
    sloped: bool = False,
) -> tuple[Components, Matrix]:
    """Return how far one part of a stiff step moves, and its slopes with the linear part held, if asked for."""
    drift, jacobian = _linear_part(system, x, u, theta)

    def linear(x: Components) -> Components:
        return matrices.applied(jacobian, x)

    if how.integrator == "exponential":
        columns = matrices.transposed(jacobian) if sloped else ()
        moved, *pushed = _flow(jacobian, (drift, *columns), length, how.doublings, straight=not sloped)
    else:
        implicit = matrices.inverse(matrices.plus_identity(_small_or_stacked(jacobian), -0.5 * length))
        moved = _rosenbrock(lambda x: system.rates(x, u, theta), x, drift, length, implicit)
        units = [tuple(jnp.full_like(value, float(i == j)) for i, value in enumerate(x)) for j in range(len(x))]
        pushed = [_rosenbrock(linear, unit, linear(unit), length, implicit) for unit in units] if sloped else []
    return moved, tuple(zip(*pushed, strict=True))


def noise(
    system: "BaseSystem",
    x: Components,
    u: Components,
    theta: Components,
    rough: bool = False,
    *,
    length: Any | None = None,
    at: Components | None = None,
) -> Noise:
    """Return the noise of one step; where it is `rough`, no gradient flows through how the drift carries it.

    A `length` other than the system's own step, and the parameters `at` which the drift carries it, may be given.
    """
    if not system.carries_noise:
        variance = tuple(_lasting(system, v, length) for v in system.variance(x, u, theta))
        rows = system.shared_variance(x, u, theta)
        if not rows:
            return Noise(variance, ())
        share = 1.0 if length is None else length / system.step
        scaled = [tuple(share * value for value in row) for row in rows]
        return _factorised([(*row, own) for row, own in zip(scaled, variance, strict=True)], 0.0)
    carrying = system.parameters.middle if at is None else at
    shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*x, *u, *(at or ()))))
    x = tuple(jnp.broadcast_to(jnp.asarray(value, float), shape) for value in x)
    _, jacobian = _linear_part(system, x, u, carrying)
    lasts = system.step if length is None else length
    if rough:
        jacobian = jax.lax.stop_gradient(jacobian)
    how = scheme(system)
    doublings = how.doublings + math.ceil(math.log2(how.substeps))
    entering = _entering(system, x, u, theta)
    if callable(system.diffusion):  # it may know the parameters: what comes in at each state, carried by itself
        amounts, units = _apart(entering)
        parts = [_carried(jacobian, unit, lasts, doublings) for unit in units]
        covariance = tuple(
            tuple(sum(d * part[i][j] for d, part in zip(amounts, parts, strict=True)) for j in range(len(x)))
            for i in range(len(x))
        )
    else:
        covariance = _carried(jacobian, entering, lasts, doublings)
    return jax.lax.optimization_barrier(_factorised(covariance, system.noise_floor))  # else each use makes it again


def _entering(system: "BaseSystem", x: Components, u: Components, theta: Components) -> Any:
    """Return the variances that come in per time unit; where states share noise, the rows of its covariance."""
    own = [(v - system.noise_floor) / system.step for v in system.variance(x, u, theta)]
    shared = system.shared_variance(x, u, theta)
    if not shared:
        return own
    size = range(len(own))
    return tuple(tuple(own[i] if i == j else shared[max(i, j)][min(i, j)] / system.step for j in size) for i in size)


def _apart(entering: Any) -> tuple[Any, list[Any]]:
    """Return what comes in by amounts, and for each the same with an amount of one alone."""
    size = len(entering)
    if not isinstance(entering, tuple):
        return entering, [tuple(unit) for unit in np.eye(size)]
    places = [(i, j) for i in range(size) for j in range(i + 1)]
    units = [
        tuple(tuple(float((max(a, b), min(a, b)) == place) for b in range(size)) for a in range(size))
        for place in places
    ]
    return [entering[i][j] for i, j in places], units


def _lasting(system: "BaseSystem", variance: Any, length: Any | None) -> Any:
    """Return the variance that a step of another length brings."""
    if length is None:
        return variance
    return (variance - system.noise_floor) * (length / system.step) + system.noise_floor


@programs.cached(maxsize=64)
def scheme(system: "BaseSystem") -> Scheme:
    """Return how a system is stepped: as it says, or else as follows its drift with the least work."""
    if system.integrator is None and hasattr(system, "features") and system.substeps == 1:
        return Scheme("euler", 1, 0)  # linear in its parameters, which no other step is
    with jax.ensure_compile_time_eval():
        if system.integrator is not None or system.substeps > 1:
            return _with_doublings(system, system.integrator or "rk4", system.substeps)
        seen = predictive.visited(system)
        if not _reached(system, seen) or np.quantile(missed(system, seen, seen.euler), OFTEN, axis=1).max() <= 1.0:
            return Scheme("euler", 1, 0)
        return _closer(system, seen)


def stiff(system: "BaseSystem") -> bool:
    """Return whether steps hang on the linear part of the drift."""
    return not system.one_euler_step and scheme(system).integrator in STIFF


def _closer(system: "BaseSystem", seen: predictive.Visited) -> Scheme:
    """Return a Runge–Kutta step or one for stiff drifts, whichever follows the drift, in parts where it must.

    A few Runge–Kutta steps come first: they compile in a third of the time. Linear drifts are followed by one
    exponential step exactly; where they bend within it, Rosenbrock's takes a third of the work.
    """

    def off(how: Scheme) -> float:
        moved = jax.jit(lambda x, u, theta: _moved(system, how, x, u, theta, system.step))(seen.x, seen.u, seen.theta)
        reached = tuple(np.asarray(x) + np.asarray(step) for x, step in zip(seen.x, moved, strict=True))
        often, nearly_always = np.quantile(missed(system, seen, reached), (OFTEN, NEARLY_ALWAYS), axis=1).max(axis=1)
        return float(often if how.integrator == "rk4" else max(often, nearly_always / TWICE))

    calm, stiff = (_with_doublings(system, integrator, 1) for integrator in ("rk4", "exponential"))
    stable = system.step * _fastest(system) / STABLE
    least = off(calm) if stable <= 1.0 else math.inf
    if least <= CLOSE or (least <= 1.0 and least <= off(stiff)):
        return calm
    for substeps in CALM_PARTS if len(system.state) <= FEW else MORE_PARTS:
        calm = _with_doublings(system, "rk4", substeps)
        if stable <= substeps and off(calm) <= CLOSE:
            return calm
    if off(stiff) <= 1.0:
        return stiff
    for substeps in IMPLICIT_PARTS:
        implicit = _with_doublings(system, "rosenbrock", substeps)
        if system.step / substeps * _growth(system) <= GROWTH and off(implicit) <= 1.0:
            return implicit
    for substeps in PARTS:
        stiff = _with_doublings(system, "exponential", substeps)
        if off(stiff) <= 1.0:
            break
    return stiff


def _with_doublings(system: "BaseSystem", integrator: str, substeps: int) -> Scheme:
    if integrator == "euler":
        return Scheme(integrator, substeps, 0)
    parts = system.step / substeps * _fastest(system) / SMALL[integrator]
    more = 0 if integrator == "rk4" else SPARE
    return Scheme(integrator, substeps, min(MOST_DOUBLINGS, more + math.ceil(math.log2(max(parts, 1.0)))))


def _reached(system: "BaseSystem", seen: predictive.Visited) -> bool:
    """Return whether many small steps lead anywhere; if not, nothing follows, and what is wrong is told elsewhere."""
    with np.errstate(all="ignore"):
        ways = [(x, np.nan_to_num(np.abs(fine - x), nan=np.inf)) for x, fine in zip(seen.x, seen.fine, strict=True)]
        return all(np.median(way) < predictive.RUNAWAY * (1.0 + np.median(np.abs(x))) for x, way in ways)


def missed(system: "BaseSystem", seen: predictive.Visited, reached: Components) -> Any:
    """Return by how much steps miss what many small ones reach, (states, places).

    In units of what may be missed: a share of the way, or what the noise hides, whichever is more.
    """
    rows = []
    with np.errstate(all="ignore"):
        variances = system.variance(seen.x, seen.u, seen.theta)
        for x, end, fine, variance in zip(seen.x, reached, seen.fine, variances, strict=True):
            missed, way = (np.nan_to_num(np.abs(a - fine), nan=np.inf) for a in (end, x))
            allowed = np.maximum(MISSED * way, NOTICED * np.sqrt(variance))
            rows.append(np.where(missed > 0.0, missed / allowed, 0.0))
    return np.nan_to_num(np.stack(np.broadcast_arrays(*rows)), nan=np.inf)


VARIES = 0.3
"""Change of the logarithm of a variance over the prior above which it is told that none is counted."""


@programs.cached(maxsize=64)
def check_noise(system: "BaseSystem") -> None:
    """Warn, once for a system, where parameters change the noise of a step, which is taken at their middle."""
    if not system.carries_noise or callable(system.diffusion):
        return
    seen, how = predictive.visited(system), scheme(system)
    doublings = how.doublings + math.ceil(math.log2(how.substeps))
    entering = _entering(system, seen.x, seen.u, seen.theta)

    @jax.jit
    def variances(x: Components, u: Components, theta: Components) -> Any:
        _, jacobian = _linear_part(system, x, u, theta)
        found = _carried(jacobian, entering, system.step, doublings, straight=False)
        return jnp.stack([row[i] for i, row in enumerate(found)]) + system.noise_floor

    middle = tuple(jnp.full_like(value, m) for value, m in zip(seen.theta, system.parameters.middle, strict=True))
    both = [np.asarray(variances(seen.x, seen.u, theta)) for theta in (seen.theta, middle)]
    with np.errstate(all="ignore"):
        ratio = np.nanmedian(np.abs(np.log(both[0] / both[1])), axis=1)
    if np.nanmax(ratio, initial=0.0) > VARIES:
        warnings.warn(
            f"the parameters of {system.name} change the noise that {system.state[int(np.nanargmax(ratio))]!r} gathers "
            f"within a step, by {100 * math.expm1(0.5 * np.nanmax(ratio)):.0f} % or more over half of the prior, but "
            "it is taken at the middle of the prior: what the noise tells about them is not counted; if that matters, "
            "give a shorter step and a longer horizon.",
            stacklevel=outside(),
        )


def _fastest(system: "BaseSystem") -> float:
    """Return the largest rate of the drift's linear part, per time unit, where the prior and its predictive lead."""
    return float(np.abs(_modes(system)).max(initial=0.0))


def _growth(system: "BaseSystem") -> float:
    """Return the largest rate of those that grow."""
    return float(_modes(system).real.max(initial=0.0))


@programs.cached(maxsize=64)
def _modes(system: "BaseSystem") -> Any:
    """Return the rates of the drift's linear part, one row for each of many places."""
    seen, draws = predictive.visited(system), system.parameters.draws
    size = draws[0].shape[0]
    x, u = (tuple(np.resize(value, size) for value in values) for values in (seen.x, seen.u))
    _, jacobian = jax.jit(lambda x, u, theta: _linear_part(system, x, u, theta))(x, u, draws)
    rows = np.moveaxis(np.asarray(jacobian), -1, 0)
    finite = rows[np.isfinite(rows).all(axis=(1, 2))]
    return np.linalg.eigvals(finite)


def _linear_part(system: "BaseSystem", x: Components, u: Components, theta: Components) -> tuple[Components, Matrix]:
    """Return the drift, and J[i][j] = ∂drift_i / ∂x_j."""
    shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in (*x, *u, *theta)))
    x = tuple(jnp.broadcast_to(jnp.asarray(value, float), shape) for value in x)

    def rates(x: Components) -> Components:
        return tuple(jnp.broadcast_to(jnp.asarray(rate, float), shape) for rate in system.rates(x, u, theta))

    drift, push = jax.linearize(rates, x)
    columns = [push(tuple(jnp.full(shape, float(i == j)) for i in range(len(x)))) for j in range(len(x))]
    return drift, tuple(zip(*columns, strict=True))


def _runge_kutta(system: "BaseSystem", x: Components, u: Components, theta: Components, length: float) -> Components:
    def along(slope: Components, share: float) -> Components:
        moved = tuple(value + share * length * rate for value, rate in zip(x, slope, strict=True))
        return system.rates(moved, u, theta)

    one = system.rates(x, u, theta)
    two = along(one, 0.5)
    three = along(two, 0.5)
    four = along(three, 1.0)
    return tuple(length / 6.0 * (a + 2.0 * b + 2.0 * c + d) for a, b, c, d in zip(one, two, three, four, strict=True))


def _rosenbrock(
    rates: Callable[[Components], Components], x: Components, drift: Components, length: Any, implicit: Matrix
) -> Components:
    """Return how far Rodas3 moves (Sandu et al. 1997): four stages, L-stable, of order three.

    `implicit` is (I − ½ h J)⁻¹.
    """

    def stage(at: tuple[Components, ...], *before: tuple[float, Components]) -> Components:
        moved = tuple(sum(parts, start=value) for value, *parts in zip(x, *at, strict=True))
        pushed = [0.5 * length * rate for rate in (rates(moved) if at else drift)]
        for share, other in before:
            pushed = [value + share * part for value, part in zip(pushed, other, strict=True)]
        return matrices.applied(implicit, tuple(pushed))

    one = stage(())
    two = stage((), (2.0, one))
    twice = tuple(2.0 * value for value in one)
    three = stage((twice,), (0.5, one), (-0.5, two))
    four = stage((twice, three), (0.5, one), (-0.5, two), (-4.0 / 3.0, three))
    return tuple(a + b + c for a, b, c in zip(twice, three, four, strict=True))


def _small_step(jacobian: Matrix, length: float) -> tuple[Matrix, Matrix, Matrix]:
    """Return A = hJ, e^A and ∫ e^{Js} ds over a small step, by their series."""
    small = matrices.scaled(jacobian, length)
    inner = matrices.plus_identity(small, 0.25)
    for order in (3.0, 2.0):
        inner = matrices.plus_identity(matrices.product(small, inner), 1.0 / order)
    return small, matrices.plus_identity(matrices.product(small, inner), 1.0), matrices.scaled(inner, length)


def _flow(
    jacobian: Matrix, vectors: tuple[Components, ...], length: Any, doublings: int, *, straight: bool = True
) -> tuple[Components, ...]:
    """Return ∫ e^{Js} ds · v over a step for each vector, by doubling a small one, in one straight program or a loop.

    Where the drift is so fast that even the small step's series would explode, the time that is followed is shorter:
    what is fast has settled by then.
    """
    straight = straight and len(jacobian) <= FEW
    jacobian = _small_or_stacked(jacobian)
    share = 1.0 / _exceeds(jacobian, length, doublings)
    jacobian = matrices.scaled(jacobian, share)
    _, along, integral = _small_step(jacobian, length / 2**doublings)

    def double(so_far: Any, _: Any) -> Any:
        moved, along = so_far
        more = tuple(matrices.applied(along, vector) for vector in moved)
        return (matrices.plus(moved, more), matrices.product(along, along)), None

    begun = tuple(matrices.applied(integral, tuple(share * value for value in vector)) for vector in vectors)
    (moved, _), _ = jax.lax.scan(double, (begun, along), length=doublings, unroll=_unrolled(doublings, straight))
    return cast(tuple[Components, ...], moved)


def _exceeds(jacobian: Matrix, length: Any, doublings: int) -> Any:
    """Return by how many times a drift is faster than small steps follow, at least 1."""
    return jax.lax.stop_gradient(jnp.maximum(1.0, matrices.rate(jacobian) * length / (2.0**doublings * REACH)))


def _slowed(jacobian: Matrix, length: Any, doublings: int) -> Matrix:
    """Return a drift's linear part with no rates that fall faster than c, what small steps follow: J (I − J / c)⁻¹.

    What is fast settles within the step all the same, and what is slow stays nearly as it is: within a few per cent,
    or a quarter where it hangs on what is fast. Where nothing is too fast, nothing changes.
    """
    fastest = 2.0**doublings * REACH / length
    share = jnp.where(_exceeds(jacobian, length, doublings) > 1.0, 1.0 / fastest, 0.0)
    return matrices.product(jacobian, matrices.inverse(matrices.plus_identity(jacobian, -share)))


def _small_or_stacked(jacobian: Matrix) -> Matrix:
    return jacobian if len(jacobian) <= FEW else matrices.stacked(jacobian)


GAUSS = (0.5 - 0.5 / math.sqrt(3.0), 0.5 + 0.5 / math.sqrt(3.0))
"""Where Gauss's rule with two points looks."""


def _carried(jacobian: Matrix, entering: Any, length: float, doublings: int, *, straight: bool = True) -> Matrix:
    """Return ∫ e^{Js} Q e^{Jᵀs} ds over a step, by doubling a small one; Q is entering, or has it on its diagonal.

    What is computed once is faster by a loop than `straight`: that takes minutes to compile where results are stacked.
    Where the drift is too fast for the small step (a tank runs empty), it is slowed to what that follows.
    """
    straight = straight and len(jacobian) <= FEW
    jacobian = _slowed(_small_or_stacked(jacobian), length, doublings)
    part = length / 2**doublings
    _, along, _ = _small_step(jacobian, part)
    whole = isinstance(entering[0], tuple)
    comes = matrices.filled(entering, jacobian) if whole else matrices.diagonal(entering, jacobian)
    ends = [_small_step(jacobian, share * part)[1] for share in GAUSS]  # so that it is a covariance, come what may
    terms = [matrices.product(matrices.product(end, comes), matrices.transposed(end)) for end in ends]
    total = matrices.scaled(matrices.plus(*terms), 0.5 * part)

    def double(so_far: Any, _: Any) -> Any:
        total, along = so_far
        moved = matrices.product(matrices.product(along, total), matrices.transposed(along))
        return (matrices.plus(total, moved), matrices.product(along, along)), None

    (total, _), _ = jax.lax.scan(double, (total, along), length=doublings, unroll=_unrolled(doublings, straight))
    return total


def _unrolled(doublings: int, straight: bool) -> int:
    """Return how many doublings one turn of their loop has."""
    return max(1, doublings) if straight and doublings <= STRAIGHT else 1


def _factorised(covariance: Matrix, floor: float) -> Noise:
    """Return v and L of a covariance, the floor added to each state's own variance."""
    variances: list[Any] = []
    rows: list[tuple[Any, ...]] = []
    for i, entries in enumerate(covariance):
        row: list[Any] = []
        for j in range(i):
            shared = sum(row[k] * rows[j][k] * variances[k] for k in range(j))
            rest = entries[j] - shared
            row.append(0.0 if isinstance(variances[j], float) and variances[j] == 0.0 else rest / variances[j])
        whole = entries[i] + floor
        own = whole - sum(weight**2 * v for weight, v in zip(row, variances, strict=True))
        known = isinstance(own, int | float)  # constant noise is factorised once, as numbers
        variances.append(max(own, LEAST * whole) if known else jnp.maximum(own, LEAST * whole))
        rows.append(tuple(row))
    return Noise(tuple(variances), tuple(rows))


LEAST = 1e-9
"""Share of a state's variance that is its own at least: what rounding leaves of a difference."""
