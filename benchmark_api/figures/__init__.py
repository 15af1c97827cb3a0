"""Figures as values, and what draws them: the same numbers on a page, in a report, in a PNG."""
