"""The questions of the command line in a browser, and as a JSON interface for other tools.

A question is text from a form or a query (`question`). Worker processes run its command
(`run_commands`) and answers are cached (`worker_pool`). The application serves the pages of
`planner.show` and the objects of ``--json`` (`app`). `request_limits` has the limits of a request.
"""
