"""Namespaces of Postgres for tests: made once, emptied and lent again.

To make the tables of a namespace takes a tenth of a second, and there are thousands of tests; to empty them takes a few
milliseconds. A test that wants a schema that was never used asks for a fresh one.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from servers.postgres import PostgresAddress

# All rows but those that say what the schema is; the ledger lets nothing be deleted unless retention asks.
_empty = """
do $$
declare
    t record;
begin
    perform set_config('perdure.retention', 'on', true);
    perform set_config('lock_timeout', '5s', true);
    for t in
        select c.oid::regclass as name from pg_class as c
        where c.relkind = 'r' and c.relnamespace = any (array[{schemas}]::regnamespace[])
        and c.relname not in ('meta', 'ledger_head')
    loop
        execute format('delete from %s', t.name);
    end loop;
    for t in
        select c.oid::regclass as name from pg_class as c
        where c.relname = 'ledger_head' and c.relnamespace = any (array[{schemas}]::regnamespace[])
    loop
        execute format('update %s set position = 0, recorded_at = 0', t.name);
    end loop;
end
$$
"""


class Namespaces:
    """Lends namespaces of one server; each is empty, and nobody else's until it is given back."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._free: list[str] = []

    def take(self) -> str:
        """An empty namespace, with its tables or without."""
        return self._free.pop() if self._free else f"test_{uuid.uuid4().hex[:12]}"

    def give_back(self, *names: str) -> None:
        """Empty them again. Whoever used them has let go of all connections."""
        # What was taken and never opened does not exist.
        schemas = ", ".join(f"to_regnamespace('perdure_{name}')" for name in names)
        self._address.execute(_empty.replace("{schemas}", schemas))
        self._free.extend(names)

    @contextmanager
    def lent(self) -> Iterator["Lent"]:
        """As many as one test asks for."""
        lent = Lent(self)
        try:
            yield lent
        finally:
            self.give_back(*lent.names)


class Lent:
    """Gives one namespace after the other."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self.names: list[str] = []

    def __call__(self) -> str:
        self.names.append(self._namespaces.take())
        return self.names[-1]
