"""The release folder: parts, card, certificate, reading and verification."""
