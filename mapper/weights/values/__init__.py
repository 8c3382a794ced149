"""Values of any kind as strict JSON beside tensors, and back exactly."""
