"""Hypothesis profiles: HYPOTHESIS_PROFILE chooses dev, ci or thorough; without it, CI decides."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Kernels start slowly (a program, its layout, its tiles), so no example has a deadline.
settings.register_profile("dev", deadline=None)
# Derandomised, CI sees the same examples every time: more of them would find nothing new.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
