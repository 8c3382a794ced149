"""What a model does tells a right reading from a wrong one: candidates are built, and each is let speak."""
