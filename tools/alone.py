"""Run a command while no other one runs that was started with the same file.

    python tools/alone.py FILE COMMAND [ARGUMENT ...]

The system keeps the lock as long as the command or what it started is alive, so that nothing is
left to clear away after a kill. It is file 9, which whoever goes on behind the command can close.
Needs nothing but Python, for it guards the installation of the rest.
"""

import fcntl
import os
import sys

LOCK = 9


def main() -> None:
    """Wait for the file, then become the command."""
    path, *command = sys.argv[1:]
    os.dup2(os.open(path, os.O_RDONLY), LOCK)
    try:
        fcntl.flock(LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another make in this folder.", file=sys.stderr, flush=True)
        fcntl.flock(LOCK, fcntl.LOCK_EX)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
