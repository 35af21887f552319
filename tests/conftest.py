"""Fixtures with real servers, and how hard the property tests try: PERDURE_FUZZ_EXAMPLES, many by `make fuzz`."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["servers.fixtures"]

settings.register_profile(
    "perdure",
    max_examples=int(os.environ.get("PERDURE_FUZZ_EXAMPLES", "40")),
    deadline=None,  # a busy machine is no finding
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("perdure")
