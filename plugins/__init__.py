"""Queue policies, filters, scorers, evaluators and aggregators, found by entry points."""
