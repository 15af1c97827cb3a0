"""Texts of messages to users."""
