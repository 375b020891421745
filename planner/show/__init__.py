"""One presentation: what a page consists of, and what writes it; views make pages of objects."""
