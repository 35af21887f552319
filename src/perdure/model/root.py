"""The root of every error of this library, kept at the bottom so that all layers can derive from it."""


class PerdureError(Exception):
    """Anything Perdure raises on purpose."""
