"""Who may run where."""
