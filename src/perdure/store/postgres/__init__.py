"""A namespace in a Postgres schema, shared by many processes."""
