"""Notes in a SQLite file: add, search, read as resources, delete after the user has agreed.

Run it with `toolwire run examples/notes.py`; NOTES_FILE says where the notes are kept (default: notes.db).
"""

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from toolwire import Context, Depends, Server, ToolError
from toolwire.errors import ResourceNotFound

server = Server("notes", version="1.0.0", instructions="Keeps short notes. Search before you add, to avoid doubles.")

LONGEST = 200
SCHEMA = """
CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    written TEXT NOT NULL DEFAULT (datetime('now'))
)
"""


@dataclass
class Note:
    id: int
    title: str
    body: str
    written: str


def database() -> Iterator[sqlite3.Connection]:
    """A connection for one call: committed when the tool succeeds, rolled back when it does not."""
    connection = sqlite3.connect(os.environ.get("NOTES_FILE", "notes.db"), check_same_thread=False)
    try:
        with connection:
            connection.execute(SCHEMA)
            yield connection
    finally:
        connection.close()


def find(db: sqlite3.Connection, note_id: int) -> Note:
    row = db.execute("SELECT id, title, body, written FROM note WHERE id = ?", (note_id,)).fetchone()
    if row is None:
        raise ResourceNotFound(f"There is no note {note_id}; search_notes finds those that there are.")
    return Note(*row)


@server.tool
def add_note(title: str, body: str, db: sqlite3.Connection = Depends(database)) -> Note:
    """Write a note down. Returns it with its number.

    Args:
        title: A few words.
        body: The text of the note.
    """
    cursor = db.execute("INSERT INTO note (title, body) VALUES (?, ?)", (title, body))
    assert cursor.lastrowid is not None
    server.notify_changed("resources")
    return find(db, cursor.lastrowid)


@server.tool(annotations={"readOnlyHint": True})
def search_notes(words: str = "", limit: int = 20, db: sqlite3.Connection = Depends(database)) -> list[Note]:
    """Find notes, the newest first. Returns every note that has all of the words.

    Args:
        words: Words that the title or the body must have; all notes when it is left out.
        limit: How many notes at most.
    """
    if len(words) > LONGEST:
        raise ToolError(f"Search for fewer words: at most {LONGEST} characters.")
    conditions = "".join(" AND (title LIKE ? OR body LIKE ?)" for _ in words.split())
    patterns = [f"%{word}%" for word in words.split() for _ in range(2)]
    found = db.execute(
        f"SELECT id, title, body, written FROM note WHERE 1{conditions} ORDER BY id DESC LIMIT ?",
        (*patterns, max(0, min(limit, 100))),
    )
    return [Note(*row) for row in found]


@server.tool(annotations={"destructiveHint": True})
async def delete_note(note_id: int, ctx: Context, db: sqlite3.Connection = Depends(database)) -> str:
    """Delete a note, if the user agrees. Returns what became of it.

    Args:
        note_id: The number of the note.
    """
    note = find(db, note_id)
    if ctx.supports("elicitation"):
        answer = await ctx.elicit(f"Delete the note {note.title!r}?", bool)
        if not (answer.accepted and answer.data):
            return "The note was kept."
    db.execute("DELETE FROM note WHERE id = ?", (note_id,))
    server.notify_changed("resources")
    return f"The note {note.title!r} was deleted."


@server.resource("note://{note_id}", mime_type="text/markdown")
def read_note(note_id: int, db: sqlite3.Connection = Depends(database)) -> str:
    """One note, as Markdown."""
    note = find(db, note_id)
    return f"# {note.title}\n\n{note.body}\n\n*{note.written}*\n"


@server.prompt
def summarise(topic: str) -> str:
    """Summarise the notes on a topic."""
    return (
        f"Search my notes for {topic!r} and summarise what they say in five sentences, with the numbers of the notes."
    )


if __name__ == "__main__":
    server.run()
