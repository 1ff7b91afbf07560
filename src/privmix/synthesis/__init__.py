"""Synthetic records, drawn from what a release says and from nothing else."""

from privmix.synthesis.records import SyntheticRecords
from privmix.synthesis.synthesizer import Synthesizer, synthesize

__all__ = ["Synthesizer", "SyntheticRecords", "synthesize"]
