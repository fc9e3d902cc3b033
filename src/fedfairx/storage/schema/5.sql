CREATE TABLE served_agents (
    name TEXT PRIMARY KEY, settings TEXT, created INTEGER NOT NULL, archived INTEGER
);
ALTER TABLE api_keys ADD COLUMN agents TEXT
