"""How the requests of prefill and decode workers spread around their means, in closed form."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.estimators.inference.disaggregated_run import DisaggregatedRun
from planner.estimators.inference.serving import tokens_per_step
from planner.estimators.inference.setting import ServingSetting
from planner.formulas.queueing import (
    averaged_share,
    gamma_quantile,
    lognormal_quantile,
    running_variance,
)


@record(kw_only=True)
class PoolSpread:
    """A deployment of workers with what spreads in it.

    A decode step over B sequences takes ``fixed + slope B`` seconds.
    """

    setting: ServingSetting
    run: DisaggregatedRun
    fixed: FloatArray
    slope: FloatArray

    def percentile(self, quantity: str, share: float) -> FloatArray:
        """What a ``share`` of the requests does not exceed of one of the three times [s]."""
        run, w = self.run, self.setting.workload
        first, token = run.time_to_first_token, run.time_per_output_token
        if quantity == "time_to_first_token":
            varied = run.wait + run.prompt * (w.input_variation > 0)
            rest = gamma_quantile(share=share, mean=varied, variance=self._first)
            return np.asarray(first - varied + rest)
        if quantity == "time_per_output_token":
            return lognormal_quantile(share=share, mean=token, variance=self._token)
        answer = np.maximum(w.output_tokens - 1, 0.0) * token
        lengths = np.square(w.output_variation) + self._token / np.square(token)
        variance = self._first + answer**2 * lengths
        return lognormal_quantile(share=share, mean=first + answer, variance=variance)

    @property
    def _first(self) -> FloatArray:
        r"""Variance of the wait for a prefill worker, and of the prompt itself [s^2].

        A share, the load, waits, exponentially: :math:`w^2 (2 / \rho - 1)`.
        """
        run = self.run
        load = np.clip(run.load, 1e-6, 1.0)
        prompt = (run.prompt * self.setting.workload.input_variation) ** 2
        return np.asarray(run.wait**2 * (2 / load - 1) + prompt)

    @property
    def _token(self) -> FloatArray:
        """Variance of the time per token by the number of sequences beside it [s^2]."""
        zero = np.zeros(())
        if self.setting.workload.request_rate is None:
            return zero
        drafted = tokens_per_step(self.setting)
        step = self.run.time_per_output_token * drafted
        slope = np.maximum(self.slope, 1e-12)
        running = np.maximum((step - self.fixed) / slope, 0.0)
        variance, _ = running_variance(
            running=running, load=zero, fixed=self.fixed, slope=self.slope
        )
        kept = averaged_share(fixed=self.fixed, step=step)
        return np.asarray(self.slope**2 * variance * kept / drafted**2)
