"""``server``: backup and restore of a server's data, a new token for its admin, prune."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeyard.benchmark_api.cli.output import emit_json, size
from edgeyard.benchmark_api.cli.program import AsJson, Reason, add_group, echo
from edgeyard.benchmark_api.cli.pruning import prune
from edgeyard.benchmark_api.cli.replaying import Config, DataDir, opened

if TYPE_CHECKING:
    from edgeyard.benchmark_api.backup import Manifest
    from edgeyard.benchmark_api.settings import Settings

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup, one file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")]
Content = Annotated[
    bool | None,
    typer.Option(
        "--files/--no-files",
        help="Include the files of users, or list them only; default: include them, unless they "
        "are in a bucket.",
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Read the whole backup and try its upgrade; change nothing.")
]
Programs = Annotated[
    Path | None,
    typer.Option(
        "--pg-programs",
        metavar="DIR",
        help="Folder of pg_dump and pg_restore; default: where they are found.",
    ),
]


def backup(
    file: File,
    force: Force = False,
    files: Content = None,
    pg_programs: Programs = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a backup of the server to FILE; the server may keep running.

    It holds the database, the keys of the data folder (webhook.key, admin.token, server.id) and the
    files of users. What a server also needs and the backup does not have, such as the file of the
    settings, is listed. FILE holds secrets: only its owner can read it.
    """
    from edgeyard.benchmark_api.backup import make_backup

    os.umask(0o077)
    made = make_backup(
        _settings(data_dir, config),
        file,
        datetime.now(UTC),
        config=config,
        force=force,
        with_content=files,
        programs=pg_programs,
    )
    if as_json:
        emit_json(_json(made))
        return
    echo(f"{file}: {_summary(made)}")
    if made.not_included:
        echo(f"not included: {', '.join(made.not_included)}", err=True)


def restore(
    file: File,
    check: Check = False,
    pg_programs: Programs = None,
    data_dir: DataDir = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a data folder, or a database of the settings, that is empty.

    Nothing is replaced: a database that is there is refused, whether newer or older. A restore that
    was interrupted goes on when it is run again. Benchmarks that the cluster runs and the backup
    does not know are adopted when the server starts.
    """
    from edgeyard.benchmark_api.backup import check_backup, restore_backup

    os.umask(0o077)  # as the server has it
    if check:
        manifest, missing = check_backup(file, pg_programs), []
    else:
        restored = restore_backup(_settings(data_dir, config), file, pg_programs)
        manifest, missing = restored.manifest, list(restored.missing)
    if as_json:
        emit_json({**_json(manifest), "checked_only": check, "missing": missing})
        return
    echo(f"{file}: {_summary(manifest)}; {'can be restored' if check else 'restored'}")
    if manifest.not_included:
        echo(f"not included: {', '.join(manifest.not_included)}", err=True)
    if missing:
        echo(
            f"edgeyard: {len(missing)} files of the list are not in the file store; benchmarks "
            "that need one of them fail",
            err=True,
        )


def admin_token(data_dir: DataDir = None, config: Config = None, reason: Reason = "") -> None:
    """Make a new token for the account admin, on the server's machine.

    For a token that was lost; the server may keep running. It is printed on stdout and not shown
    again. The account is made, enabled and an operator's again if it is not. Tokens that exist
    stay: revoke the lost one with the new one.
    """
    from edgeyard.benchmark_api.bootstrap import new_admin_token

    with opened(data_dir, config, error_status=1) as (store, _):
        token = new_admin_token(store, datetime.now(UTC), reason)
    echo(token)
    echo("save the token now, it is not shown again", err=True)


def _settings(data_dir: Path | None, config: Path | None) -> Settings:
    from edgeyard.benchmark_api.settings import Settings

    return Settings.load(config, data_dir=data_dir)


def _summary(made: Manifest) -> str:
    content = f"{made.content} files ({size(made.content_bytes)})"
    if made.listed:
        content += f", {made.listed} more are listed"
    return (
        f"{made.database} with schema {made.schema}, {content}, made {made.made_at:%Y-%m-%d %H:%M} "
        f"UTC by Edgeyard {made.edgeyard}"
    )


def _json(made: Manifest) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(made)
    del found["sha256"]
    return found


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = add_group(app, "server", "The server's own data.")
    group.command("backup")(backup)
    group.command("restore")(restore)
    group.command("admin-token")(admin_token)
    group.command("prune")(prune)
