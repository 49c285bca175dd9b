"""Items, who has which, and what people said: one SQLite file that several raters and processes share.

    items     what is to be judged, `raters` answers wanted of each
    leases    an item that a rater has open, until a time; it counts as an answer that is coming
    answers   one an item and rater; a later one takes its place
    aside     what a rater put off
    log       every answer ever given, in order

An answer is on disk (WAL, synchronous FULL) before `save` returns, and saving the same answer again changes nothing: a
page that did not hear back may send it again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vrjax.errors import InputError, RunError

Task = Literal["adjudicate", "audit", "segments", "verify", "meta"]
TASKS: tuple[Task, ...] = get_args(Task)
APPLICATION = 0x76726A78  # "vrjx"
SCHEMA = 1
TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE items (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, name TEXT NOT NULL, raters INTEGER NOT NULL CHECK (raters >= 1),
    payload TEXT NOT NULL, UNIQUE (task, name));
CREATE TABLE leases (
    item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, rater TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (item, rater));
CREATE TABLE answers (
    item INTEGER NOT NULL REFERENCES items, rater TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (item, rater));
CREATE TABLE aside (
    item INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, rater TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (item, rater));
CREATE TABLE log (id INTEGER PRIMARY KEY, at REAL NOT NULL, task TEXT NOT NULL, name TEXT NOT NULL,
    rater TEXT NOT NULL, body TEXT NOT NULL);
"""
# Places of an item that others hold: answers given and leases that still run.
TAKEN = """(SELECT count(*) FROM answers a WHERE a.item = i.id AND a.rater <> :rater)
    + (SELECT count(*) FROM leases l WHERE l.item = i.id AND l.rater <> :rater AND l.until > :now)"""
# Whoever rated an item is not its meta-reviewer.
IMPARTIAL = """(i.task <> 'meta' OR NOT EXISTS (SELECT 1 FROM answers a JOIN items o ON o.id = a.item
    WHERE o.task = 'verify' AND o.name = i.name AND a.rater = :rater))"""

META_DECIDED = "SELECT 1 FROM answers a JOIN items i ON i.id = a.item WHERE i.task = 'meta' AND i.name = ?"


class Taken(InputError):
    """The item has gone to others in the meantime, or is decided."""


@dataclass(frozen=True)
class Item:
    """One thing to judge. payload: what is shown (`data_tools.review.items`)."""

    id: int
    task: Task
    name: str
    raters: int
    payload: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """at: seconds since 1970."""

    rater: str
    body: dict[str, Any]
    at: float


