"""For tests of workflows, and of stores: virtual time, worlds to move it in, the conformance suite."""

from perdure.testing.clock import VirtualClock
from perdure.testing.crowd import Crowd
from perdure.testing.replaying import ReplayFailed, ReplayReport, replay_check
from perdure.testing.world import World

__all__ = ["Crowd", "ReplayFailed", "ReplayReport", "VirtualClock", "World", "replay_check"]
