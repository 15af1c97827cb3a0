"""Series are watched: their changes, and the checks and charges that confirm these."""

import sqlalchemy as sa
from alembic import op

revision = "0071"
down_revision = "0070"

_UNDECIDED = sa.text("status IN ('confirming', 'suspected')")
_OF_EDGEYARD = sa.text("kind NOT IN ('benchmark', 'check')")
_TAGGED = (
    "UPDATE charges SET kind = 'check' WHERE EXISTS (SELECT 1 FROM benchmark_tags"
    " WHERE benchmark_tags.benchmark_id = charges.benchmark_id"
    " AND benchmark_tags.tag = 'edgeyard-check')"
)


def _key() -> list[sa.Column[str]]:
    return [
        sa.Column(name, sa.Text, nullable=False)
        for name in ("lineage", "user_id", "target_uid", "engine", "benchmark_type", "work")
    ]


def upgrade() -> None:
    """Add the tables; the watch begins with what ends from now on."""
    cursor = op.create_table(
        "series_cursor",
        sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seen_seq", sa.BigInteger, nullable=False),
    )
    last_seq = op.get_bind().execute(sa.text("SELECT last_seq FROM event_counter")).scalar()
    op.bulk_insert(cursor, [{"only": 1, "seen_seq": last_seq or 0}])
    op.create_table(
        "watched_series",
        sa.Column("series_id", sa.Text, primary_key=True),
        *_key(),
        sa.Column("due_since", sa.BigInteger),
        sa.Column("looked_at", sa.BigInteger),
        sa.Column("threshold", sa.Float, nullable=False),
        sa.Column("threshold_at", sa.BigInteger),
        sa.Column("alert_unconfirmed", sa.Boolean, nullable=False),
    )
    op.create_index("ix_watched_series_due_since", "watched_series", ["due_since"])
    op.create_index("ix_watched_series_looked_at", "watched_series", ["looked_at"])
    op.create_table(
        "series_changes",
        sa.Column("change_id", sa.Text, primary_key=True),
        sa.Column("series_id", sa.Text, nullable=False),
        *_key(),
        sa.Column("begin_id", sa.Text, nullable=False),
        sa.Column("before_id", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("worse", sa.Boolean, nullable=False),
        sa.Column("size", sa.Float, nullable=False),
        sa.Column("low", sa.Float, nullable=False),
        sa.Column("high", sa.Float, nullable=False),
        sa.Column("found_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("alert_id", sa.Text),
        sa.Column("check_ids", sa.Text, nullable=False),
        sa.Column("confirmed_size", sa.Float),
        sa.Column("confirmed_low", sa.Float),
        sa.Column("confirmed_high", sa.Float),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("blame", sa.Text, nullable=False),
        sa.Column("not_tested", sa.Text, nullable=False),
        sa.Column("reopened_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("by_user_id", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
    )
    for name, column in (
        ("series", "series_id"),
        ("user", "user_id"),
        ("target_uid", "target_uid"),
        ("status", "status"),
    ):
        op.create_index(
            f"ix_series_changes_{name}", "series_changes", [column, "found_at", "change_id"]
        )
    op.create_index("ix_series_changes_found_at", "series_changes", ["found_at", "change_id"])
    op.create_index("ix_series_changes_ended_at", "series_changes", ["ended_at"])
    op.create_index(
        "uq_series_changes_undecided",
        "series_changes",
        ["series_id"],
        unique=True,
        sqlite_where=_UNDECIDED,
        postgresql_where=_UNDECIDED,
    )
    op.add_column(
        "checks",
        sa.Column("recorded_ids", sa.Text, nullable=False, server_default=sa.text("''")),
    )
    op.add_column(
        "charges",
        sa.Column("kind", sa.Text, nullable=False, server_default=sa.text("'benchmark'")),
    )
    op.execute(_TAGGED)
    op.create_index(
        "ix_charges_kind",
        "charges",
        ["kind", "target_uid", "settled_at"],
        sqlite_where=_OF_EDGEYARD,
        postgresql_where=_OF_EDGEYARD,
    )
