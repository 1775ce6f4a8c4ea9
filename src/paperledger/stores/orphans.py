"""No process goes on measuring for a run that was killed."""

import os
import threading
import time

_WATCHED: set[int] = set()


def end_with(parent: int) -> None:
    """End this process within a second or so of its parent, however that ends."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if os.getppid() == parent and parent not in _WATCHED:
        _WATCHED.add(parent)
        threading.Thread(target=watch, daemon=True).start()
