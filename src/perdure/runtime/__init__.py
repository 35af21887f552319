"""Runs in motion: the trampoline, what workflow code sees, and the worker that holds it all."""
