"""How deep the questions and answers of a dataset are: parse depth, reading grade, Bloom level (MovieCORE, Table 1)."""
