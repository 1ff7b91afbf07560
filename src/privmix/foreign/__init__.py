"""Whatever comes from strangers: their folders, files and tensors, read within stated bounds."""
