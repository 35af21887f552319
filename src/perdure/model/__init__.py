"""Pure values and rules: ids, clock, durations, limits, payload codec, schemas.

Nothing here does I/O or imports another part of perdure; everything above may import this.
"""
