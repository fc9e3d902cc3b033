CREATE TABLE federations (id INTEGER PRIMARY KEY, settings TEXT NOT NULL, progress TEXT NOT NULL);
CREATE TABLE "id_prefixes" (
    id INTEGER PRIMARY KEY, agent INTEGER NOT NULL, prefix TEXT NOT NULL UNIQUE, first INTEGER NOT NULL,
    time INTEGER NOT NULL
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
);
CREATE TABLE "feature_schemas" (agent INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE seen_rosters (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation)
);
CREATE TABLE seen_releases (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, sender TEXT NOT NULL,
    number INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation, sender)
);
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, secret BLOB,
    seal BLOB NOT NULL
);
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    contexts BLOB NOT NULL, policy BLOB NOT NULL, theta BLOB NOT NULL,
    action INTEGER NOT NULL, drawn INTEGER NOT NULL, propensity REAL NOT NULL,
    mode TEXT NOT NULL DEFAULT 'live', baseline INTEGER, control_share REAL NOT NULL DEFAULT 0,
    model_version INTEGER NOT NULL DEFAULT 0,
    names TEXT, groups TEXT, key TEXT, digest TEXT, extra TEXT, slots TEXT, seal BLOB NOT NULL
);
CREATE UNIQUE INDEX decisions_key ON decisions (agent, key) WHERE key IS NOT NULL;
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, decision INTEGER NOT NULL, time INTEGER NOT NULL,
    reward REAL, status TEXT NOT NULL DEFAULT 'rewarded', person TEXT, slot INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0, seal BLOB NOT NULL, UNIQUE (decision, slot, turn)
);
CREATE INDEX outcomes_replaced ON outcomes (agent, seq) WHERE turn > 0;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    kind TEXT NOT NULL, body BLOB NOT NULL, seal BLOB NOT NULL
);
CREATE TABLE snapshots (
    agent INTEGER NOT NULL, seq INTEGER NOT NULL, head BLOB NOT NULL, body BLOB NOT NULL, seal BLOB NOT NULL,
    PRIMARY KEY (agent, seq)
)
