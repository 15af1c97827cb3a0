"""Learned models: how columns become tensors, what is checked of a file, how it is asked."""
