-- The tables, and how an older file becomes a current one. A version is never changed; a new one is added below it.

-- version 1
-- One row: the end of the log.
CREATE TABLE head (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    size INTEGER NOT NULL, leaf BLOB NOT NULL, frontier BLOB NOT NULL,
    time INTEGER NOT NULL, epoch INTEGER NOT NULL
) STRICT;
INSERT INTO head VALUES (0, 0, x'', x'', 0, 0);
-- `call_key` is set for decisions alone; the leading half is the session's, so that the
-- entries of a session share pages of the index.
CREATE TABLE leaf (
    idx INTEGER PRIMARY KEY,
    leaf_hash BLOB NOT NULL, receipt_id TEXT NOT NULL, time INTEGER NOT NULL,
    kind TEXT NOT NULL, principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
    parent TEXT NOT NULL, call_key INTEGER, body BLOB NOT NULL
) STRICT;
CREATE INDEX leaf_call ON leaf (call_key) WHERE call_key IS NOT NULL;
CREATE INDEX leaf_receipt ON leaf (receipt_id);
CREATE TABLE payload (
    idx INTEGER PRIMARY KEY, salt BLOB NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE node (
    level INTEGER NOT NULL, position INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (level, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE document (
    collection TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (collection, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_state ON document (collection, state, key) WHERE state <> '';
-- The search index. It is filled by those who search, up to `indexed`; appending never waits for it.
CREATE TABLE term (
    term INTEGER NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (term, idx)
) STRICT, WITHOUT ROWID;
CREATE TABLE session (
    principal TEXT NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (principal, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_last ON session (last);
CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 0), indexed INTEGER NOT NULL) STRICT;
INSERT INTO progress VALUES (0, 0);

-- version 2
-- Everything that belongs to a leaf stands in its row, so that a commit writes few pages. `frontier` is
-- set in the last row of a commit; with it the last row of all is the end of the log. What can be large
-- stands last.
CREATE TABLE leaf_of_2 (
    idx INTEGER PRIMARY KEY,
    leaf_hash BLOB NOT NULL, receipt_id TEXT NOT NULL, time INTEGER NOT NULL,
    kind TEXT NOT NULL, principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    call_id TEXT NOT NULL, tool TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
    parent TEXT NOT NULL, call_key INTEGER, frontier BLOB, body BLOB NOT NULL,
    salt BLOB, key BLOB, payload BLOB
) STRICT;
INSERT INTO leaf_of_2
    SELECT l.idx, l.leaf_hash, l.receipt_id, l.time, l.kind, l.principal, l.agent, l.session, l.call_id,
        l.tool, l.decision, l.reason, l.parent, l.call_key, iif(l.idx = h.size - 1, h.frontier, NULL),
        l.body, p.salt, p.key, p.body
    FROM head h CROSS JOIN leaf l LEFT JOIN payload p ON p.idx = l.idx;
-- The only row that is not of a leaf: it counts control changes.
CREATE TABLE control (id INTEGER PRIMARY KEY CHECK (id = 0), epoch INTEGER NOT NULL) STRICT;
INSERT INTO control SELECT 0, epoch FROM head;
DROP TABLE payload;
DROP TABLE head;
DROP TABLE leaf;
ALTER TABLE leaf_of_2 RENAME TO leaf;
CREATE INDEX leaf_call ON leaf (call_key) WHERE call_key IS NOT NULL;
CREATE INDEX leaf_receipt ON leaf (receipt_id);

-- version 3
-- What authenticates the head and every document; empty until somebody with the home's keys has sealed them.
ALTER TABLE control ADD COLUMN seal BLOB NOT NULL DEFAULT x'';

-- version 4
-- The seal stands in the last row of a commit too, so that a commit writes no page besides those of its rows;
-- the one in `control` is that of an empty log.
ALTER TABLE leaf ADD COLUMN seal BLOB;
UPDATE leaf SET seal = (SELECT seal FROM control)
    WHERE idx = (SELECT max(idx) FROM leaf) AND frontier IS NOT NULL;
