"""Pictures of results, one module each; matplotlib is imported where one is drawn."""
