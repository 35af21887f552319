"""For tests of workflows, and of stores: virtual time, a world to move it in, the conformance suite."""

from perdure.testing.clock import VirtualClock
from perdure.testing.world import World

__all__ = ["VirtualClock", "World"]
