"""What the data is: readers for each sort of file, windows over texts, spans out of logits."""
