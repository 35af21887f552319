"""The server's clock as a client knows it: never ahead, close behind, and never back."""

from perdure.model.clock import SystemClock
from perdure.store.ticking import ServerClock
from perdure.testing import VirtualClock


class Skewed(SystemClock):
    """The clock of a machine that is wrong by so much, and stands still until it is moved."""

    set_us = 0  # by how much somebody has set it

    def __init__(self, now: int) -> None:
        self.at = now

    def now(self) -> int:
        return self.at + self.set_us

    def monotonic(self) -> float:
        return self.at / 1_000_000


def test_it_follows_the_server_whatever_the_machine_says() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    assert clock.now() == 9_000_000
    machine.at += 500
    assert clock.now() == 9_000_500


def test_an_answer_that_took_long_does_not_set_it_back() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    machine.at += 2_000_000
    # Said at once by the server, and heard a second later.
    clock.learn(10_000_000)
    assert clock.now() == 11_000_000


def test_what_was_learnt_long_ago_counts_no_more() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    machine.at += 60_000_000
    clock.learn(
        67_000_000
    )  # the machine's clock runs faster: it has gained two seconds in a minute
    machine.at += 5_000_000
    assert clock.now() == 72_000_000


def test_it_never_goes_back() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    machine.at += 60_000_000
    before = clock.now()
    clock.learn(before - 700_000)  # the server's own clock was set
    assert clock.now() == before


def test_a_machine_whose_clock_is_set_stays_with_the_server() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    machine.set_us = 3_600_000_000
    assert clock.now() == 9_000_000
    machine.set_us = -3_600_000_000
    machine.at += 500
    assert clock.now() == 9_000_500


def test_something_recorded_says_at_least_how_late_it_is() -> None:
    machine = Skewed(1_000_000)
    clock = ServerClock(machine)
    clock.learn(9_000_000)
    clock.not_before(9_200_000)
    assert clock.now() == 9_200_000


def test_a_clock_that_tests_move_is_the_time() -> None:
    virtual = VirtualClock()
    clock = ServerClock(virtual)
    clock.learn(9_000_000)
    clock.not_before(virtual.now() + 5)
    assert clock.now() == virtual.now()
    assert not clock.follows
