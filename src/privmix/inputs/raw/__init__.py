"""Raw records: images, texts and table rows, from files, frames and data sets."""

from privmix.inputs.raw.blocks import BadRecord, Kind, Limits, RawBlock, RawRecords
from privmix.inputs.raw.opening import open_records

__all__ = ["BadRecord", "Kind", "Limits", "RawBlock", "RawRecords", "open_records"]
