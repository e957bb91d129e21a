"""Builds from here on write documents as jsonb or as text, whichever their columns are.

Changes nothing: the number says which builds may meet a database whose documents are jsonb. See `json_columns`.

Revision ID: 0027
Revises: 0026
"""

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
EXPANDS = True


def upgrade() -> None:
    """Nothing."""


def downgrade() -> None:
    raise NotImplementedError("Migrations only go forward; restore a backup to go back.")
