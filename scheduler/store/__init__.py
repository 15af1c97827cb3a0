"""SQLAlchemy tables and the unit of work."""
