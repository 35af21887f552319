"""Real servers for the tests and the benchmark, from wheels: no root, no container, nothing to install by hand.

`premises` are the directories in which the servers of one run live; a `guardian` process ends the servers and
clears the directories when the run is over, however it ended. `process` is any server process of ours, `postgres` is
one of them, `fixtures` hands them to the tests, `stores` opens stores on them. Only the fixtures know pytest:
benchmarks/server.py uses the others.

A test that only needs a server shares one with the whole run, also with the other processes of pytest-xdist. A test
that kills, stops or configures its server starts its own.
"""
