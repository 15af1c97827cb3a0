"""How good the scorers' answers were."""
