"""What real parsers of launch files accept, read from the parsers themselves.

The modules here run in the environments that scripts/make_launch_environments.py makes, so they
import nothing of planner. `rows` is what they share; every other module prints one target's
options as JSON.
"""
