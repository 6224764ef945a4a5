// Excerpts of what was found are fetched, which browsers forbid for pages opened as files.
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";
