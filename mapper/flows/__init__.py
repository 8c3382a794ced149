"""The small language of the flows: parsed, specialised to one checkpoint, and checked."""
