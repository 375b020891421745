"""What a user asks: the table of terms, the request, values as they are written."""
