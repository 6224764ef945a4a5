"""Run attacks from settings: try what a curious server can learn, and score it."""
