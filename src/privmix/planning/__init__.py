"""From public sizes to every number of a release; sees no data."""
