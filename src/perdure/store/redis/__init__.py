"""The store on Redis and Valkey.

layout.py      what is kept where
rows.py        records and what is stored of them
lua/           the scripts: apply.lua compares and writes, ask.lua answers questions
writing.py     changes to the argument of apply
fetching.py    needs to questions
reads.py       all other reads
connecting.py  the way to the server, and whether it keeps what it is given
opening.py     the first words with it
store.py       the whole
"""
