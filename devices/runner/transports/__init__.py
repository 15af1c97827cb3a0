"""Ways to reach the board that a benchmark runs on."""
