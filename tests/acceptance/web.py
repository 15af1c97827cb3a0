"""A file server of somebody else."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """A foreign file server."""
    handler = functools.partial(_Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_address[1]}"
        web.shutdown()
        thread.join()
