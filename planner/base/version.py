"""The version and the name of the distribution; the package and the command are ``planner``."""

__version__ = "1.0.0"
DISTRIBUTION = "llm-gpu-planner"
