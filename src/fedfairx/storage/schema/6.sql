CREATE INDEX outcomes_person ON outcomes (agent, person) WHERE person IS NOT NULL;
CREATE INDEX events_amending ON events (agent, seq) WHERE kind IN ('drop', 'delete', 'rollback');
CREATE INDEX events_learnt ON events (agent, seq) WHERE kind IN ('learn', 'learn weighted')
