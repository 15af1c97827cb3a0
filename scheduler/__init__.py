"""Decides and drives; no web, no asyncio."""
