"""Secure aggregation: members learn the sum of their rows, and nobody learns one member's row.

Read the files in this order:

    shares.py        additive shares of a row modulo 2^64, and their encryption to an opener
    epoch.py         what all members of an epoch have agreed on, and the labels that bind keys to it
    messages.py      the five signed messages
    records.py       where state is stored: what must survive a crash, and what must survive a backup
    total.py         the total of all openers' partial sums
    settlement.py    the end of an epoch: which rounds were shown, and the total that stays
    agreement.py     how members agree on an epoch, whatever the convener does
    sender.py        a member's rows: one content for a round, recorded before it is sent
    opener.py        an opener's partial sums: each round once, for a complete set
    participant.py   all of it for one member: messages in, messages out

There is no transport in this package and no noise. Rows are integers, and the noise that must be in them is
the caller's. docs/explanation/secure-aggregation.md says what each party learns.
"""
