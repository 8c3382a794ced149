"""The architecture of models that mapper built, or whose source it wrote, as data, and back."""
