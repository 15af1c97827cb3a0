"""The first schema: benchmarks and their life, files, accounts, the log, the lab."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_STATUSES = ("pending", "scheduled", "running", "completed", "failed", "cancelled", "expired")

# The ends of a life are for ever, whoever writes: a bug of ours, or a hand in the database.
_ENDS = {
    "benchmarks": ("status", "'completed', 'failed', 'cancelled', 'expired'"),
    "attempts": ("state", "'ended'"),
}


def upgrade() -> None:
    """Make the tables, their first rows, and the guards."""
    _make_tables()
    statuses = sa.table("status_counts", sa.column("status"), sa.column("stored"))
    op.bulk_insert(statuses, [{"status": status, "stored": 0} for status in _STATUSES])
    counter = sa.table("event_counter", sa.column("only"), sa.column("last_seq"))
    op.bulk_insert(counter, [{"only": 1, "last_seq": 0}])
    for table, (column, ends) in _ENDS.items():
        _guard(table, column, ends)


def _guard(table: str, column: str, ends: str) -> None:
    when = f"OLD.{column} IN ({ends}) AND NEW.{column} <> OLD.{column}"
    says = f"a {column} at its end never changes"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            f"CREATE TRIGGER guard_{table} BEFORE UPDATE OF {column} ON {table} "
            f"WHEN {when} BEGIN SELECT RAISE(ABORT, '{says}'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION guard_{table}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{says}' USING ERRCODE = 'check_violation'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER guard_{table} BEFORE UPDATE OF {column} ON {table} "
        f"FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION guard_{table}()"
    )


def _make_tables() -> None:
    op.create_table(
        "benchmarks",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("campaign_id", sa.Text(), nullable=True),
        sa.Column("submit_time", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("benchmark_type", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("target_uid", sa.Text(), nullable=True),
        sa.Column("waiting_reason", sa.Text(), nullable=True),
        sa.Column("waiting_sentence", sa.Text(), nullable=True),
        sa.Column("failure_category", sa.Text(), nullable=True),
        sa.Column("failure_sentence", sa.Text(), nullable=True),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("retry_of", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_benchmarks"),
    )
    op.create_index(
        "ix_benchmarks_campaign_id",
        "benchmarks",
        ["campaign_id", "status"],
        unique=False,
        sqlite_where=sa.text("campaign_id IS NOT NULL"),
        postgresql_where=sa.text("campaign_id IS NOT NULL"),
    )
    op.create_index(
        "ix_benchmarks_engine",
        "benchmarks",
        ["engine", "submit_time", "benchmark_id"],
        unique=False,
    )
    op.create_index(
        "ix_benchmarks_family",
        "benchmarks",
        ["family", "submit_time", "benchmark_id"],
        unique=False,
    )
    op.create_index(
        "ix_benchmarks_live",
        "benchmarks",
        ["status", "benchmark_id", "version"],
        unique=False,
        sqlite_where=sa.text("status IN ('pending', 'running', 'scheduled')"),
        postgresql_where=sa.text("status IN ('pending', 'running', 'scheduled')"),
    )
    op.create_index(
        "ix_benchmarks_model", "benchmarks", ["model", "submit_time", "benchmark_id"], unique=False
    )
    op.create_index(
        "ix_benchmarks_page", "benchmarks", ["submit_time", "benchmark_id"], unique=False
    )
    op.create_index(
        "ix_benchmarks_status",
        "benchmarks",
        ["status", "submit_time", "benchmark_id"],
        unique=False,
    )
    op.create_index(
        "ix_benchmarks_target_uid",
        "benchmarks",
        ["target_uid", "submit_time", "benchmark_id"],
        unique=False,
        sqlite_where=sa.text("target_uid IS NOT NULL"),
        postgresql_where=sa.text("target_uid IS NOT NULL"),
    )
    op.create_index(
        "ix_benchmarks_user", "benchmarks", ["user_id", "submit_time", "benchmark_id"], unique=False
    )
    op.create_index(
        "ix_benchmarks_user_status",
        "benchmarks",
        ["user_id", "status", "submit_time", "benchmark_id"],
        unique=False,
    )
    op.create_table(
        "campaigns",
        sa.Column("campaign_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("campaign_id", name="pk_campaigns"),
    )
    op.create_table(
        "event_counter",
        sa.Column("only", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("only", name="pk_event_counter"),
    )
    op.create_table(
        "events",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("benchmark_id", sa.Text(), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_index("ix_events_benchmark_id", "events", ["benchmark_id", "seq"], unique=False)
    op.create_table(
        "overrides",
        sa.Column("target_uid", sa.Text(), nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("target_uid", name="pk_overrides"),
    )
    op.create_table(
        "remembered",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "key", name="pk_remembered"),
    )
    op.create_index("ix_remembered_at", "remembered", ["at"], unique=False)
    op.create_table(
        "schedules",
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("next_fire", sa.BigInteger(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", name="pk_schedules"),
    )
    op.create_index("ix_schedules_next_fire", "schedules", ["next_fire"], unique=False)
    op.create_index("ix_schedules_user_id", "schedules", ["user_id"], unique=False)
    op.create_table(
        "status_counts",
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("status", name="pk_status_counts"),
    )
    op.create_table(
        "tokens",
        sa.Column("token_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token_id", name="pk_tokens"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "user_files",
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("file_id", name="pk_user_files"),
    )
    op.create_index("ix_user_files_created_at", "user_files", ["created_at"], unique=False)
    op.create_index(
        "ix_user_files_name", "user_files", ["user_id", "name", "created_at"], unique=False
    )
    op.create_index("ix_user_files_sha256", "user_files", ["sha256"], unique=False)
    op.create_index("ix_user_files_user", "user_files", ["user_id", "created_at"], unique=False)
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("max_priority", sa.Integer(), nullable=False),
        sa.Column("max_budget", sa.Float(), nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_users"),
    )
    op.create_table(
        "attempts",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("binding", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("target_uid", sa.Text(), nullable=True),
        sa.Column("allowed_uids", sa.Text(), nullable=False),
        sa.Column("upload_token_sha256", sa.Text(), nullable=True),
        sa.Column("queued_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("task_ended_at", sa.BigInteger(), nullable=True),
        sa.Column("task_failure_category", sa.Text(), nullable=True),
        sa.Column("task_failure_sentence", sa.Text(), nullable=True),
        sa.Column("result_at", sa.BigInteger(), nullable=True),
        sa.Column("counts", sa.Boolean(), nullable=False),
        sa.Column("stopping_category", sa.Text(), nullable=True),
        sa.Column("stopping_sentence", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("failure_category", sa.Text(), nullable=True),
        sa.Column("failure_sentence", sa.Text(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("hcl", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_attempts_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "number", name="pk_attempts"),
        sa.UniqueConstraint("job_id", name="uq_attempts_job_id"),
    )
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["benchmark_id"],
        unique=True,
        sqlite_where=sa.text("state <> 'ended'"),
        postgresql_where=sa.text("state <> 'ended'"),
    )
    op.create_table(
        "benchmark_files",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_benchmark_files_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "role", "position", name="pk_benchmark_files"),
    )
    op.create_index("ix_benchmark_files_sha256", "benchmark_files", ["sha256"], unique=False)
    op.create_table(
        "benchmark_tags",
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("submit_time", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_benchmark_tags_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("tag", "submit_time", "benchmark_id", name="pk_benchmark_tags"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "descriptions",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_descriptions_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_descriptions"),
    )
    op.create_table(
        "explanations",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_explanations_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", name="pk_explanations"),
    )
    op.create_table(
        "grants",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_grants_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("name", name="pk_grants"),
    )
    op.create_index("ix_grants_attempt", "grants", ["benchmark_id", "attempt"], unique=False)
    op.create_index("ix_grants_sha256", "grants", ["sha256"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("target_uid", sa.Text(), nullable=True),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("benchmark_type", sa.Text(), nullable=False),
        sa.Column("model_sha256", sa.Text(), nullable=True),
        sa.Column("wait_s", sa.Float(), nullable=True),
        sa.Column("run_s", sa.Float(), nullable=True),
        sa.Column("failure_category", sa.Text(), nullable=True),
        sa.Column("latency_p50_ms", sa.Float(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_outcomes_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "attempt", name="pk_outcomes"),
    )
    op.create_index("ix_outcomes_ended_at", "outcomes", ["ended_at"], unique=False)
    op.create_table(
        "reports",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_reports_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "attempt", name="pk_reports"),
    )
    op.create_table(
        "result_files",
        sa.Column("benchmark_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.benchmark_id"], name="fk_result_files_benchmark_id"
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "attempt", "name", name="pk_result_files"),
    )
    op.create_index("ix_result_files_sha256", "result_files", ["sha256"], unique=False)
