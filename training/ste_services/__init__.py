"""The services of the synthetic test environment, each an app of its own."""
