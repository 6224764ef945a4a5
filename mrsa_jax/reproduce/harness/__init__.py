"""What all items are made with: rows, what a run shares, verdicts, figures, trainings."""
