"""Put a copy of a broker's file in its place, for a broker that does not run.

    python restore.py COPY FILE

Clients that live on know the last delivery that they got by its number. A broker with an older file
would give these numbers again, and clients would take new deliveries for old ones. So the restored
file begins a numbering of its own.
"""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path


def restore(copy: Path, file: Path) -> list[str]:
    """Copy the file, begin a new numbering, and return the clients that it shuts out."""
    if not copy.is_file():
        raise SystemExit(f"{copy} does not exist")
    if file.exists() or Path(f"{file}-wal").exists():
        raise SystemExit(f"{file} or its log exists: move both away first")
    with closing(sqlite3.connect(copy)) as source:
        if source.execute("PRAGMA application_id").fetchone() != (int.from_bytes(b"ccbb"),):
            raise SystemExit(f"{copy} is not a broker's file")
        if source.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise SystemExit(f"{copy} is damaged")
        file.touch(mode=0o600)
        if os.getuid() == 0:
            folder = file.parent.stat()
            os.chown(file, folder.st_uid, folder.st_gid)
        with closing(sqlite3.connect(file)) as target:
            source.backup(target)
            with target:
                target.execute("UPDATE about SET numbering = randomblob(8)")
            rows = target.execute("SELECT client FROM clients WHERE revoked = 1 ORDER BY client")
            return [client for (client,) in rows]


if __name__ == "__main__":
    try:
        revoked = restore(Path(sys.argv[1]), Path(sys.argv[2]))
    except sqlite3.Error as error:
        raise SystemExit(f"{sys.argv[1]} cannot be restored: {error}") from None
    print(f"restored; shut out in the copy: {', '.join(revoked) or 'nobody'}")
    print("say revoke or bar again for every client that was shut out later")
