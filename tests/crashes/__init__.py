"""Processes that are killed with SIGKILL, and what must be true of the file they leave behind.

`story` holds the workflows, `child` the process that runs them, `nursery` starts children and kills them, `script`
says what the parent asks for and what must come of it, `drive` plays a script and keeps the history of what was
acknowledged, `fsck` looks at the file. The parent survives; what it remembers is the truth to compare with.

Many on one Postgres, or on one file: `crew` is several children at once, with what befalls them, `scenes` what they
play besides the stories, `load` the client that asks meanwhile and looks at the end; in `mesh` each sends to each. On
Postgres that takes about a minute in the tests, and a quarter of an hour with KILLS=1000: then 500 workers are killed,
200 stand still, the server is killed 150 times.
"""
