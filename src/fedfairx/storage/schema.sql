-- The tables of a durable agent's database, in the SQL that SQLite and PostgreSQL share: `Database.types`
-- replaces the names of types. A change needs another VERSION in `schema.py`. The line above a table is its
-- description in docs/reference/database.md.
--
-- `agent` is an agent's number. `seq` numbers all steps of all agents, across tables. `seal` is a digest of
-- the row (`seals.py`). Times are microseconds since 1970.

-- the version of these tables
CREATE TABLE fedfairx (version INTEGER NOT NULL);

-- each agent: its name, its settings, and the noise key of a private one
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    settings TEXT NOT NULL,
    secret BLOB,
    seal BLOB NOT NULL
);

-- agents made without named features: the features that they got later, or a note that they have none
CREATE TABLE feature_schemas (agent INTEGER PRIMARY KEY, body TEXT NOT NULL);

-- the prefixes of decision ids, one for each opening
CREATE TABLE id_prefixes (
    id INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    prefix TEXT NOT NULL UNIQUE,
    first INTEGER NOT NULL,
    time INTEGER NOT NULL
);

-- each decision: contexts, policy, θ, the action taken and its propensity
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    time INTEGER NOT NULL,
    contexts BLOB NOT NULL,
    policy BLOB NOT NULL,
    theta BLOB NOT NULL,
    action INTEGER NOT NULL,
    drawn INTEGER NOT NULL,
    propensity REAL NOT NULL,
    mode TEXT NOT NULL DEFAULT 'live',
    baseline INTEGER,
    control_share REAL NOT NULL DEFAULT 0,
    model_version INTEGER NOT NULL DEFAULT 0,
    names TEXT,
    groups TEXT,
    key TEXT,
    digest TEXT,
    extra TEXT,
    slots TEXT,
    seal BLOB NOT NULL
);
CREATE UNIQUE INDEX decisions_key ON decisions (agent, key) WHERE key IS NOT NULL;

-- each reward, withdrawal and expiry; a replacing reward has a higher `turn`
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    decision INTEGER NOT NULL,
    time INTEGER NOT NULL,
    reward REAL,
    status TEXT NOT NULL DEFAULT 'rewarded',
    person TEXT,
    slot INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    seal BLOB NOT NULL,
    UNIQUE (decision, slot, turn)
);
CREATE INDEX outcomes_replaced ON outcomes (agent, seq) WHERE turn > 0;
CREATE INDEX outcomes_person ON outcomes (agent, person) WHERE person IS NOT NULL;

-- every other step of an agent: logs that it learnt, releases, messages, deletions, rollbacks
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body BLOB NOT NULL,
    seal BLOB NOT NULL
);
CREATE INDEX events_amending ON events (agent, seq) WHERE kind IN ('drop', 'delete', 'rollback');
CREATE INDEX events_learnt ON events (agent, seq) WHERE kind IN ('learn', 'learn weighted', 'learn named');

-- states of agents, from which opening replays the rest of the log
CREATE TABLE snapshots (
    agent INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    head BLOB NOT NULL,
    body BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (agent, seq)
);

-- private agents: the parameters of each run
CREATE TABLE ledgers (
    agent INTEGER NOT NULL,
    run INTEGER NOT NULL,
    body TEXT NOT NULL,
    place BLOB NOT NULL,
    PRIMARY KEY (agent, run)
);

-- private agents: the sums so far, and those of the open leaf
CREATE TABLE ledger_positions (
    agent INTEGER NOT NULL,
    run INTEGER NOT NULL,
    frozen INTEGER NOT NULL,
    total BLOB NOT NULL,
    total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL,
    leaf_count INTEGER NOT NULL,
    clipped INTEGER NOT NULL,
    PRIMARY KEY (agent, run)
);

-- private agents: which leaf a record with an id is in
CREATE TABLE ledger_records (
    agent INTEGER NOT NULL,
    run INTEGER NOT NULL,
    record TEXT NOT NULL,
    leaf INTEGER NOT NULL,
    PRIMARY KEY (agent, run, record)
);

-- private agents: every release, and whether it was sent
CREATE TABLE ledger_releases (
    agent INTEGER NOT NULL,
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    place BLOB NOT NULL,
    message BLOB,
    sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, run, number)
);

-- private agents: how many records of each person have entered
CREATE TABLE ledger_persons (
    agent INTEGER NOT NULL,
    run INTEGER NOT NULL,
    person TEXT NOT NULL,
    records INTEGER NOT NULL,
    PRIMARY KEY (agent, run, person)
);

-- members: the latest roster that was accepted, and why sending is halted
CREATE TABLE seen_rosters (
    agent INTEGER NOT NULL,
    federation TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    halted TEXT,
    PRIMARY KEY (agent, federation)
);

-- members: the latest release that was accepted from each peer
CREATE TABLE seen_releases (
    agent INTEGER NOT NULL,
    federation TEXT NOT NULL,
    sender TEXT NOT NULL,
    number INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation, sender)
);

-- secure aggregation: what this member has sent, opened and accepted
CREATE TABLE aggregation (name TEXT PRIMARY KEY, value BLOB NOT NULL);

-- API keys of a service, as hashes, with their roles and agents
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    created INTEGER NOT NULL,
    revoked INTEGER,
    agents TEXT
);

-- the agents that requests have made in a service
CREATE TABLE served_agents (
    name TEXT PRIMARY KEY,
    settings TEXT,
    created INTEGER NOT NULL,
    archived INTEGER
);
