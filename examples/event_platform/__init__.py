"""A platform on one ledger: many producers, five readers, and nobody knows anybody.

    topics.py      who writes: sync, pricing, email, receivables, vendors, and the humans who approve
    workflows.py   what an event starts: reviews that a human decides, repricing, imports that may fail
    readers.py     who reads, and when: the index of timelines, detectors, lessons, customer health
    records.py     what readers keep outside Perdure, written so that an event seen twice counts once
    business.py    a month of a business that does not exist, from a seed

`python -m examples.event_platform` lets three days of it pass in a few seconds.
"""
