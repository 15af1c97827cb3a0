"""The tables of a new database; a migration brings each change to those that exist.

What is listed, filtered and counted lies in narrow columns of ``benchmarks``; the job description
is in a second table and is read with it, but no list or count scans it. Times are microseconds
since 1970 in UTC: exact, ordered and the same in both databases.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    event,
    text,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class CreditAmount(TypeDecorator[float]):
    """Credits as whole millionths, so that sums are exact."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:
        """Convert to the nearest millionth."""
        return None if value is None else round(value * 1_000_000)

    def process_result_value(self, value: int | None, dialect: Dialect) -> float | None:
        """Convert to credits."""
        return None if value is None else value / 1_000_000


class UtcTime(TypeDecorator[datetime]):
    """An aware time as whole microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Raises TypeError for a time without a zone."""
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Convert to a time in UTC."""
        return None if value is None else _EPOCH + value * _MICROSECOND


class SpaceSeparated(TypeDecorator[tuple[str, ...]]):
    """A list of words as one text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        """Join the words."""
        return None if value is None else " ".join(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        """Split the text."""
        return None if value is None else tuple(value.split())


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

LIVE_STATUSES = "status IN ('pending', 'running', 'scheduled')"
"""The condition of the partial index, literally: SQLite uses the index only for this text."""

LIVE_STATES = "state <> 'ended'"
"""The same condition for attempts, literally."""

HOLDS_BOARD = "state <> 'ended' AND binding = 'strict'"
"""Attempts whose board is decided. That of a loose or filtered one is the cluster's choice: until
the cluster reports it, the recorded board is an assumption, which others may share."""


IS_POINT = "status = 'completed' AND series IS NOT NULL AND target_uid IS NOT NULL"
"""As `LIVE_STATUSES`: benchmarks that are points of a series."""

IS_UNDECIDED = "status IN ('confirming', 'suspected')"
"""As `LIVE_STATUSES`: changes of series that nothing has confirmed or refuted yet; of each series
one at most."""

IS_OF_EDGEYARD = "kind NOT IN ('benchmark', 'check')"
"""As `LIVE_STATUSES`: charges of attempts that nobody submitted."""

HAS_HCL = "state = 'ended' AND hcl <> ''"
"""As `LIVE_STATUSES`: ended attempts whose job's text was not pruned yet."""

IS_REPEATABLE = "primary_error IS NOT NULL"
"""As `LIVE_STATUSES`: outcomes whose number is comparable with others of the same workload."""


def _guard(column: Column[str], *ends: str) -> None:
    """Create a trigger that refuses changes of terminal values of a column."""
    guard = f"guard_{column.table.name}"
    words = ", ".join(f"'{end}'" for end in ends)
    trigger = f"CREATE TRIGGER {guard} BEFORE UPDATE OF {column.name} ON {column.table.name}"
    ended = f"OLD.{column.name} IN ({words}) AND NEW.{column.name} <> OLD.{column.name}"
    refusal = f"a {column.name} at its end never changes"
    statements = {
        "sqlite": [f"{trigger} WHEN {ended} BEGIN SELECT RAISE(ABORT, '{refusal}'); END"],
        "postgresql": [
            f"CREATE FUNCTION {guard}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{refusal}' USING ERRCODE = 'check_violation'; END $$",
            f"{trigger} FOR EACH ROW WHEN ({ended}) EXECUTE FUNCTION {guard}()",
        ],
    }

    def make(table: Table, connection: Connection, **_: object) -> None:
        for statement in statements[connection.dialect.name]:
            connection.exec_driver_sql(statement)

    event.listen(column.table, "after_create", make)


def _of_benchmark(*, primary_key: bool = False) -> Column[str]:
    return Column(
        "benchmark_id",
        Text,
        ForeignKey("benchmarks.benchmark_id"),
        primary_key=primary_key,
        nullable=False,
    )


benchmarks = Table(
    "benchmarks",
    metadata,
    Column("benchmark_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("campaign_id", Text),
    Column("schedule_id", Text),
    Column("name", Text),
    Column("submit_time", UtcTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("benchmark_type", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("target_uid", Text),
    Column("waiting_reason", Text),
    Column("waiting_sentence", Text),
    Column("failure_category", Text),
    Column("failure_sentence", Text),
    Column("priority", Integer),
    Column("phase", Text),
    Column("progress", Float),
    Column("progress_message", Text),
    Column("held", Boolean, nullable=False),
    Column("unpinned", Boolean, nullable=False),
    Column("unavailable_since", UtcTime),
    Column("lost_in_a_row", Integer, nullable=False),
    Column("retry_of", Text),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("version", BigInteger, nullable=False),
    Column("user_priority", Integer),
    Column("cleared_uid", Text),
    Column("start_time", UtcTime),
    Column("stopped_by", Text),
    Column("stopped_reason", Text),
    Column("series", Text),
    Column("work", Text, nullable=False),
)
_guard(benchmarks.c.status, "completed", "failed", "cancelled", "expired")
Index("ix_benchmarks_ended_at", benchmarks.c.ended_at)
Index(
    "ix_benchmarks_retry_of",
    benchmarks.c.retry_of,
    sqlite_where=text("retry_of IS NOT NULL"),
    postgresql_where=text("retry_of IS NOT NULL"),
)
Index("ix_benchmarks_page", benchmarks.c.submit_time, benchmarks.c.benchmark_id)
for _column in ("status", "model", "family", "engine"):
    Index(
        f"ix_benchmarks_{_column}",
        benchmarks.c[_column],
        benchmarks.c.submit_time,
        benchmarks.c.benchmark_id,
    )
for _column in ("schedule_id", "name", "series"):
    Index(
        f"ix_benchmarks_{_column}",
        benchmarks.c[_column],
        benchmarks.c.submit_time,
        benchmarks.c.benchmark_id,
        sqlite_where=text(f"{_column} IS NOT NULL"),
        postgresql_where=text(f"{_column} IS NOT NULL"),
    )
Index(
    "ix_benchmarks_user",
    benchmarks.c.user_id,
    benchmarks.c.submit_time,
    benchmarks.c.benchmark_id,
)
Index(
    "ix_benchmarks_user_status",
    benchmarks.c.user_id,
    benchmarks.c.status,
    benchmarks.c.submit_time,
    benchmarks.c.benchmark_id,
)
Index(
    "ix_benchmarks_target_uid",
    benchmarks.c.target_uid,
    benchmarks.c.submit_time,
    benchmarks.c.benchmark_id,
    sqlite_where=text("target_uid IS NOT NULL"),
    postgresql_where=text("target_uid IS NOT NULL"),
)
Index(
    "ix_benchmarks_points",
    benchmarks.c.status,  # SQLite reads it, and would go to the rows for it
    benchmarks.c.user_id,
    benchmarks.c.series,
    benchmarks.c.target_uid,
    benchmarks.c.engine,
    benchmarks.c.benchmark_type,
    benchmarks.c.work,
    benchmarks.c.ended_at,
    benchmarks.c.benchmark_id,
    sqlite_where=text(IS_POINT),
    postgresql_where=text(IS_POINT),
)
Index(
    "ix_benchmarks_campaign_id",
    benchmarks.c.campaign_id,
    benchmarks.c.status,
    sqlite_where=text("campaign_id IS NOT NULL"),
    postgresql_where=text("campaign_id IS NOT NULL"),
)
Index(
    "ix_benchmarks_live",
    benchmarks.c.status,  # SQLite reads it, and would go to the rows for it
    benchmarks.c.benchmark_id,
    benchmarks.c.version,
    sqlite_where=text(LIVE_STATUSES),
    postgresql_where=text(LIVE_STATUSES),
)

descriptions = Table(
    "descriptions",
    metadata,
    _of_benchmark(primary_key=True),
    Column("body", Text, nullable=False),
)

benchmark_files = Table(
    "benchmark_files",
    metadata,
    _of_benchmark(primary_key=True),
    Column("role", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("url", Text),
    Column("sha256", Text, index=True),
    Column("size_bytes", BigInteger),
    # whether the benchmark is a name of the content; its hash and size stay known
    Column("kept", Boolean, nullable=False),
)

benchmark_tags = Table(
    "benchmark_tags",
    metadata,
    Column("tag", Text, primary_key=True),
    Column("submit_time", UtcTime, primary_key=True, autoincrement=False),
    _of_benchmark(primary_key=True),
    sqlite_with_rowid=False,
)

Index("ix_benchmark_tags_benchmark_id", benchmark_tags.c.benchmark_id)

status_counts = Table(
    "status_counts",
    metadata,
    Column("status", Text, primary_key=True),
    Column("stored", BigInteger, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    _of_benchmark(primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_id", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("binding", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("family", Text, nullable=False),
    Column("target_uid", Text),
    Column("allowed_uids", Text, nullable=False),
    Column("upload_token_sha256", Text),
    Column("queued_at", UtcTime),
    Column("started_at", UtcTime),
    Column("task_ended_at", UtcTime),
    Column("task_failure_category", Text),
    Column("task_failure_sentence", Text),
    Column("result_at", UtcTime),
    Column("counts", Boolean, nullable=False),
    Column("stopping_category", Text),
    Column("stopping_sentence", Text),
    Column("ended_at", UtcTime),
    Column("failure_category", Text),
    Column("failure_sentence", Text),
    Column("phase", Text),
    Column("progress", Float),
    Column("version", BigInteger, nullable=False),
    Column("hcl", Text, nullable=False),
    Column("time_limit_s", Float),
    Column("placed_uid", Text),
    Column("reported_uid", Text),
    Column("evaluation_id", Text),
    Column("adopted", Boolean, nullable=False),
)
_guard(attempts.c.state, "ended")
Index(
    "uq_attempts_live",
    attempts.c.benchmark_id,
    unique=True,
    sqlite_where=text(LIVE_STATES),
    postgresql_where=text(LIVE_STATES),
)
Index(
    "uq_attempts_board",
    attempts.c.target_uid,
    unique=True,
    sqlite_where=text(HOLDS_BOARD),
    postgresql_where=text(HOLDS_BOARD),
)

Index(
    "ix_attempts_hcl",
    attempts.c.ended_at,
    sqlite_where=text(HAS_HCL),
    postgresql_where=text(HAS_HCL),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    # no foreign key: what was learned of a run outlives the benchmark that was deleted by age
    Column("benchmark_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("target_uid", Text),
    Column("family", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("benchmark_type", Text, nullable=False),
    Column("model_sha256", Text),
    Column("wait_s", Float),
    Column("run_s", Float),
    Column("failure_category", Text),
    Column("latency_p50_ms", Float),
    Column("verdict", Text),
    Column("ended_at", UtcTime, nullable=False, index=True),
    Column("user_id", Text, nullable=False),
    Column("nb_inference", Integer, nullable=False),
    Column("variant", Text, nullable=False),
    Column("replaces", BigInteger, nullable=False),
    Column("workload", Text),
    Column("primary_error", Float),
    Column("loading_s", Float),
    Column("primary_metric", Text),
    Column("primary_unit", Text),
    Column("primary_better", Text),
    Column("primary_value", Float),
    Column("energy_j", Float),
)
Index(
    "uq_outcomes_attempt",
    outcomes.c.benchmark_id,
    outcomes.c.attempt,
    outcomes.c.replaces,
    unique=True,
)
Index(
    "ix_outcomes_replaces",
    outcomes.c.replaces,
    sqlite_where=text("replaces > 0"),
    postgresql_where=text("replaces > 0"),
)

for _column in ("target_uid", "family"):
    Index(
        f"ix_outcomes_repeated_{_column}",
        outcomes.c[_column],
        outcomes.c.seq,
        sqlite_where=text(IS_REPEATABLE),
        postgresql_where=text(IS_REPEATABLE),
    )

user_files = Table(
    "user_files",
    metadata,
    Column("file_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
)
Index("ix_user_files_name", user_files.c.user_id, user_files.c.name, user_files.c.created_at)
Index("ix_user_files_user", user_files.c.user_id, user_files.c.created_at)

uploads = Table(
    "uploads",
    metadata,
    Column("upload_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("offset_bytes", BigInteger, nullable=False),
    Column("touched_at", UtcTime, nullable=False),
)
Index("ix_uploads_user", uploads.c.user_id, uploads.c.sha256)
Index("ix_uploads_touched_at", uploads.c.touched_at, uploads.c.upload_id)

upload_pieces = Table(
    "upload_pieces",
    metadata,
    Column("upload_id", Text, primary_key=True),
    Column("offset_bytes", BigInteger, primary_key=True),
    Column("sha256", Text, nullable=False, index=True),
    Column("size_bytes", BigInteger, nullable=False),
)

content_removals = Table(
    "content_removals",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("under_way", Boolean, nullable=False),
    Column("at", UtcTime, nullable=False, index=True),
)

grants = Table(
    "grants",
    metadata,
    Column("name", Text, primary_key=True),
    _of_benchmark(),
    Column("attempt", Integer, nullable=False),
    Column("filename", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("content", LargeBinary),
)
Index("ix_grants_attempt", grants.c.benchmark_id, grants.c.attempt)

result_files = Table(
    "result_files",
    metadata,
    _of_benchmark(primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("sha256", Text, nullable=False, index=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("received_at", UtcTime, nullable=False, index=True),
)

reports = Table(
    "reports",
    metadata,
    _of_benchmark(primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("report", Text, nullable=False),
    Column("received_at", UtcTime, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("max_priority", Integer, nullable=False),
    Column("max_budget", Float),
    Column("disabled", Boolean, nullable=False),
    Column("max_running", Integer),
    Column("share", Float, nullable=False),
    Column("max_lease_s", Float, nullable=False),
    Column("boards", SpaceSeparated, nullable=False),
    Column("max_bytes", BigInteger),
    Column("max_files", BigInteger),
    Column("max_pending", BigInteger),
    Column("max_live", BigInteger),
    Column("max_schedules", BigInteger),
    Column("max_tokens", BigInteger),
    Column("max_run_files", BigInteger),
    Column("max_run_bytes", BigInteger),
    Column("max_bookings", BigInteger),
    Column("group_id", Text, index=True),
)

user_groups = Table(
    "user_groups",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("created_at", UtcTime, nullable=False),
    Column("share", Float, nullable=False),
    Column("credits", CreditAmount),
    Column("max_running", Integer),
    Column("max_bytes", BigInteger),
    Column("max_files", BigInteger),
    Column("max_pending", BigInteger),
    Column("max_live", BigInteger),
    Column("max_bookings", BigInteger),
    Column("max_schedules", BigInteger),
    Column("usage_board_s", Float, nullable=False),
    Column("usage_at", UtcTime),
)

user_contents = Table(
    "user_contents",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("sha256", Text, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    # uploaded files, results and benchmarks of the user that have this content
    Column("names", BigInteger, nullable=False),
)

user_usage = Table(
    "user_usage",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("stored_bytes", BigInteger, nullable=False),
)

balances = Table(
    "balances",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("credits", CreditAmount),
    Column("reserved", CreditAmount, nullable=False),
    Column("spent", CreditAmount, nullable=False),
    Column("usage_board_s", Float, nullable=False),
    Column("usage_at", UtcTime),
)

charges = Table(
    "charges",
    metadata,
    # no foreign key: what was used is reported for a year, whatever was deleted by age
    Column("benchmark_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("user_id", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("rate", Float, nullable=False),
    Column("time_limit_s", Float, nullable=False),
    Column("reserved", CreditAmount, nullable=False),
    Column("reserved_at", UtcTime, nullable=False),
    Column("charged", CreditAmount),
    Column("board_s", Float),
    Column("refunded", Text, nullable=False),
    Column("settled_at", UtcTime, index=True),
    Column("engine", Text, nullable=False),
    Column("target_uid", Text),
    Column("wait_s", Float),
    Column("failure", Text),
    Column("joules", Float),
    Column("group_id", Text),
    Column("kind", Text, nullable=False),
)
Index("ix_charges_user", charges.c.user_id, charges.c.reserved_at)
Index(
    "ix_charges_open",
    charges.c.user_id,
    sqlite_where=text("settled_at IS NULL"),
    postgresql_where=text("settled_at IS NULL"),
)
Index(
    "ix_charges_kind",
    charges.c.kind,
    charges.c.target_uid,
    charges.c.settled_at,
    sqlite_where=text(IS_OF_EDGEYARD),
    postgresql_where=text(IS_OF_EDGEYARD),
)

idle_times = Table(
    "idle_times",
    metadata,
    Column("keeper_id", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("until", UtcTime, nullable=False),
    Column("board_s", Float, nullable=False),
    Column("charged", CreditAmount, nullable=False),
    Column("group_id", Text),
)
Index("ix_idle_times_user", idle_times.c.user_id, idle_times.c.until)

board_months = Table(
    "board_months",
    metadata,
    Column("target_uid", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("family", Text, nullable=False),
    Column("busy_s", Float, nullable=False),
    Column("idle_s", Float, nullable=False),
    Column("down_s", Float, nullable=False),
)

board_states = Table(
    "board_states",
    metadata,
    Column("target_uid", Text, primary_key=True),
    Column("at", UtcTime, primary_key=True),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("benchmark_id", Text),
)
Index("ix_board_states_at", board_states.c.at, board_states.c.target_uid)

rates = Table(
    "rates",
    metadata,
    Column("family", Text, primary_key=True),
    Column("rate", Float, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("lease_id", Text, primary_key=True),
    Column("target_uid", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
    Column("until", UtcTime, nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("user_id", Text),
    Column("by_user_id", Text, nullable=False),
    Column("ended_by", Text),
)

quarantines = Table(
    "quarantines",
    metadata,
    Column("target_uid", Text, primary_key=True),
    Column("since", UtcTime, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by_user_id", Text),
    Column("failure_rate", Float),
    Column("probes", Integer, nullable=False),
    Column("probe_id", Text),
    Column("next_probe_at", UtcTime),
    Column("lifted_at", UtcTime),
    Column("lifted_by", Text),
)

canary_boards = Table(
    "canary_boards",
    metadata,
    Column("target_uid", Text, primary_key=True),
    Column("facts", Text, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("next_at", UtcTime, nullable=False),
    Column("benchmark_id", Text),
    Column("measured", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False, index=True),
    Column("role", Text, nullable=False),
    Column("sha256", Text, nullable=False, unique=True),
    Column("label", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    Column("refreshes", Boolean, nullable=False),
    Column("session_id", Text),
    Column("made_by", Text, index=True),
)

logins = Table(
    "logins",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("email", Text, nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),
    Column("changed_at", UtcTime, nullable=False),
    Column("made_by", Text),
)

shares = Table(
    "shares",
    metadata,
    Column("share_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("benchmark_ids", SpaceSeparated, nullable=False),
    Column("campaign_id", Text),
    Column("options", Text, nullable=False),
    Column("sha256", Text, nullable=False, unique=True),
    Column("label", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False, index=True),
    Column("made_by", Text),
)

checks = Table(
    "checks",
    metadata,
    Column("check_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("baseline", Text, nullable=False),
    Column("candidate", Text, nullable=False),
    Column("max_slowdown", Float, nullable=False),
    Column("budget_s", Float, nullable=False),
    Column("max_pairs", Integer, nullable=False),
    Column("versions", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("status", Text, nullable=False, index=True),
    Column("reason", Text, nullable=False),
    Column("target_uid", Text),
    Column("metric", Text, nullable=False),
    Column("pairs", Text, nullable=False),
    Column("run_ids", SpaceSeparated, nullable=False),
    Column("errors", Text, nullable=False),
    Column("ended_at", UtcTime, index=True),
    Column("recorded_ids", SpaceSeparated, nullable=False),
)

Index("ix_checks_user", checks.c.user_id, checks.c.created_at, checks.c.check_id)
Index("ix_checks_created_at", checks.c.created_at, checks.c.check_id)

series_cursor = Table(
    "series_cursor",
    metadata,
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("seen_seq", BigInteger, nullable=False),
)


def _series_key() -> list[Column[str]]:
    return [
        Column(name, Text, nullable=False)
        for name in ("lineage", "user_id", "target_uid", "engine", "benchmark_type", "work")
    ]


watched_series = Table(
    "watched_series",
    metadata,
    Column("series_id", Text, primary_key=True),
    *_series_key(),
    Column("due_since", UtcTime),
    Column("looked_at", UtcTime, index=True),
    Column("threshold", Float, nullable=False),
    Column("threshold_at", UtcTime),
    Column("alert_unconfirmed", Boolean, nullable=False),
)

Index(
    "ix_watched_series_due",
    watched_series.c.due_since,
    watched_series.c.series_id,
    sqlite_where=text("due_since IS NOT NULL"),
    postgresql_where=text("due_since IS NOT NULL"),
)

series_changes = Table(
    "series_changes",
    metadata,
    Column("change_id", Text, primary_key=True),
    Column("series_id", Text, nullable=False),
    *_series_key(),
    Column("begin_id", Text, nullable=False),
    Column("before_id", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("worse", Boolean, nullable=False),
    Column("size", Float, nullable=False),
    Column("low", Float, nullable=False),
    Column("high", Float, nullable=False),
    Column("found_at", UtcTime, nullable=False),
    Column("status", Text, nullable=False),
    Column("alert_id", Text),
    Column("check_ids", SpaceSeparated, nullable=False),
    Column("confirmed_size", Float),
    Column("confirmed_low", Float),
    Column("confirmed_high", Float),
    Column("reason", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("blame", Text, nullable=False),
    Column("not_tested", Text, nullable=False),
    Column("reopened_at", UtcTime),
    Column("ended_at", UtcTime, index=True),
    Column("by_user_id", Text),
    Column("note", Text, nullable=False),
)
for _name, _of in (
    ("series", series_changes.c.series_id),
    ("user", series_changes.c.user_id),
    ("target_uid", series_changes.c.target_uid),
    ("status", series_changes.c.status),
):
    Index(
        f"ix_series_changes_{_name}",
        _of,
        series_changes.c.found_at,
        series_changes.c.change_id,
    )
Index("ix_series_changes_found_at", series_changes.c.found_at, series_changes.c.change_id)
Index(
    "uq_series_changes_undecided",
    series_changes.c.series_id,
    unique=True,
    sqlite_where=text(IS_UNDECIDED),
    postgresql_where=text(IS_UNDECIDED),
)

registrations = Table(
    "registrations",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

deleted_benchmarks = Table(
    "deleted_benchmarks",
    metadata,
    _of_benchmark(primary_key=True),
    Column("at", UtcTime, nullable=False),
)

events = Table(
    "events",
    metadata,
    # INTEGER is SQLite's own row number: no second index
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("at", UtcTime, nullable=False),
    Column("kind", Text, nullable=False),
    Column("benchmark_id", Text),
    Column("user_id", Text),
    Column("data", Text, nullable=False),
)
Index("ix_events_benchmark_id", events.c.benchmark_id, events.c.seq)

acts = Table(
    "acts",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("at", UtcTime, nullable=False),
    Column("kind", Text, nullable=False),
    Column("door", Text, nullable=False),
    Column("user_id", Text),
    Column("email", Text),
    Column("token_id", Text),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("board", Text),
    Column("benchmark_id", Text),
    Column("owner_id", Text),
    Column("reason", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("data", Text, nullable=False),
)
Index("ix_acts_at", acts.c.at)
Index("ix_acts_user", acts.c.user_id, acts.c.seq)
Index("ix_acts_kind", acts.c.kind, acts.c.seq)
Index("ix_acts_board", acts.c.board, acts.c.seq)
Index("ix_acts_benchmark", acts.c.benchmark_id, acts.c.seq)
Index("ix_acts_owner", acts.c.owner_id, acts.c.seq)

file_store = Table(
    "file_store",
    metadata,
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("mark", Text, nullable=False),
    Column("placed", Boolean, nullable=False),
)

event_counter = Table(
    "event_counter",
    metadata,
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
)

explanations = Table(
    "explanations",
    metadata,
    _of_benchmark(primary_key=True),
    Column("seq", BigInteger, nullable=False, index=True),
)

cycles = Table(
    "cycles",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),  # SQLite numbers only such
        primary_key=True,
        autoincrement=True,
    ),
    Column("decided_at", UtcTime, nullable=False, index=True),
    Column("policy", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("shadow_of", BigInteger),
    Column("size_bytes", BigInteger, nullable=False),
    # past runs that it knew: outcomes of these numbers; none: it knew none
    Column("runs_first", BigInteger, index=True),
    Column("runs_last", BigInteger),
)

cycle_parts = Table(
    "cycle_parts",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("sha256", Text, nullable=False, index=True),
)

activations = Table(
    "activations",
    metadata,
    Column("role", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("by_user_id", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
)

policies = Table(
    "policies",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("by_user_id", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
)

policy_overrides = Table(
    "policy_overrides",
    metadata,
    _of_benchmark(primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("by_user_id", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
)

part_contents = Table(
    "part_contents",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

remembered = Table(
    "remembered",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body_sha256", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("at", UtcTime, nullable=False, index=True),
)

campaigns = Table(
    "campaigns",
    metadata,
    Column("campaign_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

Index("ix_campaigns_created_at", campaigns.c.created_at, campaigns.c.campaign_id)
Index("ix_campaigns_user", campaigns.c.user_id, campaigns.c.created_at, campaigns.c.campaign_id)
Index("ix_campaigns_name", campaigns.c.name, campaigns.c.created_at, campaigns.c.campaign_id)

overrides = Table(
    "overrides",
    metadata,
    Column("target_uid", Text, primary_key=True),
    Column("drained", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("by_user_id", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("schedule_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False, index=True),
    Column("cron", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("next_fire", UtcTime, nullable=False, index=True),
    Column("active", Boolean, nullable=False),
    Column("last_benchmark_id", Text),
    Column("skipped", Integer, nullable=False),
    Column("prohibit_overlap", Boolean, nullable=False),
    Column("cron_by", Text, nullable=False),
    Column("launched_until", UtcTime),
    Column("problem", Text),
    Column("retry_at", UtcTime),
)

schedule_jobs = Table(
    "schedule_jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("schedule_id", Text, nullable=False, index=True),
    Column("version", Integer, nullable=False),
    Column("token_sha256", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("hcl", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("state", Text, nullable=False),
)

schedule_grants = Table(
    "schedule_grants",
    metadata,
    Column("name", Text, primary_key=True),
    Column("job_id", Text, nullable=False, index=True),
    Column("filename", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("content", LargeBinary),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("url", Text, nullable=False),
    Column("salt", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("format", Text, nullable=False, server_default=text("'edgeyard'")),
    Column("last_error", Text, nullable=False),
    Column("made_by", Text),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("subscription_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("about", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("events", SpaceSeparated, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("since_seq", BigInteger, nullable=False),
    UniqueConstraint("user_id", "topic", "about", "channel", name="uq_subscriptions_user_id"),
)

subscription_mark = Table(
    "subscription_mark",
    metadata,
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("seen_seq", BigInteger, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("event_seq", BigInteger, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("subscription_id", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("benchmark_id", Text),
    Column("owner_id", Text),
    Column("for_operators", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("next_at", UtcTime),
    Column("state", Text, nullable=False),
    Column("recipient", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("ended_at", UtcTime),
)
Index("ix_deliveries_created_at", deliveries.c.created_at, deliveries.c.delivery_id)
Index(
    "ix_deliveries_user_id",
    deliveries.c.user_id,
    deliveries.c.channel,
    deliveries.c.created_at,
)
Index(
    "ix_deliveries_next_at",
    deliveries.c.next_at,
    sqlite_where=text("next_at IS NOT NULL"),
    postgresql_where=text("next_at IS NOT NULL"),
)

lab_conditions = Table(
    "lab_conditions",
    metadata,
    Column("name", Text, primary_key=True),
    Column("about", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", UtcTime, nullable=False),
)

scorers = Table(
    "scorers",
    metadata,
    Column("policy", Text, primary_key=True),
    Column("scorer", Text, primary_key=True),
    Column("weight", Float),
    Column("rounds", BigInteger, nullable=False),
    Column("reward_sum", Float, nullable=False),
    Column("outcomes", BigInteger, nullable=False),
    Column("outcome_sum", Float, nullable=False),
    Column("faults", BigInteger, nullable=False),
    Column("faults_in_row", Integer, nullable=False),
    Column("suspensions", Integer, nullable=False),
    Column("last_fault", Text, nullable=False),
    Column("last_fault_at", UtcTime),
    Column("suspended_until", UtcTime),
)

reward_rounds = Table(
    "reward_rounds",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),  # SQLite numbers only such
        primary_key=True,
        autoincrement=True,
    ),
    Column("policy", Text, nullable=False),
    Column("at", UtcTime, nullable=False, index=True),
    Column("benchmark_id", Text, nullable=False),
    Column("rewards", Text, nullable=False),
    Column("weights", Text, nullable=False),
)
Index("ix_reward_rounds_policy", reward_rounds.c.policy, reward_rounds.c.seq)

forecast_results = Table(
    "forecast_results",
    metadata,
    Column(
        "seq",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    Column("benchmark_id", Text, nullable=False, unique=True),
    Column("at", UtcTime, nullable=False),
    Column("waited", Boolean, nullable=False),
    Column("start_score", Float),
    Column("start_held", Boolean),
    Column("end_score", Float),
    Column("end_held", Boolean),
)

placement_ratings = Table(
    "placement_ratings",
    metadata,
    Column("benchmark_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("policy", Text, nullable=False),
    Column("normalized_scores", Text, nullable=False),
    Column("expected_s", Float),
    Column("predicted_s", Text, nullable=False),
    Column("failure_chances", Text, nullable=False),
)

leadership = Table(
    "leadership",
    metadata,
    Column("only", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("since", UtcTime),
    Column("at", UtcTime),
    Column("database_us", BigInteger),  # the database's own clock at the renewal; SQLite has none
    Column("clock", Text, nullable=False),  # the machine's that was set last
)

scenarios = Table(
    "scenarios",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("world", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("description", Text, nullable=False),
    Column("jobs", BigInteger),
    Column("source", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("by_user_id", Text, nullable=False),
)
Index("ix_scenarios_created_at", scenarios.c.created_at, scenarios.c.sha256)
Index("ix_scenarios_name", scenarios.c.name, scenarios.c.created_at)

# next to the narrow rows that are listed
scenario_bodies = Table(
    "scenario_bodies",
    metadata,
    Column("sha256", Text, ForeignKey("scenarios.sha256"), primary_key=True, nullable=False),
    Column("json_zstd", LargeBinary, nullable=False),
)

scenario_tags = Table(
    "scenario_tags",
    metadata,
    Column("sha256", Text, ForeignKey("scenarios.sha256"), primary_key=True, nullable=False),
    Column("tag", Text, primary_key=True),
)
Index("ix_scenario_tags_tag", scenario_tags.c.tag)

simulations = Table(
    "simulations",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("scenario", Text, ForeignKey("scenarios.sha256"), nullable=False),
    Column("scenario_name", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("version", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("columns_file", Text),
    Column("wall_s", Float),
    Column("created_at", UtcTime, nullable=False),
    Column("by_user_id", Text, nullable=False),
)
Index("ix_simulations_created_at", simulations.c.created_at, simulations.c.run_id)
Index("ix_simulations_scenario", simulations.c.scenario, simulations.c.created_at)

# one version of a kind is active, and one is the shadow
_IN_USE = "state IN ('active', 'shadow')"
models = Table(
    "models",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("features", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("gates", Text, nullable=False),
    Column("card", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("state_at", UtcTime, nullable=False),
    Column("by_user_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("activated_at", UtcTime),
    Column("replaced", Integer),
)
Index(
    "uq_models_in_use",
    models.c.kind,
    models.c.state,
    unique=True,
    sqlite_where=text(_IN_USE),
    postgresql_where=text(_IN_USE),
)

model_files = Table(
    "model_files",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
