"""Questions of users: the table of terms, the request, and parsers of values."""
