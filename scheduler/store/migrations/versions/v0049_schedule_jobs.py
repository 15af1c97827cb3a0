"""Schedules may be left to Nomad: their parent jobs, and the downloads of the runs of these."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    """Leave stored schedules to Edgeyard."""
    op.add_column(
        "schedules", sa.Column("cron_by", sa.Text, nullable=False, server_default="edgeyard")
    )
    op.add_column("schedules", sa.Column("launched_until", sa.BigInteger))
    op.create_table(
        "schedule_jobs",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("schedule_id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("token_sha256", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("hcl", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", name="pk_schedule_jobs"),
    )
    op.create_index("ix_schedule_jobs_schedule_id", "schedule_jobs", ["schedule_id"])
    op.create_table(
        "schedule_grants",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("filename", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary),
        sa.PrimaryKeyConstraint("name", name="pk_schedule_grants"),
    )
    op.create_index("ix_schedule_grants_job_id", "schedule_grants", ["job_id"])
