"""The web, the command line and the SDK; the only place that wires adapters."""
