"""What no name, shape or config shows of a model: evidence from its weights, and from how it behaves.

Both answer questions that a reading leaves open, never what it already knows; what they answer is never exact.
"""
