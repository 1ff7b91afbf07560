"""Files, frames and arrays become vectors, labels and owners."""
