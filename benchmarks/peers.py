"""The bare servers that Edgeyard is compared with: the least code that does the one thing."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, Request
from fastapi.responses import FileResponse
from sqlalchemy import JSON, Column, Integer, MetaData, Table, create_engine, event

app = FastAPI()
_folder = Path(os.environ["PEER_FOLDER"])
_engine = create_engine(f"sqlite:///{_folder}/peer.db", connect_args={"timeout": 5})
_metadata = MetaData()
_rows = Table("rows", _metadata, Column("id", Integer, primary_key=True), Column("body", JSON))


@event.listens_for(_engine, "connect")
def _pragmas(connection, _record):  # type: ignore[no-untyped-def]
    """The same durability as Edgeyard's store."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}")


@event.listens_for(_engine, "begin")
def _begin(connection):  # type: ignore[no-untyped-def]
    connection.exec_driver_sql("BEGIN IMMEDIATE")


_metadata.create_all(_engine)


@app.get("/livez")
def livez() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/rows", status_code=202)
def insert(body: Annotated[dict[str, object], Body()]) -> dict[str, int]:
    """One JSON body, one inserted row, one commit."""
    with _engine.begin() as connection:
        key = connection.execute(_rows.insert().values(body=body)).inserted_primary_key
    return {"id": key[0] if key else 0}


@app.post("/files")
async def upload(request: Request) -> dict[str, str]:
    """Stream the raw body to disk, hashing it, and sync."""
    digest = hashlib.sha256()
    with (_folder / "upload").open("wb") as out:
        async for chunk in request.stream():
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return {"sha256": digest.hexdigest()}


@app.get("/files")
def download() -> FileResponse:
    return FileResponse(_folder / "upload")
