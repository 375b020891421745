"""Scripts on Hugging Face's Trainer: what several targets start, and what their files say."""
