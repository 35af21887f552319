"""One app behind a web server with several processes, all on one SQLite file: `python -m examples.web`."""
