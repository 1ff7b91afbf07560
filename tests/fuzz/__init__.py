"""Inputs of strangers, changed in every way: each is refused by name, or says nothing else than before.

``mutations`` changes documents and bytes, ``targets`` reads what comes of it and judges the outcome,
``runner`` does so in processes of limited memory and time. ``python -m tests.fuzz`` is the long form;
``test_fuzz.py`` runs a sample.
"""
