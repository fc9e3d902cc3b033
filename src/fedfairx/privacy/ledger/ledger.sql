-- Tables of a ledger file, and triggers that keep releases and records append-only, whoever writes. Records of
-- the open leaf, which are in no release, may leave with it for another run.
-- REPLACE removes rows without firing a DELETE trigger, so existing rows are guarded on INSERT too.
CREATE TABLE parameters (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL, place BLOB NOT NULL);
CREATE TABLE records (record TEXT PRIMARY KEY, leaf INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    frozen INTEGER NOT NULL, total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL
);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, place BLOB NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0
);
CREATE TRIGGER one_content BEFORE UPDATE ON releases WHEN OLD.number != NEW.number OR OLD.place != NEW.place OR OLD.sent > NEW.sent OR (OLD.message IS NOT NULL AND OLD.message IS NOT NEW.message) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_content'); END;
CREATE TRIGGER one_release BEFORE INSERT ON releases WHEN EXISTS (SELECT 1 FROM releases WHERE number = NEW.number) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_release'); END;
CREATE TRIGGER releases_stay BEFORE DELETE ON releases WHEN 1 BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: releases_stay'); END;
CREATE TRIGGER one_leaf BEFORE UPDATE ON records WHEN 1 BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_leaf'); END;
CREATE TRIGGER one_record BEFORE INSERT ON records WHEN EXISTS (SELECT 1 FROM records WHERE record = NEW.record) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_record'); END;
CREATE TRIGGER records_stay BEFORE DELETE ON records WHEN OLD.leaf <= (SELECT frozen FROM position) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: records_stay'); END;
CREATE TRIGGER one_run BEFORE UPDATE ON parameters WHEN 1 BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_run'); END;
CREATE TRIGGER one_parameters BEFORE INSERT ON parameters WHEN EXISTS (SELECT 1 FROM parameters) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: one_parameters'); END;
CREATE TRIGGER parameters_stay BEFORE DELETE ON parameters WHEN 1 BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: parameters_stay'); END;
CREATE TRIGGER onwards BEFORE UPDATE ON position WHEN NEW.frozen < OLD.frozen BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: onwards'); END;
CREATE TRIGGER onwards_too BEFORE INSERT ON position WHEN EXISTS (SELECT 1 FROM position WHERE frozen > NEW.frozen) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: onwards_too'); END;
CREATE TRIGGER position_stays BEFORE DELETE ON position WHEN 1 BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: position_stays'); END;
