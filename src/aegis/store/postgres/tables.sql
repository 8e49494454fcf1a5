-- The tables, and how an older database becomes a current one. A version is never changed; a new one is added below it.

-- version 1
-- One row: the end of the log. Who holds it is the one writer.
CREATE TABLE aegis_control (
    id integer PRIMARY KEY CHECK (id = 0), size bigint NOT NULL, leaf bytea NOT NULL,
    frontier bytea NOT NULL, time bigint NOT NULL, epoch bigint NOT NULL
);
INSERT INTO aegis_control VALUES (0, 0, '', '', 0, 0);
CREATE TABLE aegis_leaf (
    idx bigint PRIMARY KEY, leaf_hash bytea NOT NULL, body bytea NOT NULL, receipt_id bytea NOT NULL,
    time bigint NOT NULL, kind bytea NOT NULL, principal bytea NOT NULL, agent bytea NOT NULL,
    session bytea NOT NULL, call_id bytea NOT NULL, tool bytea NOT NULL, decision bytea NOT NULL,
    reason bytea NOT NULL, parent bytea NOT NULL, call_key bigint
);
CREATE INDEX aegis_leaf_receipt ON aegis_leaf (receipt_id);
CREATE INDEX aegis_leaf_call ON aegis_leaf (call_key, idx) WHERE call_key IS NOT NULL;
CREATE INDEX aegis_leaf_time ON aegis_leaf (time, idx);
CREATE INDEX aegis_leaf_parent ON aegis_leaf (parent, idx);
CREATE INDEX aegis_leaf_call_id ON aegis_leaf (call_id, idx);
CREATE INDEX aegis_leaf_session ON aegis_leaf (session, idx);
CREATE INDEX aegis_leaf_tool ON aegis_leaf (tool, idx);
CREATE INDEX aegis_leaf_agent ON aegis_leaf (agent, idx);
CREATE INDEX aegis_leaf_reason ON aegis_leaf (reason, idx);
CREATE INDEX aegis_leaf_decision ON aegis_leaf (decision, idx);
CREATE INDEX aegis_leaf_kind ON aegis_leaf (kind, idx);
CREATE TABLE aegis_payload (
    idx bigint PRIMARY KEY, salt bytea NOT NULL, key bytea NOT NULL, body bytea NOT NULL
);
CREATE TABLE aegis_node (
    level integer NOT NULL, position bigint NOT NULL, hash bytea NOT NULL, PRIMARY KEY (level, position)
);
CREATE TABLE aegis_document (
    collection bytea NOT NULL, key bytea NOT NULL, version bigint NOT NULL, state bytea NOT NULL,
    body bytea NOT NULL, PRIMARY KEY (collection, key)
);
CREATE INDEX aegis_document_state ON aegis_document (collection, state, key) WHERE state <> '';
CREATE TABLE aegis_session (
    principal bytea NOT NULL, session bytea NOT NULL, agent bytea NOT NULL, first bigint NOT NULL,
    last bigint NOT NULL, count bigint NOT NULL, PRIMARY KEY (principal, session)
);
CREATE INDEX aegis_session_last ON aegis_session (last);

-- version 2
-- What authenticates the head and every document; empty until somebody with the home's keys has sealed them.
ALTER TABLE aegis_control ADD COLUMN seal bytea NOT NULL DEFAULT '';
