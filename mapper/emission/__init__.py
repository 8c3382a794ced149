"""Architecture to source text: classes, sizes, statements, checks."""
