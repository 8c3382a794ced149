"""What is written: whole or not there at all, synced, and never over what is not mapper's own."""
