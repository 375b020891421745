"""What the texts of published runs, and files beside them, say of a run in words of columns."""
