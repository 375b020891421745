"""What people and programs read: tables, messages, files."""
