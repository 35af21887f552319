"""When a failed step is tried again: a pure function of the policy, the attempt and a die."""

import msgspec

from perdure.model import limits
from perdure.model.duration import Duration, parse_duration
from perdure.model.limits import BadValue


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently to try a step.

    attempts: tries in all. backoff: the first pause; each next is `factor` times longer, up to max_backoff.
    jitter: by what share a pause may be shorter or longer, so that many failures do not return at once.
    """

    attempts: int = 3
    backoff: Duration = "1s"
    factor: float = 2.0
    max_backoff: Duration = "1m"
    jitter: float = 0.1

    def __post_init__(self) -> None:
        whole = isinstance(self.attempts, int) and not isinstance(self.attempts, bool)
        if not whole or not 1 <= self.attempts <= limits.retry_attempts_max:
            bound = limits.retry_attempts_max
            raise BadValue("attempts", self.attempts, f"must be a whole number from 1 to {bound}")
        if not _is_between(1, self.factor, 1000):
            raise BadValue("factor", self.factor, "must be a number from 1 to 1000")
        if not _is_between(0, self.jitter, 1):
            raise BadValue("jitter", self.jitter, "must be a number from 0 to 1")
        parse_duration(self.backoff, "backoff")
        parse_duration(self.max_backoff, "max_backoff")


def _is_between(least: float, value: object, most: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and least <= value <= most  # type: ignore[operator]


NO_RETRY = Retry(attempts=1)


def next_delay_us(retry: Retry, attempt: int, die: float) -> int | None:
    """The pause after failed attempt number `attempt`, or None when it was the last.

    `die` is uniform in [0, 1). The exponent is bounded, so that attempt 9,999 does not overflow a float.
    """
    if attempt >= retry.attempts:
        return None
    longest_us = parse_duration(retry.max_backoff)
    base_us = parse_duration(retry.backoff) * retry.factor ** min(attempt - 1, 64)
    spread = 1 + retry.jitter * (2 * die - 1)
    return int(min(base_us, longest_us) * spread)
