"""Secure aggregation: members learn the sum of their rows, and nobody learns one member's row.

Read the files in this order:

    shares.py     additive shares of a row modulo 2^64, and their encryption to an opener
    epoch.py      what all members of an epoch have agreed on, and the labels that bind keys to it
    messages.py   the five signed messages
    rows.py       a member's row as its openers get it, and an opener's partial sum
    total.py      the total of all openers' partial sums
    records.py    what is stored: one record in the database, and one vault outside of all backups
    machine.py    a member as a state and a transition: events in, state and effects out

There is no transport in this package and no noise. Rows are integers, and the noise that must be in them is
the caller's. docs/explanation/secure-aggregation.md says what each party learns, and proves it.
"""
