"""Results on disk: folders of runs, records, views of them, and what made them."""
