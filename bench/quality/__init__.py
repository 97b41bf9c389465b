"""What is left of a conversation after trimming, and what a model makes of that: one command a measure."""
