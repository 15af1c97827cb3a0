"""What changed in the database from version to version; never edited once released."""
