"""The process's single writer, and what its commits mean for others."""
