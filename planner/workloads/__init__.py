"""What each workload registers: its question, configurations, evaluation, columns and wording."""
