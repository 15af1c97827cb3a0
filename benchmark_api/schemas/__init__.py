"""What goes over HTTP: bodies read and checked, answers written. Pydantic stops here."""
