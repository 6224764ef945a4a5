"""Pages, charts and tables of results."""
