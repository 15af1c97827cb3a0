"""Figures of Edgeyard on a real Nomad: the lab, the bare client next to it; each group of rows."""
