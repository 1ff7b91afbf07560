"""Named public data sets, and the demo on bundled data."""
