"""ScenarioDB: scenarios, their tags, and simulations with their metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0040"


def upgrade() -> None:
    """Begin without scenarios."""
    op.create_table(
        "scenarios",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("world", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("jobs", sa.BigInteger()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_scenarios"),
    )
    op.create_index("ix_scenarios_created_at", "scenarios", ["created_at", "sha256"])
    op.create_index("ix_scenarios_name", "scenarios", ["name", "created_at"])
    op.create_table(
        "scenario_bodies",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("json_zstd", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_scenario_bodies"),
        sa.ForeignKeyConstraint(["sha256"], ["scenarios.sha256"], name="fk_scenario_bodies_sha256"),
    )
    op.create_table(
        "scenario_tags",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "tag", name="pk_scenario_tags"),
        sa.ForeignKeyConstraint(["sha256"], ["scenarios.sha256"], name="fk_scenario_tags_sha256"),
    )
    op.create_index("ix_scenario_tags_tag", "scenario_tags", ["tag"])
    op.create_table(
        "simulations",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("scenario", sa.Text(), nullable=False),
        sa.Column("scenario_name", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("columns_file", sa.Text()),
        sa.Column("wall_s", sa.Float()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("by_user_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_simulations"),
        sa.ForeignKeyConstraint(["scenario"], ["scenarios.sha256"], name="fk_simulations_scenario"),
    )
    op.create_index("ix_simulations_created_at", "simulations", ["created_at", "run_id"])
    op.create_index("ix_simulations_scenario", "simulations", ["scenario", "created_at"])
