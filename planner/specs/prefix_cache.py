"""Prefix-cache hit rates by size of the cache, and routing of requests to several caches."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record

CACHES = tuple(2.0**power for power in range(13))
"""Numbers of caches with known hits under random routing."""
_COLUMNS = 129
_FINE = 513


@record(kw_only=True)
class HitRateCurve:
    """Prefix-cache hits by the time since last use, and the cache size that keeps tokens that long.

    Parameters
    ----------
    times : times since last use, ascending [s], or [requests] if not ``per_second``
    hits : share of the prompt tokens that were used at most ``times`` ago
    filled : tokens of one cache that keeps all tokens for ``times``, at 1 request/s if
        ``per_second``
    prompt : mean tokens of a prompt
    written : mean tokens that a request adds to the cache
    per_second : times are in seconds (sessions), not in requests (a trace)
    scatter : share of the ``hits`` left when requests go to random caches, by number of caches
        (`CACHES`); empty: requests return to their cache
    """

    times: tuple[float, ...]
    hits: tuple[float, ...]
    filled: tuple[float, ...]
    prompt: float
    written: float
    per_second: bool
    scatter: tuple[tuple[float, ...], ...] = ()

    @property
    def endless(self) -> float:
        """Hit rate of an unlimited cache, a share of the prompt tokens."""
        return self.hits[-1]

    def hit_rate(self, tokens: Numeric, rate: Numeric, caches: Numeric) -> FloatArray:
        """Return the share of prompt tokens that the prefix caches contain.

        Parameters
        ----------
        tokens : size of each cache [tokens]
        rate : request rate of all caches together [1/s]
        caches : number of caches
        """
        return _interpolate(self._tables[0], *self._table_position(tokens, rate, caches))

    def residence(self, tokens: Numeric, rate: Numeric, caches: Numeric) -> FloatArray:
        """Return the time that the caches keep unused tokens [s].

        Parameters
        ----------
        tokens : size of each cache [tokens]
        rate : request rate of all caches together [1/s]
        caches : number of caches
        """
        seconds = np.exp(_interpolate(self._tables[1], *self._table_position(tokens, rate, caches)))
        seconds = np.where(np.asarray(tokens) > 0, seconds, 0.0)
        return np.asarray(seconds if self.per_second else seconds / rate)

    def _table_position(
        self, tokens: Numeric, rate: Numeric, caches: Numeric
    ) -> tuple[FloatArray, FloatArray]:
        """Return (row, column) of a cache size and number in the tables."""
        cache_size = np.maximum(tokens, 0.0) * caches / (rate if self.per_second else 1.0)
        low, high = self._log_sizes[0], self._log_sizes[-1]
        column = (np.log(np.maximum(cache_size, 1e-300)) - low) / (high - low) * (_COLUMNS - 1)
        row = np.log2(np.maximum(caches, 1.0)) if self.scatter else np.zeros(())
        return np.asarray(row), np.asarray(column)

    @cached_property
    def _log_sizes(self) -> FloatArray:
        """Logarithms of the sizes of all caches together, at which hits are tabled."""
        largest = self.written * self.times[-1] if self.scatter else self.filled[-1]
        return np.linspace(np.log(self.filled[0]), np.log(largest), _COLUMNS)

    @cached_property
    def _tables(self) -> tuple[FloatArray, FloatArray]:
        r"""Return hit shares and log times by number of caches and total cache size.

        Under random routing, one of R caches had the last use in :math:`1 / R` of the cases; its
        earlier uses are R times as old.
        """
        time = np.geomspace(self.times[0], self.times[-1], _FINE)
        ages, rows = np.log(self.times), list[FloatArray]()
        hits = np.interp(np.log(time), ages, self.hits)
        if not self.scatter:
            log_size = np.log(np.asarray(self.filled))
            hit_shares = np.interp(self._log_sizes, log_size, self.hits)
            return hit_shares[None], np.interp(self._log_sizes, log_size, np.log(self.times))[None]
        log_times = list[FloatArray]()
        for caches, scattered in zip(CACHES, self.scatter, strict=True):
            older = np.asarray(scattered) - np.asarray(self.hits) / caches
            of_all = hits / caches + np.interp(np.log(time / caches), ages, older)
            unused_tokens = self.written - self.prompt * of_all
            steps = np.diff(time) * (unused_tokens[1:] + unused_tokens[:-1]) / 2
            log_size = np.log(np.cumsum(np.concatenate([[time[0] * unused_tokens[0]], steps])))
            rows.append(np.interp(self._log_sizes, log_size, of_all))
            log_times.append(np.interp(self._log_sizes, log_size, np.log(time)))
        return np.stack(rows), np.stack(log_times)


def _interpolate(table: FloatArray, row: FloatArray, column: FloatArray) -> FloatArray:
    """Interpolate a table at (row, column); edge values apply beyond the table."""
    row = np.clip(row, 0, table.shape[0] - 1)
    column = np.clip(column, 0, table.shape[1] - 1)
    i = np.minimum(row.astype(np.intp), max(table.shape[0] - 2, 0))
    j = np.minimum(column.astype(np.intp), table.shape[1] - 2)
    y, x, below = row - i, column - j, np.minimum(i + 1, table.shape[0] - 1)
    upper = table[i, j] * (1 - x) + table[i, j + 1] * x
    lower = table[below, j] * (1 - x) + table[below, j + 1] * x
    return np.asarray(upper * (1 - y) + lower * y)
