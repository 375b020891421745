"""The questions of the command line in a browser, and as a JSON interface for other tools.

A question is text from a form or a query (`question`); worker processes answer it, and answers are
kept for a while (`pool`); the application hands out pages, which are those of `planner.show`, and
objects, which are those of ``--json`` (`app`). What one request may take is in `guard`.
"""
