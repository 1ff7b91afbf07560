"""The public facts of a release: those of its records, and of the columns that texts and numbers stand in."""

from privmix.schema.facts import TARGETS, ClassBalance, Schema, Target, check_classes
from privmix.schema.table import TableSchema

__all__ = ["TARGETS", "ClassBalance", "Schema", "TableSchema", "Target", "check_classes"]
