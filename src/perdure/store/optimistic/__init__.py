"""Deciding away from the store: rows that are known here, and a proof that they still hold.

A server that many processes share must not hold locks while one of them thinks. So the shared handlers decide on rows
that this process has read or remembers, with no transaction open; then one call takes the locks, compares what the
decision rests on with what is there by then, and writes all of it or nothing. What was overtaken is read anew and
decided again.

    known.py     what this process knows of the store, each with the version it had
    needs.py     what a decision must know besides, and asks for
    tables.py    the rows of one batch, made of the rooms beside it (run_rows.py and its neighbours)
    changes.py   what a batch rests on, and what it writes
    placing.py   positions on the ledger, which only the store can give
    deciding.py  ops to decisions, one batch after the other

A backend brings two calls: `fetch` what is needed, and `commit` a change if what it rests on holds.
"""
