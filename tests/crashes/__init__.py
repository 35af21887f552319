"""Processes that are killed with SIGKILL, and what must be true of the file they leave behind.

`story` holds the workflows, `child` the process that runs them, `nursery` starts children and kills them, `script`
says what the parent asks for and what must come of it, `drive` plays a script and keeps the history of what was
acknowledged, `fsck` looks at the file. The parent survives; what it remembers is the truth to compare with.
"""
