"""What everything stands on: numbers of formats, units, text, files, processes."""
