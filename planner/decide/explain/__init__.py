"""Why a plan is as fast and as large as it is, what would change that, and plans side by side."""
