"""Checks of arguments, and the one place that knows about NumPy arrays without importing NumPy.

Every check returns its value (`whole` as a plain or wide integer), names the argument, the value and the allowed range
when it fails, and lets symbolic values (SymPy expressions) pass, since those have no size to compare.
"""

import math
import sys
from collections.abc import Sequence
from numbers import Real


def numpy_if_array(*values):
    """Return the numpy module if any value is a NumPy array, else None (NumPy is never imported here)."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and any(isinstance(value, numpy.ndarray) for value in values):
        return numpy
    return None


def is_symbolic(value):
    """Return True for a SymPy expression that is not a plain number."""
    return hasattr(value, "free_symbols") and not getattr(value, "is_number", False)


def holds(value, condition):
    """Return True when `condition` holds for a number, or for every element of an array."""
    if numpy_if_array(value):
        return value.dtype.kind in "iuf" and bool(condition(value).all())
    return bool(condition(value))


def _check(name, value, condition, allowed):
    if is_symbolic(value):
        return value
    if isinstance(value, bool) or not (isinstance(value, Real) or hasattr(value, "is_number") or numpy_if_array(value)):
        raise TypeError(f"{name} = {value!r} is not a number; {name} must be {allowed}")
    if not holds(value, condition):  # a NaN fails every comparison, so it is refused here as well
        raise ValueError(f"{name} = {value} is outside its range; {name} must be {allowed}")
    return value


def probability(name, value):
    """Return `value` if it lies in [0, 1] (every element, for an array)."""
    return _check(name, value, lambda v: (v >= 0) & (v <= 1), "a probability from 0 to 1")


def time(name, value):
    """Return `value` if it is a finite time ≥ 0 in seconds."""
    return _check(name, value, lambda v: (v >= 0) & (v < math.inf), "a finite time of 0 s or more")


def positive_time(name, value):
    """Return `value` if it is a finite time > 0 in seconds."""
    return _check(name, value, lambda v: (v > 0) & (v < math.inf), "a finite time above 0 s")


def length(name, value):
    """Return `value` if it is a finite mean number of tokens ≥ 1 (a round commits at least one)."""
    return _check(name, value, lambda v: (v >= 1) & (v < math.inf), "a mean number of tokens, 1 or more")


def whole(name, value, least=0):
    """Return `value` if it is a whole number ≥ `least` (every element, for an array).

    NumPy's narrow integers come back wide, since 255 + 1 is 0 in a uint8; a number comes back as an int.
    """
    allowed = f"a whole number, {least} or more"
    if isinstance(value, float) and not isinstance(value, int):
        raise TypeError(f"{name} = {value!r} is not a whole number; {name} must be {allowed}")
    _check(name, value, lambda v: (v >= least) & (v % 1 == 0), allowed)
    if numpy_if_array(value):
        return value.astype("int64")
    return value if hasattr(value, "is_number") or is_symbolic(value) else int(value)


def positions(name, values):
    """Return `values` as a tuple (or unchanged, for an array) if it is a sequence with at least one position."""
    if numpy_if_array(values):
        if values.ndim == 0 or len(values) == 0:
            raise ValueError(f"{name} is an array without positions; its first axis must hold one entry per position")
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise TypeError(f"{name} = {values!r} is not a sequence; give one entry per position, such as [0.8, 0.7]")
    if not values:
        raise ValueError(f"{name} is empty; give one entry per position, such as [0.8, 0.7]")
    return tuple(values)


def finite_report(report, name="the result"):
    """Return `report` (dicts, lists, numbers) if every number in it is finite; JSON can hold no other."""
    if isinstance(report, (dict, list, tuple)):
        for key, value in report.items() if isinstance(report, dict) else enumerate(report):
            finite_report(value, key if isinstance(key, str) else name)
    elif isinstance(report, float) and not math.isfinite(report):
        raise ValueError(f"{name} = {report} is beyond what a number here can hold; give times of a usual size")
    return report
