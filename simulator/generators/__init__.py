"""Generators: scenarios of stated kinds, each a function of its options and a seed."""
