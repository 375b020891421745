"""Candidates: arrays of configurations, and the rules they must satisfy."""

import numpy as np

from planner.base.enums import CodeEnum

# Codes meet arrays as plain numbers do. Without it numpy asks Python's enumerations whether they
# override its functions, and Python 3.11 takes five times a comparison's own time to say no.
CodeEnum.__array_ufunc__ = np.ndarray.__array_ufunc__  # type: ignore[attr-defined]
