"""People judge what models wrote: a page in the browser, one SQLite file, JSON lines for the next stage."""