class ReviewStore:
    """A review database, made where there is none.

    lease_s: seconds for which an opened item is its rater's; `renew` starts them anew. clock: for tests.
    Raises InputError where the file is no review database, or one of another schema version.
    """

    def __init__(
        self, path: Path, lease_s: float = 1800.0, clock: Callable[[], float] = time.time, create: bool = True
    ) -> None:
        self.path, self.lease_s, self._clock = path, lease_s, clock
        if not create and not path.is_file():
            raise InputError(f"{path}: is not there. Make it with `vrjax-data review add`.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as db:
                self._check_or_make(db)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: is no review database ({error}). Name another file.") from error
        except OSError as error:
            raise RunError(f"{path}: cannot be opened ({error.strerror}). Check the folder.") from error

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = FULL")
        return db

    def _check_or_make(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application and not version:
            for statement in TABLES.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode = WAL")
            return
        db.execute("ROLLBACK")
        if application != APPLICATION:
            raise InputError(f"{self.path}: is a database of another program. Name another file.")
        if version != SCHEMA:
            raise InputError(
                f"{self.path}: has schema version {version}, and this program reads {SCHEMA}. Export it with the "
                "version of vrjax that made it, and add the rest to a new file."
            )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that no other writer overlaps."""
        try:
            with closing(self._connect()) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise RunError(f"{self.path}: cannot be written ({error}). Check the disk.") from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as db:
            yield db

    # What is to be judged

    def add(self, task: Task, items: Iterable[tuple[str, Mapping[str, Any]]], raters: int = 1) -> dict[str, int]:
        """Take items (name, payload) in; all or none. Returns how many were new, changed, and there already.

        Raises InputError where a name comes twice, or an item that was answered comes back with other content.
        """
        counts = {"new": 0, "changed": 0, "known": 0}
        seen: set[str] = set()
        with self._writing() as db:
            for name, payload in items:
                if name in seen:
                    raise InputError(f"the item {name!r} comes twice. Keep one of the two.")
                seen.add(name)
                _check_name(name)
                text = json.dumps(payload, sort_keys=True)
                old = db.execute("SELECT id, payload FROM items WHERE task = ? AND name = ?", (task, name)).fetchone()
                if old is None:
                    db.execute(
                        "INSERT INTO items (task, name, raters, payload) VALUES (?, ?, ?, ?)",
                        (task, name, raters, text),
                    )
                    counts["new"] += 1
                elif old["payload"] == text:
                    counts["known"] += 1
                elif db.execute("SELECT 1 FROM answers WHERE item = ?", (old["id"],)).fetchone():
                    raise InputError(
                        f"{self.path}: {name!r} was answered, and now comes with other content. Start a new database."
                    )
                else:
                    db.execute("UPDATE items SET payload = ? WHERE id = ?", (text, old["id"]))
                    counts["changed"] += 1
        return counts

    def items(self, task: Task | None = None) -> list[Item]:
        with self._reading() as db:
            rows = db.execute("SELECT * FROM items WHERE :task IS NULL OR task = :task ORDER BY id", {"task": task})
            return [_item(row) for row in rows]

    def item(self, number: int) -> Item:
        """Raises InputError for a number that no item has."""
        with self._reading() as db:
            return self._one(db, number)

    def _one(self, db: sqlite3.Connection, number: int) -> Item:
        row = db.execute("SELECT * FROM items WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise InputError(f"{self.path}: there is no item {number}. Reload the page.")
        return _item(row)

    def setting(self, name: str, value: Any = None) -> Any:
        """A setting, kept in the file; with a value it is set."""
        if value is not None:
            with self._writing() as db:
                db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))
        with self._reading() as db:
            row = db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row["value"])

    # Who has what

    def next_item(self, task: Task, rater: str) -> Item | None:
        """An item for a rater: the one that is open, else one with a free place, put-off ones last; None where none is
        left. It is the rater's until the lease runs out."""
        with self._writing() as db:
            values = {"task": task, "rater": rater, "now": self._clock()}
            row = db.execute(
                f"""SELECT i.* FROM items i
                LEFT JOIN leases own ON own.item = i.id AND own.rater = :rater
                LEFT JOIN aside ON aside.item = i.id AND aside.rater = :rater
                WHERE i.task = :task AND {TAKEN} < i.raters AND {IMPARTIAL}
                AND NOT EXISTS (SELECT 1 FROM answers a WHERE a.item = i.id AND a.rater = :rater)
                ORDER BY own.item IS NULL, aside.item IS NOT NULL, aside.at, i.id LIMIT 1""",
                values,
            ).fetchone()
            if row is None:
                return None
            self._lease(db, row["id"], rater)
            return _item(row)

    def _lease(self, db: sqlite3.Connection, number: int, rater: str) -> None:
        db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (number, rater, self._clock() + self.lease_s))

    def renew(self, number: int, rater: str) -> None:
        """Keep an opened item. Raises Taken where its lease ran out and others have it."""
        with self._writing() as db:
            self._check_free(db, self._one(db, number), rater)
            self._lease(db, number, rater)

    def put_aside(self, number: int, rater: str) -> None:
        """Give an item back; its rater gets it again after all others."""
        with self._writing() as db:
            self._one(db, number)
            db.execute("DELETE FROM leases WHERE item = ? AND rater = ?", (number, rater))
            db.execute("INSERT OR REPLACE INTO aside VALUES (?, ?, ?)", (number, rater, self._clock()))

    def _check_free(self, db: sqlite3.Connection, item: Item, rater: str) -> None:
        values = {"id": item.id, "rater": rater, "now": self._clock()}
        if not db.execute(f"SELECT {IMPARTIAL} FROM items i WHERE i.id = :id", values).fetchone()[0]:
            raise Taken(f"{item.name}: you rated it, so somebody else is its meta-reviewer. Go on with the next item.")
        taken = db.execute(f"SELECT {TAKEN} FROM items i WHERE i.id = :id", values).fetchone()[0]
        if taken >= item.raters:
            raise Taken(f"{item.name}: was open too long and has gone to somebody else. Go on with the next item.")

    # What people said

    def save(self, number: int, rater: str, body: Mapping[str, Any]) -> bool:
        """Keep an answer, or change the rater's own; False where it is there already. body: checked by its form.

        Raises InputError for an unknown item, Taken where all places went to others or a meta-reviewer has decided.
        """
        text = json.dumps(body, sort_keys=True)
        with self._writing() as db:
            item = self._one(db, number)
            old = db.execute("SELECT body FROM answers WHERE item = ? AND rater = ?", (number, rater)).fetchone()
            if old is not None and old["body"] == text:
                return False
            if old is None:
                self._check_free(db, item, rater)
            elif item.task == "verify" and db.execute(META_DECIDED, (item.name,)).fetchone():
                raise Taken(f"{item.name}: a meta-reviewer has decided on these ratings. They stay as they are.")
            now = self._clock()
            db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (number, rater, text, now))
            db.execute("DELETE FROM leases WHERE item = ? AND rater = ?", (number, rater))
            db.execute("DELETE FROM aside WHERE item = ? AND rater = ?", (number, rater))
            db.execute(
                "INSERT INTO log (at, task, name, rater, body) VALUES (?, ?, ?, ?, ?)",
                (now, item.task, item.name, rater, text),
            )
            if item.task == "verify":
                self._send_to_meta(db, item)
        return True

    def _send_to_meta(self, db: sqlite3.Connection, item: Item) -> None:
        """An item with all its ratings, of which one is `low_at` or less, goes to a meta-reviewer."""
        found = [json.loads(row["body"]) for row in db.execute("SELECT body FROM answers WHERE item = ?", (item.id,))]
        setting = db.execute("SELECT value FROM settings WHERE name = 'low_at'").fetchone()
        low_at = LOW_AT if setting is None else json.loads(setting["value"])
        values = [value for body in found for side in body["ratings"].values() for value in side.values()]
        if len(found) >= item.raters and min(values) <= low_at:
            db.execute(
                "INSERT OR IGNORE INTO items (task, name, raters, payload) VALUES ('meta', ?, 1, ?)",
                (item.name, json.dumps(item.payload, sort_keys=True)),
            )
        else:
            db.execute("DELETE FROM items WHERE task = 'meta' AND name = ?", (item.name,))

    def answer(self, number: int, rater: str) -> Answer | None:
        """The rater's own answer."""
        return next((one for one in self.answers_of(number) if one.rater == rater), None)

    def answers_of(self, number: int) -> list[Answer]:
        with self._reading() as db:
            return [_answer(row) for row in db.execute("SELECT * FROM answers WHERE item = ? ORDER BY at", (number,))]

    def answered(self, task: Task, rater: str) -> list[int]:
        """Items of a task that a rater answered, the latest first."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT i.id FROM items i JOIN answers a ON a.item = i.id WHERE i.task = ? AND a.rater = ? "
                "ORDER BY a.at DESC",
                (task, rater),
            )
            return [row["id"] for row in rows]

    def answers(self, task: Task) -> list[tuple[Item, list[Answer]]]:
        """Every item of a task with its answers, in one state of the file."""
        with self._reading() as db:
            db.execute("BEGIN")
            items = [_item(row) for row in db.execute("SELECT * FROM items WHERE task = ? ORDER BY id", (task,))]
            found: dict[int, list[Answer]] = {item.id: [] for item in items}
            for row in db.execute("SELECT * FROM answers ORDER BY at, rater"):
                if row["item"] in found:
                    found[row["item"]].append(_answer(row))
            return [(item, found[item.id]) for item in items]

    def log(self) -> list[dict[str, Any]]:
        """Every answer ever given: {at, task, name, rater, answer}."""
        with self._reading() as db:
            rows = db.execute("SELECT at, task, name, rater, body FROM log ORDER BY id").fetchall()
        return [
            {**{key: row[key] for key in ("at", "task", "name", "rater")}, "answer": json.loads(row["body"])}
            for row in rows
        ]

    def progress(self) -> dict[str, dict[str, Any]]:
        """A task that has items: items, how many have all their answers, and answers by rater."""
        with self._reading() as db:
            rows = db.execute(
                """SELECT i.task, count(*) AS items,
                sum((SELECT count(*) FROM answers a WHERE a.item = i.id) >= i.raters) AS done
                FROM items i GROUP BY i.task"""
            ).fetchall()
            by = db.execute(
                "SELECT i.task, a.rater, count(*) AS n FROM answers a JOIN items i ON i.id = a.item GROUP BY 1, 2"
            ).fetchall()
        found = {row["task"]: {"items": row["items"], "done": row["done"], "by_rater": {}} for row in rows}
        for row in by:
            found[row["task"]]["by_rater"][row["rater"]] = row["n"]
        return {task: found[task] for task in TASKS if task in found}


LOW_AT = 2  # a rating of so much or less calls a meta-reviewer


def _check_name(name: str) -> None:
    """A name must be one that a file can hold."""
    try:
        fine = bool(name.strip()) and bool(name.encode())
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise InputError(f"{name!a} cannot name an item. Correct the id.")


def _item(row: sqlite3.Row) -> Item:
    return Item(row["id"], row["task"], row["name"], row["raters"], json.loads(row["payload"]))


def _answer(row: sqlite3.Row) -> Answer:
    return Answer(row["rater"], json.loads(row["body"]), row["at"])
