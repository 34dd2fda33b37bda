"""SQLite: a database in a file with a write-ahead log and two writers, one in memory."""

import multiprocessing
import sqlite3

ROWS = 50


def write(number: int) -> None:
    connection = sqlite3.connect("work.db", timeout=60)
    for row in range(ROWS):
        with connection:
            connection.execute("insert into lines values (?, ?)", (number, row))
    connection.close()


def main() -> None:
    connection = sqlite3.connect("work.db")
    assert connection.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    connection.execute("create table lines (writer, row)")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert connection.execute("select count(*) from lines").fetchone() == (2 * ROWS,)
    connection.execute("vacuum")
    connection.close()
    memory = sqlite3.connect(":memory:")
    memory.execute("create virtual table texts using fts5(text)")
    memory.execute("insert into texts values ('some words')")
    assert memory.execute("select * from texts where texts match 'words'").fetchall()
    print("all of it works")


if __name__ == "__main__":
    main()
