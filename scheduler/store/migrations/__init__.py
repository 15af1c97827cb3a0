"""What changed in existing databases from version to version; never edited once released."""
