"""Bounded records, which carry their sensitivity."""
