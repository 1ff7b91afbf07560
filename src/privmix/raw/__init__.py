"""Raw records: images, texts and table rows, from files, frames and data sets."""

from privmix.raw.opening import open_records
from privmix.raw.records import BadRecord, Kind, Limits, RawBlock, RawRecords

__all__ = ["BadRecord", "Kind", "Limits", "RawBlock", "RawRecords", "open_records"]
