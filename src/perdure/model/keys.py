"""How keys are spelt in the store: the scope within which a key counts, and the claim of a `first` signal.

These are stored: another spelling would forget every key that was used.
"""

import hashlib


def digest(*parts: str) -> str:
    """A short fingerprint of what an id or a key was used for; equal asks have equal ones."""
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def start_scope(workflow: str) -> str:
    """A start's key counts among the starts of its workflow."""
    return f"start/{workflow}"


def import_scope() -> str:
    """Under its id a run that was imported or forked is known by what it was made of."""
    return "import"


def debounce_scope(workflow: str) -> str:
    """A debounced start's key names the run of its workflow that still takes another input."""
    return f"debounce/{workflow}"


def signal_scope(run_id: str, name: str) -> str:
    """A signal's key counts among the signals of that name to its run. A name has no slash; a run id may."""
    return f"signal/{run_id}/{name}"


def decide_scope(run_id: str, approval_id: str) -> str:
    """The key of a decision counts for its approval, an id without a slash."""
    return f"decide/{run_id}/{approval_id}"


def reply_scope(run_id: str) -> str:
    """What a run has answered, by the id of the signal."""
    return f"reply/{run_id}"


def claim_scope(run_id: str) -> str:
    """The claims on one run. Its id may hold slashes, so it has the scope for itself."""
    return f"claim/{run_id}"


def claim_on(run_id: str, generation: int, name: str, path: str | None) -> tuple[str, str]:
    """Scope and key of the one claim of a `first` signal: per run, generation and name, or path if addressed."""
    # A name holds no slash.
    return claim_scope(run_id), f"{generation}/{name}/{path or ''}"


def emit_scope(topic: str) -> str:
    """An event's key counts among the events of its topic."""
    return f"emit/{topic}"


def put_scope(queue: str) -> str:
    """An item's key counts within its queue."""
    return f"put/{queue}"


def consumer_scope(name: str) -> str:
    """The keys that a consumer has dealt with."""
    return f"consumer/{name}"
