"""The version and the name of the distribution; the package and the command are ``planner``."""

__version__ = "0.2.0"
DISTRIBUTION = "llm-gpu-planner"
