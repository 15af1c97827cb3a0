"""Models of outcomes: what the server learns from the benchmarks that it ran."""
