CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, secret BLOB
);
CREATE TABLE federations (id INTEGER PRIMARY KEY, settings TEXT NOT NULL, progress TEXT NOT NULL);
CREATE TABLE incarnations (
    life INTEGER PRIMARY KEY, agent INTEGER NOT NULL, origin TEXT NOT NULL UNIQUE, first INTEGER NOT NULL,
    time INTEGER NOT NULL
);
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    contexts BLOB NOT NULL, policy BLOB NOT NULL, theta BLOB NOT NULL,
    action INTEGER NOT NULL, drawn INTEGER NOT NULL, probability REAL NOT NULL,
    mode TEXT NOT NULL, names TEXT, groups TEXT, key TEXT, digest TEXT, extra TEXT, seal INTEGER NOT NULL
);
CREATE UNIQUE INDEX decisions_key ON decisions (agent, key) WHERE key IS NOT NULL;
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, decision INTEGER NOT NULL UNIQUE, time INTEGER NOT NULL,
    status TEXT NOT NULL, reward REAL, person TEXT, seal INTEGER NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    kind TEXT NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL
);
CREATE TABLE snapshots (
    agent INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL,
    PRIMARY KEY (agent, seq)
);
CREATE TABLE ledgers (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, body TEXT NOT NULL, place BLOB NOT NULL,
    PRIMARY KEY (agent, run)
);
CREATE TABLE ledger_positions (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, frozen INTEGER NOT NULL,
    total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL,
    PRIMARY KEY (agent, run)
);
CREATE TABLE ledger_records (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, record TEXT NOT NULL, leaf INTEGER NOT NULL,
    PRIMARY KEY (agent, run, record)
);
CREATE TABLE ledger_releases (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, number INTEGER NOT NULL,
    place BLOB NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, run, number)
);
CREATE TABLE ledger_persons (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, person TEXT NOT NULL, records INTEGER NOT NULL,
    PRIMARY KEY (agent, run, person)
);
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
    created INTEGER NOT NULL, revoked INTEGER
)
