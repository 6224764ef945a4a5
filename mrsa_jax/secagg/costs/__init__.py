"""What rounds cost: the papers' bits, and seconds out of bytes and operations."""
