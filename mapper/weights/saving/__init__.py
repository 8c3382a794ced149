"""`save` and `load`: the document, the tensors of a file, and how they lay in memory."""
