"""Sine, cosine and logarithm of doubles by short series, which fill the vector units where a library call does not.

They are right to the last digit or the one before it. Of angles beyond 10⁸ they are as right as the angle: what it is
rounded to moves them as much; beyond 10¹⁶ they mean nothing. NaN stays NaN, log 0 is −∞, and so is the logarithm of
numbers below 10⁻³⁰⁷.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

NEAREST = lax.RoundingMethod.TO_NEAREST_EVEN
PI = (3.1415926218032837, 3.1786509424591713e-08, 1.2246467991473532e-16)
"""π in parts, the first two of 26 digits, so that their products with whole numbers are exact."""
SINE = (
    -0.16666666666666666,
    0.008333333333333316,
    -0.00019841269841254966,
    2.7557319219160833e-06,
    -2.505210761669045e-08,
    1.6058977292642743e-10,
    -7.643969663988074e-13,
    2.7314368769379893e-15,
)
"""(sin r / r − 1) / r² as a polynomial in r², interpolated at Chebyshev's points of |r| ≤ π/2: off by 3e-17."""
LOGARITHM = (
    0.6666666666666735,
    0.3999999999940942,
    0.2857142874366239,
    0.22222198432149784,
    0.1818357216161805,
    0.15313837699209373,
    0.14798198605116586,
)
"""(log((1 + s) / (1 − s)) / s − 2) / s² as a polynomial in s², from fdlibm."""
LOG_2 = 0.6931471803691238, 1.9082149292705877e-10
"""log 2 in parts, the first of 32 digits."""
WHOLE = 1.5 * 2.0**52
"""Added to a whole number, it leaves that number in the last bits."""
EXPONENT, ROOT_HALF = 52, 0x3FE6A09E667F3BCD
"""Where the exponent begins in the bits of a double, and the bits of √½."""


@jax.custom_jvp
def sin(x: Any) -> Any:
    """Return sin x."""
    turns = lax.round(x * (1.0 / math.pi), NEAREST)
    return _sine(x, turns, turns)


@jax.custom_jvp
def cos(x: Any) -> Any:
    """Return cos x: a sine, a quarter turn on."""
    turns = lax.round(x * (1.0 / math.pi) - 0.5, NEAREST)
    return _sine(x, turns + 0.5, turns + 1.0)


@jax.custom_jvp
def log(x: Any) -> Any:
    """Return log x, by x = 2ᵏ m with m between √½ and √2."""
    part, power = halved(x)
    above = part - 1.0
    s, half = above / (2.0 + above), 0.5 * above * above
    rest = s * (half + s * s * _polynomial(s * s, LOGARITHM)) + power * LOG_2[1]
    usual = power * LOG_2[0] - ((half - rest) - above)
    below = jnp.where(x >= 0.0, -math.inf, math.nan)
    return jnp.where(x >= np.finfo(float).tiny, jnp.where(x == math.inf, x, usual), below)


def halved(x: Any) -> tuple[Any, Any]:
    """Return m between √½ and √2, and k, so that x = 2ᵏ m; of positive numbers that are not subnormal."""
    bits = lax.bitcast_convert_type(x, jnp.int64)
    k = lax.shift_right_arithmetic(bits - ROOT_HALF, np.int64(EXPONENT))
    part = lax.bitcast_convert_type(bits - lax.shift_left(k, np.int64(EXPONENT)), float)
    return part, lax.bitcast_convert_type(k + np.float64(WHOLE).view(np.int64), float) - WHOLE


@jax.custom_jvp
def multiplied(product: Any, factor: Any) -> tuple[Any, Any]:
    """Return p between √½ and √2, and what log p lacks of the logarithm of a product: no logarithm is computed.

    Where there is none, p is 0 (of what is below 10⁻³⁰⁷), infinite or not a number, and stays so. Slopes are all
    in p.
    """
    x = product * factor
    part, power = halved(x)
    below = jnp.where(x >= 0.0, 0.0, math.nan)
    return jnp.where(x >= np.finfo(float).tiny, jnp.where(x < math.inf, part, x), below), power * math.log(2.0)


@multiplied.defjvp
def _multiplied_slopes(values: Any, slopes: Any) -> Any:
    (product, factor), (along, beside) = values, slopes
    part, counted = multiplied(product, factor)
    return (part, counted), (part * (along / product + beside / factor), jnp.zeros_like(counted))


sin.defjvps(lambda slope, _, x: slope * cos(x))
cos.defjvps(lambda slope, _, x: -slope * sin(x))
log.defjvps(lambda slope, _, x: slope / x)


def _sine(x: Any, turns: Any, parity: Any) -> Any:
    """Return sin(x − turns · π), its sign changed where the parity is odd."""
    r = ((x - turns * PI[0]) - turns * PI[1]) - turns * PI[2]
    r = lax.clamp(-0.5 * math.pi, r, 0.5 * math.pi)  # of angles too large to have any digits left
    value = r + r * (r * r) * _polynomial(r * r, SINE)
    sign = lax.shift_left(lax.bitcast_convert_type(parity + WHOLE, jnp.int64), np.int64(63))
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, jnp.int64) ^ sign, float)


def _polynomial(z: Any, coefficients: tuple[float, ...]) -> Any:
    value: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * z + coefficient
    return value
