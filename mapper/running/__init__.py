"""An input and a model's answer to it: by the task that was inferred, and the files that stand beside the weights."""
