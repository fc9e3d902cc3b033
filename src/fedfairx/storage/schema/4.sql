DROP INDEX decisions_key;
ALTER TABLE agents RENAME TO old_agents;
ALTER TABLE decisions RENAME TO old_decisions;
ALTER TABLE outcomes RENAME TO old_outcomes;
ALTER TABLE events RENAME TO old_events;
ALTER TABLE snapshots RENAME TO old_snapshots;
ALTER TABLE meanings RENAME TO feature_schemas;
ALTER TABLE incarnations RENAME TO id_prefixes;
ALTER TABLE id_prefixes RENAME COLUMN life TO id;
ALTER TABLE id_prefixes RENAME COLUMN origin TO prefix;
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
