"""Bytes and requests of others: generated, mutated, and thrown at whatever reads them."""
