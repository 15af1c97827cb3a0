"""Figures of Edgeyard on a real Nomad: the lab, the bare client beside it; each group of rows."""
