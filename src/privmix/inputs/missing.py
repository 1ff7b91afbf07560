"""What stands for a missing value: the one list, for cells, owners and labels alike."""

from __future__ import annotations

# What programs write for a missing value where only texts can be written. Taken for an owner's
# name, one of these would hide records of owners who have others under their own.
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NaT", "<NA>", "NULL", "null", "None"})


def is_nothing(value: object) -> bool:
    """Whether a value is None, NaN, or what pandas has for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    # NumPy's narrower floats are no Python floats.
    is_float = isinstance(value, float) or type(value).__name__ in ("float16", "float32")
    return is_float and value != value


def is_missing(value: object) -> bool:
    """Whether a value stands for nothing, blanks around a word or not."""
    return is_nothing(value) or (isinstance(value, str) and value.strip() in MISSING)
