"""Measurements of Perdure beside a peer and beside bare loops: `python -m benchmarks`."""
