"""`convert`: any source to safetensors or npz, a tensor at a time."""
