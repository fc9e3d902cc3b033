CREATE TABLE seen_rosters (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation)
);
CREATE TABLE seen_releases (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, sender TEXT NOT NULL,
    number INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation, sender)
)
