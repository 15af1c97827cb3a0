"""The pure decision cycle: no clock, no I/O."""
