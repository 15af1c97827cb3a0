"""``shares``: links that show something to people without an account."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeyard.benchmark_api.cli import asking
from edgeyard.benchmark_api.cli.output import Column, Row, emit, emit_json, field, local_time, plain
from edgeyard.benchmark_api.cli.program import Output, Session, act, add_group, echo
from edgeyard.benchmark_api.schemas.answers import as_json
from edgeyard.errors import InvalidInput


def _what(row: Row) -> str:
    ids = row.get("benchmark_ids")
    if row.get("kind") == "comparison" and isinstance(ids, list):
        return f"comparison of {len(ids)}"
    return plain(row.get("campaign_id") or (ids[0] if isinstance(ids, list) and ids else ""))


_COLUMNS = (
    Column(title="SHARE", of=field("share_id"), whole=True),
    Column(title="SHOWS", of=_what),
    Column(title="ENDS", of=lambda row: local_time(row.get("expires_at")), whole=True),
    Column(title="OWNER", of=field("user_id"), from_width=110),
    Column(title="FOR", of=field("label"), always=False),
)


@act
def create(
    session: Session,
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="One benchmark; several make a comparison."),
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Id or name of a campaign.", metavar="ID")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="RFC 3339, or e.g. '+7 d'; default: in 30 days, at most in 365."),
    ] = None,
    label: Annotated[str, typer.Option(help="What it is for; only you see it.")] = "",
) -> None:
    """Make a link that shows results, read-only, to people without an account.

    Its address is printed once, on stdout. The page names no user.
    """
    named = benchmarks or []
    if bool(named) == (campaign is not None):
        raise InvalidInput.at("ID", "names not exactly one thing", "benchmarks, or --campaign")
    made = session.client.share(
        named[0] if len(named) == 1 else named or None,
        campaign=campaign,
        expires_at=asking.moment(expires, "--expires"),
        label=label,
    )
    if session.output is Output.JSON:
        emit_json(as_json(made))
    else:
        echo(plain(made.url))
        session.report(f"{made.share_id} ends {local_time(as_json(made).get('expires_at'))}")


def list_shares(session: Session) -> None:
    """List links that have not ended; operators see everybody's."""
    rows = [as_json(each) for each in session.client.shares()]
    emit(session.output, rows, _COLUMNS, "nothing is shared")


@act
def revoke(
    session: Session,
    share_id: Annotated[str, typer.Argument(metavar="SHARE", show_default=False)],
) -> None:
    """Revoke a link: its address is not found from now on."""
    session.client.revoke_share(share_id)
    session.report(f"{share_id} is revoked")


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    add_group(
        app,
        "shares",
        "Links that show results to people without an account.",
        {"list": list_shares, "create": create, "revoke": revoke},
    )
