"""People judge what models wrote: a page in the browser, decisions in one SQLite file, JSON lines for the next stage."""
