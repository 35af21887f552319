"""The SQLite store: a file, one writer thread, nothing to install."""
