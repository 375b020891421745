"""Logs of the user's runs, compared with the predictions of their plans."""
