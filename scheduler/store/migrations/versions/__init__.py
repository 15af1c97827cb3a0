"""One file a schema, in order."""
