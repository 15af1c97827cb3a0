"""What a plugin is, and how plugins are found, run and blamed."""
